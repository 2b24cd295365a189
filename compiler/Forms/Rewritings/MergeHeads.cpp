// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/MergeHeads.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <optional>

namespace millrace::forms {
namespace {

/// Calls f(kernel, access) for every access of the tensor.
template <class F> void forEachAccessOf(KernelGraph &graph, unsigned tensor, F f) {
  for (Kernel &kernel : graph.kernels)
    forEachAccess(kernel, [&](Access &access) {
      if (access.tensor == tensor)
        f(kernel, access);
    });
}

/// How many heads the dimension counts beside something else (windows, images), if every access
/// steps through all heads of one of these, by one loop: dimension / heads and heads are then two
/// dimensions. 0 if not.
int64_t headsWithin(KernelGraph &graph, unsigned tensor, unsigned dim) {
  const int64_t extent = graph.tensors[tensor].shape[dim];
  int64_t heads = 0;
  bool isOne = std::none_of(graph.kernels.begin(), graph.kernels.end(), [&](const Kernel &kernel) {
    return std::any_of(kernel.operands.begin(), kernel.operands.end(),
                       [&](const Access &o) { return o.lookup && o.lookup->tensor == tensor; });
  });
  forEachAccessOf(graph, tensor, [&](const Kernel &kernel, const Access &access) {
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
void splitDimension(KernelGraph &graph, unsigned number, unsigned dim, int64_t heads) {
  forEachAccessOf(graph, number, [&](const Kernel &, Access &access) {
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
  Tensor &tensor = graph.tensors[number];
  tensor.shape[dim] /= heads;
  tensor.shape.insert(tensor.shape.begin() + dim + 1, heads);
  tensor.laneDim += tensor.laneDim > dim ? 1 : 0;
}

/// Undoes splitDimension().
void joinDimensions(KernelGraph &graph, unsigned number, unsigned dim) {
  Tensor &tensor = graph.tensors[number];
  const int64_t heads = tensor.shape[dim + 1];
  forEachAccessOf(graph, number, [&](const Kernel &, Access &access) {
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

/// A tensor whose dimension `heads` can join its lanes.
struct Merge {
  unsigned tensor, heads;
  int64_t lanes; ///< of one head
};

class Merger {
public:
  explicit Merger(KernelGraph &graph) : graph(graph) {}

  bool isPossible(const Merge &merge) const {
    bool isWritten = false;
    for (const auto &[isHost, number] : graph.order) {
      if (isHost) {
        const HostCall &call = graph.hostCalls[number];
        for (const std::vector<unsigned> &list : {call.inputs, call.outputs})
          if (std::find(list.begin(), list.end(), merge.tensor) != list.end())
            return false;
        continue;
      }
      const Kernel &kernel = graph.kernels[number];
      if (std::any_of(kernel.operands.begin(), kernel.operands.end(), [&](const Access &o) {
            return o.tensor == merge.tensor || (o.lookup && o.lookup->tensor == merge.tensor);
          }))
        return false;
      for (const Term &term : kernel.terms)
        if (term.w.tensor == merge.tensor ||
            (term.a.tensor == merge.tensor && !isReader(kernel, term.a, merge)))
          return false;
      for (const Result &result : kernel.results)
        if (result.access.tensor == merge.tensor) {
          if (isWritten || !isWriter(kernel, result.access, merge))
            return false;
          isWritten = true;
        }
    }
    return isWritten;
  }

  void apply(const Merge &merge) {
    for (const auto &[isHost, number] : graph.order) {
      if (isHost)
        continue;
      Kernel &kernel = graph.kernels[number];
      for (Term &term : kernel.terms)
        if (term.a.tensor == merge.tensor) {
          joinLoops(kernel, term.a, merge); // every term over these loops with it
          break;
        }
      for (Term &term : kernel.terms)
        if (term.a.tensor == merge.tensor)
          term.a.index.erase(term.a.index.begin() + merge.heads);
      for (Result &result : kernel.results)
        if (result.access.tensor == merge.tensor) {
          AffineIndex &lane = result.access.index[laneDim(merge)];
          const unsigned heads = result.access.index[merge.heads].terms[0].first;
          lane.terms.push_back({heads, merge.lanes});
          std::sort(lane.terms.begin(), lane.terms.end());
          result.access.index.erase(result.access.index.begin() + merge.heads);
        }
    }
    Tensor &tensor = graph.tensors[merge.tensor];
    tensor.shape[tensor.laneDim] *= tensor.shape[merge.heads];
    tensor.shape.erase(tensor.shape.begin() + merge.heads);
    tensor.laneDim -= merge.heads < tensor.laneDim ? 1 : 0;
  }

private:
  unsigned laneDim(const Merge &merge) const { return graph.tensors[merge.tensor].laneDim; }
  int64_t extentOf(const Merge &merge, unsigned dim) const {
    return graph.tensors[merge.tensor].shape[dim];
  }

  /// One sum per head: its columns come from weights of its own, made at run time, and its rows of
  /// the other operand from anywhere but other lanes.
  bool isWriter(const Kernel &kernel, const Access &result, const Merge &merge) const {
    auto head = wholeLoop(kernel, result.index[merge.heads], extentOf(merge, merge.heads),
                          LoopKind::Parallel);
    auto lane = wholeLoop(kernel, result.index[laneDim(merge)], merge.lanes, LoopKind::Parallel);
    return head && lane && kernel.operands.empty() && !kernel.terms.empty() &&
           std::all_of(kernel.terms.begin(), kernel.terms.end(), [&](const Term &term) {
             const Tensor &a = graph.tensors[term.a.tensor], &w = graph.tensors[term.w.tensor];
             return w.role != TensorRole::Constant && usesLoop(term.w, *lane) &&
                    coefficient(term.a.index[a.laneDim], *head) == 0;
           });
  }

  /// Sums over heads and their lanes at once, in the order of the weights.
  bool isReader(const Kernel &kernel, const Access &a, const Merge &merge) const {
    auto head =
        wholeLoop(kernel, a.index[merge.heads], extentOf(merge, merge.heads), LoopKind::Contracted);
    auto lane = wholeLoop(kernel, a.index[laneDim(merge)], merge.lanes, LoopKind::Contracted);
    return head && lane &&
           std::all_of(kernel.terms.begin(), kernel.terms.end(), [&](const Term &term) {
             if (!usesLoop(term.a, *head) && !usesLoop(term.a, *lane) && !usesLoop(term.w, *head) &&
                 !usesLoop(term.w, *lane))
               return true;
             return term.a.tensor == merge.tensor &&
                    wholeLoop(kernel, term.a.index[merge.heads], extentOf(merge, merge.heads),
                              LoopKind::Contracted) == head &&
                    wholeLoop(kernel, term.a.index[laneDim(merge)], merge.lanes,
                              LoopKind::Contracted) == lane &&
                    std::all_of(
                        term.w.index.begin(), term.w.index.end(), [&](const AffineIndex &i) {
                          return coefficient(i, *head) == merge.lanes * coefficient(i, *lane);
                        });
           });
  }

  /// The loop of the heads becomes part of the loop along the lanes, and is gone.
  void joinLoops(Kernel &kernel, const Access &a, const Merge &merge) {
    const unsigned gone = a.index[merge.heads].terms[0].first;
    const unsigned stays = a.index[laneDim(merge)].terms[0].first;
    kernel.loops[stays].extent *= kernel.loops[gone].extent;
    kernel.loops.erase(kernel.loops.begin() + gone);
    auto renumber = [&](std::vector<AffineIndex> &index) {
      for (AffineIndex &i : index) {
        std::erase_if(i.terms, [&](const auto &term) { return term.first == gone; });
        for (auto &[loop, c] : i.terms)
          loop -= loop > gone ? 1 : 0;
      }
    };
    for (Term &term : kernel.terms) {
      renumber(term.a.index);
      renumber(term.w.index);
    }
    for (Access &operand : kernel.operands) {
      renumber(operand.index);
      if (operand.lookup)
        renumber(operand.lookup->index);
    }
    for (Result &result : kernel.results)
      renumber(result.access.index);
  }

  KernelGraph &graph;
};

} // namespace

unsigned mergeHeads(KernelGraph &graph, const Machine &machine) {
  const int64_t group = machine.mxm.columnsPerInstall;
  const int64_t vector = std::min<int64_t>(machine.lanes(), machine.mxm.columns);
  Merger merger(graph);
  unsigned merged = 0;
  for (unsigned t = 0; t < graph.tensors.size(); ++t) {
    const Tensor &tensor = graph.tensors[t];
    if (tensor.role != TensorRole::Intermediate || vector % group != 0)
      continue;
    const int64_t lanes = tensor.shape[tensor.laneDim];
    if (lanes % group != 0 || lanes * 2 > vector)
      continue;
    const auto mergeIfPossible = [&](unsigned dim) {
      const Merge merge{t, dim, lanes};
      if (dim == tensor.laneDim || tensor.shape[dim] == 1 || !merger.isPossible(merge))
        return false;
      merger.apply(merge);
      return true;
    };
    bool isDone = false;
    for (unsigned dim = 0; dim < tensor.shape.size() && !isDone; ++dim)
      isDone = mergeIfPossible(dim);
    for (unsigned dim = 0; dim < tensor.shape.size() && !isDone && tensor.hostLoops.empty(); ++dim)
      if (const int64_t heads = dim == tensor.laneDim ? 0 : headsWithin(graph, t, dim)) {
        splitDimension(graph, t, dim, heads);
        if (!(isDone = mergeIfPossible(dim + 1)))
          joinDimensions(graph, t, dim);
      }
    merged += isDone;
  }
  return merged;
}

} // namespace millrace::forms
