// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/InterleaveRunning.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"
#include "compiler/Forms/Rewritings/UnrollRunning.h"

#include <algorithm>
#include <optional>

namespace millrace::forms {
namespace {

/// A reduction of a contraction over one running loop.
struct Reduction {
  unsigned node = 0, loop = 0;
};

std::optional<Reduction> reductionOf(const KernelGraph &graph, const Kernel &kernel) {
  std::optional<unsigned> node, loop;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n)
    if (kernel.nodes[n].kind == Node::Kind::Reduce) {
      if (node)
        return std::nullopt;
      node = n;
    }
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind == LoopKind::Running && kernel.loops[l].extent > 1) {
      if (loop)
        return std::nullopt;
      loop = l;
    }
  if (kernel.terms.empty() || !node || !loop || looksUp(kernel))
    return std::nullopt;
  const auto leaves = [&](const Access &access) {
    const Tensor &tensor = graph.tensors[access.tensor];
    for (unsigned d = 0; d < access.index.size(); ++d)
      if (coefficient(access.index[d], *loop))
        if (const auto [low, high] = rangeOf(kernel, access.index[d]);
            low < 0 || high >= tensor.shape[d])
          return true;
    return false;
  };
  if (std::any_of(kernel.terms.begin(), kernel.terms.end(),
                  [&](const Term &t) { return leaves(t.a) || usesLoop(t.w, *loop); }) ||
      std::any_of(kernel.operands.begin(), kernel.operands.end(), leaves))
    return std::nullopt;
  return Reduction{*node, *loop};
}

/// The most blocks that the accumulators hold beside each other.
Blocks blocksOf(const Machine &machine, AluOp op, int64_t steps) {
  Blocks found{1, steps, steps};
  for (int64_t n = 2;
       n <= std::min<int64_t>(machine.vxm.runningAccumulators, stepInterval(machine, op)); ++n)
    for (int64_t each = (steps + n - 1) / n; each < steps; ++each) {
      const bool overlaps = n * each > steps;
      if (n * each > int64_t(machine.mxm.accumulatorRows) || (overlaps && !isIdempotent(op)) ||
          each >= found.steps)
        break;
      if ((steps - each) % (n - 1) == 0) {
        found = {n, each, (steps - each) / (n - 1)};
        break;
      }
    }
  return found;
}

/// Do the cycles that it saves pay for the map?
bool pays(const KernelGraph &graph, const Kernel &kernel, const Reduction &of, const Blocks &blocks,
          const Machine &machine) {
  constexpr double kMap = 200; // cycles from the last step to the combined value
  const Access &result = kernel.results.front().access;
  const AffineIndex &lanes = result.index[graph.tensors[result.tensor].laneDim];
  const MxmFormatSpec *format =
      machine.mxm.format(graph.tensors[kernel.terms.front().a.tensor].type);
  double rows = 1, alongLanes = 1;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind == LoopKind::Parallel)
      (coefficient(lanes, l) ? alongLanes : rows) *= double(kernel.loops[l].extent);
  rows *= double((int64_t(alongLanes) + machine.lanes() - 1) / machine.lanes());
  const double interval = double(stepInterval(machine, kernel.nodes[of.node].op)),
               workers = double(kHemispheres * machine.pes() *
                                std::max(1u, machine.mxm.planes / (format ? format->planes : 1)));
  const double now = double(kernel.loops[of.loop].extent) * interval,
               then = double(blocks.steps) * std::max(interval, double(blocks.count));
  return rows / workers * (now - then) > kMap;
}

} // namespace

unsigned interleaveRunning(KernelGraph &graph, const Machine &machine) {
  unsigned dealt = 0;
  const std::vector<std::pair<bool, unsigned>> order = std::move(graph.order);
  graph.order.clear();
  for (auto [isHost, number] : order) {
    graph.order.push_back({isHost, number});
    if (isHost)
      continue;
    const Kernel kernel = graph.kernels[number];
    const std::optional<Reduction> of = reductionOf(graph, kernel);
    if (!of)
      continue;
    const AluOp op = kernel.nodes[of->node].op;
    const Blocks blocks = blocksOf(machine, op, kernel.loops[of->loop].extent);
    if (blocks.count == 1 || !pays(graph, kernel, *of, blocks, machine))
      continue;
    std::optional<Access> part = addBetween(graph, kernel, of->node);
    if (!part)
      continue;
    Tensor &tensor = graph.tensors[part->tensor]; // a value of each block
    tensor.shape.insert(tensor.shape.begin(), blocks.count);
    ++tensor.laneDim;
    part->index.insert(part->index.begin(), at(unsigned(kernel.loops.size())));
    Kernel first = upTo(kernel, of->node, *part);
    first.loops[of->loop].extent = blocks.steps;
    first.loops.push_back({blocks.count, LoopKind::Parallel});
    const auto deal = [&](Access &access) {
      for (AffineIndex &index : access.index)
        if (const int64_t step = coefficient(index, of->loop))
          index.terms.push_back({unsigned(kernel.loops.size()), step * blocks.apart});
    };
    for (Term &term : first.terms)
      deal(term.a);
    for (Access &operand : first.operands)
      deal(operand);
    KernelBuilder rest(graph, kernel);
    for (Loop &l : rest.kernel().loops)
      if (l.kind != LoopKind::Parallel)
        l = {1, LoopKind::Parallel};
    std::optional<unsigned> all;
    for (int64_t block = 0; block < blocks.count; ++block) {
      Access its = *part;
      its.index.front() = fixed(block);
      const unsigned value = rest.operand(its);
      all = all ? rest.op(op, {*all, value}) : value;
    }
    rest.continueFrom(kernel, of->node, *all);
    graph.kernels[number] = std::move(first);
    graph.kernels[number].name += ".part";
    graph.order.push_back({false, unsigned(graph.kernels.size())});
    graph.kernels.push_back(std::move(rest.kernel()));
    ++dealt;
  }
  return dealt;
}

} // namespace millrace::forms
