// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/AlignRanks.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>

namespace millrace::forms {
namespace {

bool isRow(const Tensor &tensor) {
  return tensor.role == TensorRole::Intermediate &&
         elementCount(tensor) == tensor.shape[tensor.laneDim];
}

/// Per tensor: is it installed, or are rows of it looked up or do they say which?
std::vector<bool> installedOrLookedUp(const KernelGraph &graph) {
  std::vector<bool> is(graph.tensors.size());
  for (const Kernel &kernel : graph.kernels) {
    for (const Term &term : kernel.terms)
      is[term.w.tensor] = true;
    for (const Access &operand : kernel.operands)
      if (operand.lookup)
        is[operand.tensor] = is[operand.lookup->tensor] = true;
  }
  return is;
}

/// The largest result whose lanes a map meets with those of the tensor.
std::optional<unsigned> largestMet(const KernelGraph &graph, const Uses &uses, unsigned tensor) {
  const Tensor &row = graph.tensors[tensor];
  std::optional<unsigned> largest;
  for (unsigned k : uses.readers[tensor]) {
    const Kernel &kernel = graph.kernels[k];
    const Access &result = kernel.results.front().access;
    const Tensor &met = graph.tensors[result.tensor];
    for (const Access &operand : kernel.operands)
      if (operand.tensor == tensor && !operand.lookup &&
          operand.index[row.laneDim] == result.index[met.laneDim] &&
          row.shape[row.laneDim] == met.shape[met.laneDim] &&
          (!largest || elementCount(met) > elementCount(graph.tensors[*largest])))
        largest = result.tensor;
  }
  return largest;
}

/// For each dimension of what the kernel writes first the one of `result` that moves alike, if it
/// has those in another order; else nothing.
std::vector<unsigned> orderAs(const KernelGraph &graph, const Access &first, const Access &result) {
  const Tensor &leads = graph.tensors[first.tensor], &its = graph.tensors[result.tensor];
  if (leads.shape.size() != its.shape.size() || leads.laneDim == its.laneDim)
    return {};
  std::vector<unsigned> order;
  for (unsigned d = 0; d < leads.shape.size(); ++d)
    for (unsigned e = 0; e < its.shape.size(); ++e)
      if (leads.shape[d] == its.shape[e] && first.index[d] == result.index[e] &&
          (d == leads.laneDim) == (e == its.laneDim) &&
          std::find(order.begin(), order.end(), e) == order.end()) {
        order.push_back(e);
        break;
      }
  return order.size() == its.shape.size() ? order : std::vector<unsigned>();
}

template <class T> void permute(std::vector<T> &list, const std::vector<unsigned> &order) {
  std::vector<T> permuted;
  for (const unsigned d : order)
    permuted.push_back(list[d]);
  list = std::move(permuted);
}

} // namespace

unsigned alignOrders(KernelGraph &graph) {
  const Uses uses(graph);
  const std::vector<bool> isBound = installedOrLookedUp(graph);
  unsigned aligned = 0;
  for (unsigned k = 0; k < graph.kernels.size(); ++k)
    for (size_t r = 1; r < graph.kernels[k].results.size(); ++r) {
      const unsigned tensor = graph.kernels[k].results[r].access.tensor;
      Tensor &its = graph.tensors[tensor];
      if (its.role != TensorRole::Intermediate || !its.value.empty() || uses.onHost[tensor] ||
          isBound[tensor] || uses.writers[tensor].size() != 1)
        continue;
      const std::vector<unsigned> order =
          orderAs(graph, graph.kernels[k].results[0].access, graph.kernels[k].results[r].access);
      if (order.empty())
        continue;
      permute(its.shape, order);
      its.laneDim = graph.tensors[graph.kernels[k].results[0].access.tensor].laneDim;
      const auto move = [&](Access &access) {
        if (access.tensor == tensor)
          permute(access.index, order);
      };
      forEachAccess(graph.kernels[k], move);
      for (const unsigned reader : uses.readers[tensor])
        if (reader != k)
          forEachAccess(graph.kernels[reader], move);
      ++aligned;
    }
  return aligned;
}

unsigned alignRanks(KernelGraph &graph) {
  const Uses uses(graph);
  const std::vector<bool> isBound = installedOrLookedUp(graph);
  unsigned aligned = 0;
  const auto align = [&](unsigned tensor) { // its readers' results are aligned already
    Tensor &row = graph.tensors[tensor];
    if (!isRow(row) || uses.onHost[tensor] || isBound[tensor])
      return;
    const std::optional<unsigned> met = largestMet(graph, uses, tensor);
    if (!met || (graph.tensors[*met].shape.size() == row.shape.size() &&
                 graph.tensors[*met].laneDim == row.laneDim))
      return;
    const unsigned from = row.laneDim, to = graph.tensors[*met].laneDim;
    const int64_t lanes = row.shape[from];
    row.shape.assign(graph.tensors[*met].shape.size(), 1);
    row.shape[to] = lanes;
    row.laneDim = to;
    const auto move = [&](Access &access) {
      if (access.tensor != tensor)
        return;
      std::vector<AffineIndex> index(row.shape.size());
      index[to] = access.index[from];
      access.index = std::move(index);
    };
    for (const auto *kernels : {&uses.readers[tensor], &uses.writers[tensor]})
      for (unsigned k : *kernels)
        forEachAccess(graph.kernels[k], move);
    ++aligned;
  };
  for (auto place = graph.order.rbegin(); place != graph.order.rend(); ++place)
    if (!place->first)
      for (const Result &result : graph.kernels[place->second].results)
        align(result.access.tensor);
  return aligned;
}

} // namespace millrace::forms
