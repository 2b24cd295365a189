// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/HoistRows.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Simplify.h"

#include <algorithm>
#include <set>

namespace millrace::forms {
namespace {

/// A node that depends on one operand alone, which no row of the results moves.
struct Fixed {
  unsigned node = 0, operand = 0;
};

std::optional<Fixed> fixedOf(const KernelGraph &graph, const Kernel &kernel,
                             const Machine &machine) {
  if (!kernel.terms.empty())
    return std::nullopt;
  const Access &result = kernel.results.front().access;
  const Tensor &tensor = graph.tensors[result.tensor];
  const AffineIndex &lanes = result.index[tensor.laneDim];
  double rows = double((tensor.shape[tensor.laneDim] + machine.lanes() - 1) / machine.lanes());
  for (unsigned l = 0; l < kernel.loops.size(); ++l) {
    if (kernel.loops[l].kind != LoopKind::Parallel)
      return std::nullopt;
    if (!coefficient(lanes, l))
      rows *= double(kernel.loops[l].extent);
  }
  auto isFixed = [&](const Access &access) {
    const Tensor &its = graph.tensors[access.tensor];
    if (its.role == TensorRole::Constant || access.lookup)
      return false;
    for (unsigned d = 0; d < access.index.size(); ++d)
      if (d == its.laneDim) {
        const std::optional<unsigned> loop = onlyLoop(kernel, access.index[d]);
        if (!loop || coefficient(lanes, *loop) != 1 ||
            wholeLoop(kernel, access.index[d], its.shape[d], LoopKind::Parallel) != loop)
          return false;
      } else if (access.index[d].offset || its.shape[d] != 1) {
        return false;
      }
    return true;
  };
  // Per node: the operand that it depends on, and operations up to it.
  std::vector<std::optional<unsigned>> from(kernel.nodes.size());
  std::vector<std::set<unsigned>> operations(kernel.nodes.size());
  std::optional<Fixed> best;
  size_t most = 1;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
    const Node &node = kernel.nodes[n];
    if (node.kind == Node::Kind::Operand && isFixed(kernel.operands[node.index]))
      from[n] = node.index;
    if (node.kind != Node::Kind::Op)
      continue;
    bool alone = true;
    for (unsigned a : node.args) {
      if (kernel.nodes[a].kind == Node::Kind::Immediate)
        continue;
      alone = alone && from[a] && (!from[n] || from[n] == from[a]);
      from[n] = from[a];
      operations[n].insert(operations[a].begin(), operations[a].end());
    }
    if (!alone || !from[n]) {
      from[n].reset();
      continue;
    }
    operations[n].insert(n);
    const bool isStored = std::any_of(kernel.results.begin(), kernel.results.end(),
                                      [&](const Result &r) { return r.node == n; });
    if (!isStored && operations[n].size() > most)
      most = operations[n].size(), best = Fixed{n, *from[n]};
  }
  constexpr double kKernel = 200; // cycles that another kernel takes at most
  return best && rows * double(most) / machine.vxm.alus / machine.pes() > kKernel ? best
                                                                                  : std::nullopt;
}

void hoist(KernelGraph &graph, unsigned index, const Fixed &fixed) {
  const Kernel kernel = graph.kernels[index];
  const Access from = kernel.operands[fixed.operand];
  const Tensor source = graph.tensors[from.tensor];
  const std::string name = kernel.name + ".fixed";
  const unsigned tensor = addTensor(graph, name, source.shape, ElementType::Fp32, source.laneDim);
  KernelBuilder build(graph);
  std::vector<AffineIndex> point;
  for (int64_t extent : source.shape)
    point.push_back(at(build.loop(extent)));
  std::vector<unsigned> number(kernel.nodes.size(), 0);
  for (unsigned n = 0; n <= fixed.node; ++n) {
    const Node &node = kernel.nodes[n];
    if (node.kind == Node::Kind::Operand && node.index == fixed.operand)
      number[n] = build.operand({from.tensor, point, from.pad});
    else if (node.kind == Node::Kind::Immediate)
      number[n] = build.immediate(node.bits);
  }
  std::vector<bool> needed(kernel.nodes.size(), false);
  needed[fixed.node] = true;
  for (unsigned n = fixed.node + 1; n-- > 0;)
    if (needed[n])
      for (unsigned a : kernel.nodes[n].args)
        needed[a] = true;
  for (unsigned n = 0; n <= fixed.node; ++n) {
    const Node &node = kernel.nodes[n];
    if (!needed[n] || node.kind != Node::Kind::Op)
      continue;
    std::vector<unsigned> args;
    for (unsigned a : node.args)
      args.push_back(number[a]);
    number[n] = build.op(node.op, args);
  }
  build.storeBits(number[fixed.node], {tensor, point, 0});
  build.finish(name, kernel.provenance);
  Kernel &rest = graph.kernels[index];
  rest.nodes[fixed.node] = {Node::Kind::Operand, unsigned(rest.operands.size()), 0, {}, {}};
  rest.operands.push_back({tensor, from.index, 0});
  dropDeadNodes(rest);
}

} // namespace

unsigned hoistRows(KernelGraph &graph, const Machine &machine) {
  unsigned hoisted = 0;
  const std::vector<std::pair<bool, unsigned>> order = std::move(graph.order);
  graph.order.clear();
  for (auto [isHost, index] : order) {
    if (!isHost)
      if (const std::optional<Fixed> fixed = fixedOf(graph, graph.kernels[index], machine)) {
        hoist(graph, index, *fixed); // goes before it
        ++hoisted;
      }
    graph.order.push_back({isHost, index});
  }
  return hoisted;
}

} // namespace millrace::forms
