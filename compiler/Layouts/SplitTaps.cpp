// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/SplitTaps.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"
#include "compiler/Layouts/Materialize.h"

#include <algorithm>
#include <set>

namespace millrace::layouts {

using forms::Node;
using forms::Uses;

namespace {

/// A map whose operands are elements step * loop + offset of a dimension of one tensor.
struct Taps {
  unsigned tensor = 0, producer = 0, map = 0, dim = 0;
  unsigned producerLoop = 0, mapLoop = 0;
  int64_t step = 1;
  std::set<int64_t> offsets;
};

std::optional<Taps> tapsOf(const KernelGraph &graph, const Uses &uses, unsigned tensor) {
  const Tensor &t = graph.tensors[tensor];
  if (t.role != TensorRole::Intermediate || uses.onHost[tensor] ||
      uses.writers[tensor].size() != 1 || uses.readers[tensor].size() != 1)
    return std::nullopt;
  Taps taps{tensor, uses.writers[tensor][0], uses.readers[tensor][0], 0, 0, 0, 1, {}};
  const Kernel &producer = graph.kernels[taps.producer], &map = graph.kernels[taps.map];
  if (producer.terms.empty() || producer.results.size() != 1 || !map.terms.empty() ||
      !padOf(graph, tensor))
    return std::nullopt;
  std::optional<unsigned> dim;
  const Access *first = nullptr;
  for (const Access &operand : map.operands) {
    if (operand.lookup && (operand.tensor == tensor || operand.lookup->tensor == tensor))
      return std::nullopt;
    if (operand.tensor != tensor)
      continue;
    if (!first)
      first = &operand;
    for (unsigned d = 0; d < t.shape.size(); ++d) {
      if (operand.index[d].terms != first->index[d].terms)
        return std::nullopt;
      if (operand.index[d].offset != first->index[d].offset) {
        if (dim && *dim != d)
          return std::nullopt;
        dim = d;
      }
    }
  }
  if (!dim || *dim == t.laneDim)
    return std::nullopt;
  taps.dim = *dim;
  const std::optional<unsigned> mapLoop = onlyLoop(map, first->index[*dim]),
                                producerLoop =
                                    onlyLoop(producer, producer.results[0].access.index[*dim]);
  if (!mapLoop || !producerLoop || map.loops[*mapLoop].kind != LoopKind::Parallel ||
      wholeLoop(producer, producer.results[0].access.index[*dim], t.shape[*dim],
                LoopKind::Parallel) != producerLoop)
    return std::nullopt;
  taps.mapLoop = *mapLoop;
  taps.producerLoop = *producerLoop;
  taps.step = coefficient(first->index[*dim], *mapLoop);
  for (unsigned d = 0; d < t.shape.size(); ++d) // which moves nothing else of it
    if (d != *dim && coefficient(first->index[d], *mapLoop))
      return std::nullopt;
  for (const Access &operand : map.operands)
    if (operand.tensor == tensor)
      taps.offsets.insert(operand.index[*dim].offset);
  return taps.step > 1 ? std::optional(taps) : std::nullopt;
}

/// The contraction for every step-th element from `offset` on; others than the tensor's read what
/// its windows read beside it.
unsigned addTap(KernelGraph &graph, const Taps &taps, int64_t offset, int64_t count, int64_t macs,
                Kernel kernel) {
  const Tensor whole = graph.tensors[taps.tensor];
  const uint32_t pad = *padOf(graph, taps.tensor);
  std::vector<int64_t> shape = whole.shape;
  shape[taps.dim] = count;
  const unsigned tensor = addTensor(graph, whole.name + ".tap" + std::to_string(offset), shape,
                                    whole.type, whole.laneDim);
  const unsigned loop = taps.producerLoop;
  kernel.name += ".tap" + std::to_string(offset);
  kernel.loops[loop].extent = count;
  forms::forEachAccess(kernel, [&](Access &access) {
    for (AffineIndex &index : access.index)
      for (auto &[l, c] : index.terms)
        if (l == loop) {
          index.offset += c * offset;
          c *= taps.step;
        }
  });
  Access &result = kernel.results[0].access;
  result.tensor = tensor;
  result.index[taps.dim] = forms::at(loop);
  std::vector<uint8_t> inside;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t element = taps.step * i + offset;
    inside.push_back(element >= 0 && element < whole.shape[taps.dim]);
  }
  if (std::count(inside.begin(), inside.end(), 0)) {
    const int64_t lanes = whole.shape[whole.laneDim];
    const unsigned mask = addTensor(graph, graph.tensors[tensor].name + ".inside", {count, lanes},
                                    ElementType::UInt8, 1, TensorRole::Constant);
    for (uint8_t is : inside)
      graph.tensors[mask].data.insert(graph.tensors[mask].data.end(), size_t(lanes), is);
    const unsigned at = unsigned(kernel.nodes.size());
    kernel.nodes.push_back({Node::Kind::Operand, unsigned(kernel.operands.size()), 0, {}, {}});
    kernel.operands.push_back({mask, {forms::at(loop), result.index[whole.laneDim]}, 0});
    kernel.nodes.push_back({Node::Kind::Immediate, 0, pad, {}, {}});
    kernel.nodes.push_back(
        {Node::Kind::Op, 0, 0, AluOp::SelectF32, {at, kernel.results[0].node, at + 1}});
    kernel.results[0].node = at + 2;
  }
  for (size_t t = 0; t < kernel.terms.size(); ++t)
    kernel.terms[t].macs = t ? 0 : macs;
  graph.kernels.push_back(std::move(kernel));
  return tensor;
}

void apply(KernelGraph &graph, const Taps &taps) {
  const Kernel producer = graph.kernels[taps.producer];
  const int64_t count = graph.kernels[taps.map].loops[taps.mapLoop].extent;
  int64_t macs = 0;
  for (const Term &term : producer.terms)
    macs += term.macs;
  const int64_t each = macs / int64_t(taps.offsets.size());
  std::map<int64_t, unsigned> tensors;
  const auto firstNew = unsigned(graph.kernels.size());
  for (int64_t offset : taps.offsets) {
    const bool isFirst = tensors.empty();
    tensors[offset] =
        addTap(graph, taps, offset, count,
               isFirst ? macs - each * (int64_t(taps.offsets.size()) - 1) : each, producer);
  }
  for (Access &operand : graph.kernels[taps.map].operands)
    if (operand.tensor == taps.tensor) {
      operand.tensor = tensors.at(operand.index[taps.dim].offset);
      operand.index[taps.dim] = forms::at(taps.mapLoop);
    }
  // The first of the new kernels in the place of the old one.
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [host, index] : graph.order) {
    order.push_back({host, index});
    if (!host && index == taps.producer)
      for (unsigned k = firstNew + 1; k < graph.kernels.size(); ++k)
        order.push_back({false, k - 1});
  }
  graph.kernels[taps.producer] = std::move(graph.kernels[firstNew]);
  graph.kernels.erase(graph.kernels.begin() + firstNew);
  graph.order = std::move(order);
}

double leastCost(const KernelGraph &graph, const Machine &machine,
                 const std::shared_ptr<CostCache> &cache) {
  const LayoutProblem problem(graph, machine, cache);
  return problem.graphCost(layoutSolvers().front().solve(problem, 0));
}

} // namespace

std::vector<std::string> splitTaps(KernelGraph &graph, const Machine &machine,
                                   const std::shared_ptr<CostCache> &cache) {
  std::vector<std::string> lines;
  std::optional<double> before;
  Uses uses(graph);
  for (unsigned t = 0, tensors = unsigned(graph.tensors.size()); t < tensors; ++t) {
    const std::optional<Taps> taps = tapsOf(graph, uses, t);
    if (!taps)
      continue;
    if (!before)
      before = leastCost(graph, machine, cache);
    KernelGraph split = graph;
    apply(split, *taps);
    const double after = leastCost(split, machine, cache);
    if (after >= *before)
      continue;
    lines.push_back(graph.tensors[t].name + ": one tensor for each of " +
                    std::to_string(taps->offsets.size()) + " neighbours");
    graph = std::move(split);
    uses = Uses(graph);
    before = after;
  }
  return lines;
}

} // namespace millrace::layouts
