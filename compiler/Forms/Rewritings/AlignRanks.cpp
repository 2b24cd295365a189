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

} // namespace

unsigned alignRanks(KernelGraph &graph) {
  const Uses uses(graph);
  std::vector<bool> isInstalled(graph.tensors.size()), isLookedUp(graph.tensors.size());
  for (const Kernel &kernel : graph.kernels) {
    for (const Term &term : kernel.terms)
      isInstalled[term.w.tensor] = true;
    for (const Access &operand : kernel.operands)
      if (operand.lookup)
        isLookedUp[operand.tensor] = isLookedUp[operand.lookup->tensor] = true;
  }
  unsigned aligned = 0;
  const auto align = [&](unsigned tensor) { // its readers' results are aligned already
    Tensor &row = graph.tensors[tensor];
    if (!isRow(row) || uses.onHost[tensor] || isInstalled[tensor] || isLookedUp[tensor])
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
