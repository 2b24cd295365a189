// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/ClipRunning.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace millrace::forms {
namespace {

/// Is the pad of the operand below `node` the neutral element of `op`? Only a widening may lie
/// between.
bool padsNeutrally(const KernelGraph &graph, const Kernel &kernel, AluOp op, unsigned node,
                   unsigned &operand) {
  const Node *leaf = &kernel.nodes[node];
  if (leaf->kind == Node::Kind::Op && leaf->args.size() == 1)
    leaf = &kernel.nodes[leaf->args[0]];
  if (leaf->kind != Node::Kind::Operand)
    return false;
  operand = leaf->index;
  const Access &access = kernel.operands[operand];
  const ElementType type = graph.tensors[access.tensor].type;
  switch (op) {
  case AluOp::AddF32:
  case AluOp::AddI32:
    return access.pad == 0;
  case AluOp::MaxF32:
    return byteWidth(type) > 1 && std::isinf(decode(type, access.pad)) &&
           decode(type, access.pad) < 0;
  default:
    return false;
  }
}

/// The loop's range [from, to) inside the tensor, if only this loop moves the dimension.
std::optional<std::pair<int64_t, int64_t>>
rangeInside(const KernelGraph &graph, const Kernel &kernel, const Access &access, unsigned loop) {
  int64_t from = 0, to = kernel.loops[loop].extent;
  for (size_t d = 0; d < access.index.size(); ++d) {
    const AffineIndex &index = access.index[d];
    const bool moves = std::any_of(index.terms.begin(), index.terms.end(),
                                   [&](auto &t) { return t.first == loop; });
    if (!moves)
      continue;
    if (index.terms.size() != 1 || index.terms[0].second != 1)
      return std::nullopt;
    from = std::max(from, -index.offset);
    to = std::min(to, graph.tensors[access.tensor].shape[d] - index.offset);
  }
  return std::pair(from, to);
}

/// A reduction over one row gives that row.
void dropReductions(Kernel &kernel) {
  for (const Loop &loop : kernel.loops)
    if (loop.kind == LoopKind::Running && loop.extent > 1)
      return;
  std::vector<unsigned> number;
  std::vector<Node> nodes;
  for (Node node : kernel.nodes) {
    for (unsigned &arg : node.args)
      arg = number[arg];
    if (node.kind == Node::Kind::Reduce) {
      number.push_back(node.args[0]);
      continue;
    }
    number.push_back(unsigned(nodes.size()));
    nodes.push_back(std::move(node));
  }
  for (Result &result : kernel.results)
    result.node = number[result.node];
  kernel.nodes = std::move(nodes);
  for (Loop &loop : kernel.loops)
    if (loop.kind == LoopKind::Running)
      loop.kind = LoopKind::Parallel;
}

unsigned clip(KernelGraph &graph, Kernel &kernel) {
  if (!kernel.terms.empty() || looksUp(kernel))
    return 0;
  std::vector<unsigned> reduced; // operands below reductions
  bool neutral = true;
  for (const Node &node : kernel.nodes) {
    unsigned operand = 0;
    if (node.kind != Node::Kind::Reduce)
      continue;
    neutral = neutral && padsNeutrally(graph, kernel, node.op, node.args[0], operand);
    reduced.push_back(operand);
  }
  if (!neutral || reduced.size() != 1)
    return 0;
  unsigned cut = 0;
  for (unsigned l = 0; l < kernel.loops.size(); ++l) {
    if (kernel.loops[l].kind != LoopKind::Running)
      continue;
    int64_t from = 0, to = kernel.loops[l].extent;
    bool known = true;
    for (unsigned o = 0; o < kernel.operands.size() && known; ++o) {
      if (!usesLoop(kernel.operands[o], l))
        continue;
      auto range = rangeInside(graph, kernel, kernel.operands[o], l);
      known = range && std::count(reduced.begin(), reduced.end(), o);
      if (known) {
        from = std::max(from, range->first);
        to = std::min(to, range->second);
      }
    }
    // All operands of one loop must leave the tensor together, or a cut would drop points of
    // another.
    if (!known || from >= to || (from == 0 && to == kernel.loops[l].extent))
      continue;
    kernel.loops[l].extent = to - from;
    for (Access &access : kernel.operands)
      for (AffineIndex &index : access.index)
        for (auto [loop, coefficient] : index.terms)
          if (loop == l)
            index.offset += from * coefficient;
    ++cut;
  }
  return cut;
}

} // namespace

unsigned clipRunning(KernelGraph &graph) {
  unsigned cut = 0;
  for (Kernel &kernel : graph.kernels) {
    cut += clip(graph, kernel);
    dropReductions(kernel);
  }
  return cut;
}

} // namespace millrace::forms
