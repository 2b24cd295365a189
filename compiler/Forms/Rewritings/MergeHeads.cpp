// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/MergeHeads.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/HeadPlan.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>

namespace millrace::forms {
namespace {

/// A graph and which of its kernels touch a tensor.
struct Touched {
  KernelGraph &graph;
  const Uses uses{graph};

  /// Calls f(kernel, access) for every access of the tensor.
  template <class F> void forEachAccessOf(unsigned tensor, F f) const {
    std::vector<unsigned> kernels = uses.writers[tensor];
    kernels.insert(kernels.end(), uses.readers[tensor].begin(), uses.readers[tensor].end());
    std::sort(kernels.begin(), kernels.end());
    kernels.erase(std::unique(kernels.begin(), kernels.end()), kernels.end());
    for (const unsigned k : kernels)
      forEachAccess(graph.kernels[k], [&](Access &access) {
        if (access.tensor == tensor)
          f(graph.kernels[k], access);
      });
  }
};

/// How many heads the dimension counts beside something else (windows, images), if every access
/// steps through all heads of one of these, by one loop: dimension / heads and heads are then two
/// dimensions. 0 if not.
int64_t headsWithin(const Touched &touched, unsigned tensor, unsigned dim) {
  const int64_t extent = touched.graph.tensors[tensor].shape[dim];
  int64_t heads = 0;
  bool isOne = std::none_of(
      touched.uses.readers[tensor].begin(), touched.uses.readers[tensor].end(), [&](unsigned k) {
        const std::vector<Access> &operands = touched.graph.kernels[k].operands;
        return std::any_of(operands.begin(), operands.end(),
                           [&](const Access &o) { return o.lookup && o.lookup->tensor == tensor; });
      });
  touched.forEachAccessOf(tensor, [&](const Kernel &kernel, const Access &access) {
    const AffineIndex &index = access.index[dim];
    int64_t its = 0;
    for (auto [loop, step] : index.terms)
      if (step == 1)
        its = its ? -1 : kernel.loops[loop].extent;
    heads = heads ? heads : its;
    const auto [low, high] = rangeOf(kernel, index);
    isOne = isOne && its == heads && heads > 1 && heads < extent && extent % heads == 0 &&
            index.offset % heads == 0 && low >= 0 && high < extent && !access.lookup;
    for (auto [loop, step] : index.terms)
      isOne = isOne && (step == 1 || step % heads == 0);
  });
  return isOne ? heads : 0;
}

/// [.., n * heads, ..] becomes [.., n, heads, ..], as headsWithin() allows.
void splitDimension(const Touched &touched, unsigned number, unsigned dim, int64_t heads) {
  touched.forEachAccessOf(number, [&](const Kernel &, Access &access) {
    AffineIndex &outer = access.index[dim], inner;
    const auto one = std::find_if(outer.terms.begin(), outer.terms.end(),
                                  [](const auto &term) { return term.second == 1; });
    inner.terms.push_back(*one);
    outer.terms.erase(one);
    for (auto &[loop, step] : outer.terms)
      step /= heads;
    outer.offset /= heads;
    access.index.insert(access.index.begin() + dim + 1, inner);
  });
  Tensor &tensor = touched.graph.tensors[number];
  tensor.shape[dim] /= heads;
  tensor.shape.insert(tensor.shape.begin() + dim + 1, heads);
  tensor.laneDim += tensor.laneDim > dim ? 1 : 0;
}

/// Undoes splitDimension().
void joinDimensions(const Touched &touched, unsigned number, unsigned dim) {
  Tensor &tensor = touched.graph.tensors[number];
  const int64_t heads = tensor.shape[dim + 1];
  touched.forEachAccessOf(number, [&](const Kernel &, Access &access) {
    AffineIndex &outer = access.index[dim];
    for (auto &[loop, step] : outer.terms)
      step *= heads;
    outer.offset *= heads;
    outer.terms.push_back(access.index[dim + 1].terms.front());
    std::sort(outer.terms.begin(), outer.terms.end());
    access.index.erase(access.index.begin() + dim + 1);
  });
  tensor.shape[dim] *= heads;
  tensor.shape.erase(tensor.shape.begin() + dim + 1);
  tensor.laneDim -= tensor.laneDim > dim ? 1 : 0;
}

} // namespace

unsigned mergeHeads(KernelGraph &graph, const Machine &machine) {
  const int64_t group = machine.mxm.columnsPerInstall;
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  const HeadPlanner planner(graph);
  std::optional<Touched> touched(Touched{graph});
  unsigned merged = 0;
  Repeats repeats; // of constants that are streamed
  for (unsigned t = 0; t < graph.tensors.size(); ++t) {
    const Tensor &tensor = graph.tensors[t];
    const auto mergeIfPossible = [&](unsigned dim) {
      if (dim == tensor.laneDim || tensor.shape[dim] == 1)
        return false;
      const std::optional<HeadPlan> plan = planner.plan(t, dim);
      if (!plan || (planner.sweeps(*plan) && (plan->lanes % group != 0 || vector % group != 0)))
        return false;
      joinHeads(graph, *plan, repeats);
      touched.emplace(Touched{graph}); // what is computed again for each head has other readers
      merged += unsigned(plan->dims.size());
      return true;
    };
    if (tensor.role != TensorRole::Intermediate || tensor.shape[tensor.laneDim] * 2 > vector)
      continue;
    bool isDone = false;
    for (unsigned dim = 0; dim < tensor.shape.size() && !isDone; ++dim)
      isDone = mergeIfPossible(dim);
    for (unsigned dim = 0; dim < tensor.shape.size() && !isDone && tensor.hostLoops.empty(); ++dim)
      if (const int64_t heads = dim == tensor.laneDim ? 0 : headsWithin(*touched, t, dim)) {
        splitDimension(*touched, t, dim, heads);
        if (!(isDone = mergeIfPossible(dim + 1)))
          joinDimensions(*touched, t, dim);
      }
  }
  return merged;
}

} // namespace millrace::forms
