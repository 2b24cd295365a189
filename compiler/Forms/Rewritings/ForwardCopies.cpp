// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/ForwardCopies.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Moves.h"
#include "compiler/Forms/Uses.h"

#include <algorithm>
#include <optional>
#include <set>

namespace millrace::forms {

namespace {

/// Does the kernel store what it reads, bit by bit?
bool keepsBits(const KernelGraph &graph, const Kernel &kernel) {
  const ElementType from = graph.tensors[kernel.operands[0].tensor].type,
                    to = graph.tensors[kernel.results[0].access.tensor].type;
  auto isRead = [&](unsigned n) { return kernel.nodes[n].kind == Node::Kind::Operand; };
  auto isOp = [&](unsigned n, AluOp op) {
    return kernel.nodes[n].kind == Node::Kind::Op && kernel.nodes[n].op == op &&
           kernel.nodes[n].args.size() == 1;
  };
  const unsigned stored = kernel.results[0].node;
  if (from != to)
    return false;
  if (isRead(stored))
    return true;
  if (from != ElementType::Fp16 && from != ElementType::Bf16)
    return false;
  if (!isOp(stored, narrowFromF32(to)))
    return false;
  const unsigned widened = kernel.nodes[stored].args[0];
  return isOp(widened, widenToF32(from)) && isRead(kernel.nodes[widened].args[0]);
}

/// The first lane of the source, if the kernel copies all rows of a run of lanes of one tensor to
/// all of another.
std::optional<int64_t> copiedFrom(const KernelGraph &graph, const Kernel &kernel) {
  if (!kernel.terms.empty() || kernel.results.size() != 1 || kernel.operands.size() != 1 ||
      kernel.operands[0].lookup || !keepsBits(graph, kernel))
    return std::nullopt;
  const Access &read = kernel.operands[0], &write = kernel.results[0].access;
  const Tensor &source = graph.tensors[read.tensor], &copy = graph.tensors[write.tensor];
  if (source.role != TensorRole::Intermediate || copy.role != TensorRole::Intermediate ||
      source.shape.size() != copy.shape.size() || source.laneDim != copy.laneDim)
    return std::nullopt;
  std::set<unsigned> loops;
  for (unsigned d = 0; d < copy.shape.size(); ++d) {
    const AffineIndex &from = read.index[d], &to = write.index[d];
    const std::optional<unsigned> loop = wholeLoop(kernel, to, copy.shape[d], LoopKind::Parallel);
    if (copy.shape[d] > 1 ? !loop || !loops.insert(*loop).second : to.offset != 0)
      return std::nullopt;
    if (copy.shape[d] > 1 && (onlyLoop(kernel, from) != loop || coefficient(from, *loop) != 1))
      return std::nullopt;
    if (copy.shape[d] == 1 && onlyLoop(kernel, from))
      return std::nullopt;
    if (d == copy.laneDim ? from.offset < 0 || from.offset + copy.shape[d] > source.shape[d]
                          : from.offset != 0 || source.shape[d] != copy.shape[d])
      return std::nullopt;
  }
  return read.index[copy.laneDim].offset;
}

/// Can all accesses of the kernel to the copy go to the tensor with other lanes beside it?
bool canFollow(const KernelGraph &graph, const Kernel &kernel, unsigned copy, bool isWider) {
  const Tensor &tensor = graph.tensors[copy];
  auto inside = [&](const Access &access) {
    const auto [low, high] = rangeOf(kernel, access.index[tensor.laneDim]);
    return low >= 0 && high < tensor.shape[tensor.laneDim];
  };
  for (const Term &term : kernel.terms)
    if ((term.w.tensor == copy && isWider) || (term.a.tensor == copy && !inside(term.a)))
      return false;
  return std::all_of(kernel.operands.begin(), kernel.operands.end(), [&](const Access &operand) {
    return !(operand.lookup && (operand.tensor == copy || operand.lookup->tensor == copy)) &&
           (operand.tensor != copy || inside(operand));
  });
}

} // namespace

unsigned forwardCopies(KernelGraph &graph) {
  std::set<unsigned> removed; ///< kernels
  for (auto [host, index] : graph.order) {
    if (host || graph.kernels[index].terms.size() > 1)
      continue;
    const Kernel kernel = asMap(graph, graph.kernels[index]);
    const std::optional<int64_t> from = copiedFrom(graph, kernel);
    if (!from)
      continue;
    const Uses uses(graph);
    const unsigned source = kernel.operands[0].tensor, copy = kernel.results[0].access.tensor,
                   laneDim = graph.tensors[copy].laneDim;
    const bool isWider = graph.tensors[source].shape[laneDim] != graph.tensors[copy].shape[laneDim];
    if (uses.onHost[copy] || uses.writers[copy].size() != 1 || uses.readers[copy].empty() ||
        !std::all_of(uses.readers[copy].begin(), uses.readers[copy].end(),
                     [&](unsigned k) { return canFollow(graph, graph.kernels[k], copy, isWider); }))
      continue;
    for (unsigned k : uses.readers[copy])
      forEachAccess(graph.kernels[k], [&](Access &access) {
        if (access.tensor != copy)
          return;
        access.tensor = source;
        access.index[laneDim].offset += *from;
      });
    removed.insert(index);
  }
  std::vector<Kernel> kernels;
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [host, index] : graph.order) {
    if (!host && removed.contains(index))
      continue;
    order.push_back({host, host ? index : unsigned(kernels.size())});
    if (!host)
      kernels.push_back(std::move(graph.kernels[index]));
  }
  graph.kernels = std::move(kernels);
  graph.order = std::move(order);
  return unsigned(removed.size());
}

} // namespace millrace::forms
