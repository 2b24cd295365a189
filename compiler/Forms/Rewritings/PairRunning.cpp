// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/PairRunning.h"

#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/SplitBatches.h"
#include "compiler/Forms/Rewritings/UnrollRunning.h"

#include <algorithm>
#include <optional>

namespace millrace::forms {
namespace {

/// A reduction of what one operand reads, step by step along a dimension of its rows.
struct Reduction {
  unsigned node = 0;    ///< in fp32
  unsigned operand = 0; ///< that moves
  unsigned widened = 0; ///< the node that is reduced: the operand as fp32
  unsigned loop = 0;    ///< the running one, the innermost of several
  unsigned dim = 0;     ///< of the operand's tensor, that the loop moves
  unsigned lane = 0;    ///< the loop along the lanes
};

/// Whether the order in which the operation combines more than two numbers is free.
bool isAssociative(AluOp op) {
  return op == AluOp::AddF32 || op == AluOp::MaxF32 || op == AluOp::MinF32;
}

/// The loop that moves the lanes of the access, one by one, and nothing else of it.
std::optional<unsigned> laneLoop(const KernelGraph &graph, const Kernel &kernel,
                                 const Access &access) {
  const unsigned laneDim = graph.tensors[access.tensor].laneDim;
  const std::optional<unsigned> lane = onlyLoop(kernel, access.index[laneDim]);
  if (!lane || coefficient(access.index[laneDim], *lane) != 1)
    return std::nullopt;
  for (unsigned d = 0; d < access.index.size(); ++d)
    if (d != laneDim && coefficient(access.index[d], *lane))
      return std::nullopt;
  return lane;
}

std::optional<Reduction> reductionOf(const KernelGraph &graph, const Kernel &kernel) {
  Reduction found;
  unsigned reductions = 0;
  std::optional<unsigned> running;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n)
    if (kernel.nodes[n].kind == Node::Kind::Reduce)
      found.node = n, ++reductions;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind == LoopKind::Running && kernel.loops[l].extent > 1)
      running = l;
  if (!kernel.terms.empty() || reductions != 1 || !running || kernel.results.size() != 1 ||
      !isAssociative(kernel.nodes[found.node].op))
    return std::nullopt;
  found.loop = *running;
  found.widened = kernel.nodes[found.node].args[0];
  const Node *node = &kernel.nodes[found.widened];
  const bool isNarrow = node->kind == Node::Kind::Op;
  if (isNarrow && node->args.size() == 1)
    node = &kernel.nodes[node->args[0]];
  if (node->kind != Node::Kind::Operand)
    return std::nullopt;
  found.operand = node->index;
  const Access &access = kernel.operands[found.operand];
  const Tensor &tensor = graph.tensors[access.tensor];
  if ((isNarrow ? widenToF32(tensor.type) != kernel.nodes[found.widened].op
                : tensor.type != ElementType::Fp32) ||
      tensor.role == TensorRole::Constant || access.lookup)
    return std::nullopt;
  for (const Access &other : kernel.operands)
    if (&other != &access && usesLoop(other, found.loop))
      return std::nullopt;
  for (const AffineIndex &index : access.index)
    if (const auto [low, high] = rangeOf(kernel, index);
        low < 0 || high >= tensor.shape[size_t(&index - access.index.data())])
      return std::nullopt; // padded
  unsigned moved = 0;
  for (unsigned d = 0; d < access.index.size(); ++d)
    if (coefficient(access.index[d], found.loop))
      found.dim = d, ++moved;
  const std::optional<unsigned> lane = laneLoop(graph, kernel, access);
  if (moved != 1 || found.dim == tensor.laneDim || !lane ||
      laneLoop(graph, kernel, kernel.results[0].access) != lane)
    return std::nullopt;
  found.lane = *lane;
  return found;
}

/// How many neighbours to combine at a time; 1 where that saves less than a further step takes.
/// `room`: rows of memory for the copies that they are read from.
int64_t neighboursOf(const KernelGraph &graph, const Kernel &kernel, const Reduction &of,
                     const Machine &machine, int64_t room) {
  constexpr double kStep = 100; // cycles from reading an operand to reading the result
  // Copies that are read together lie in slices of their own, and leave as many to what is written.
  const int64_t mostSlices = machine.memory.slices / 2;
  const Tensor &tensor = graph.tensors[kernel.operands[of.operand].tensor];
  const int64_t steps = kernel.loops[of.loop].extent, vector = machine.lanes(),
                bytes = byteWidth(tensor.type), lanes = kernel.loops[of.lane].extent;
  int64_t rows = (lanes + vector - 1) / vector;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (l != of.lane)
      rows *= kernel.loops[l].extent;
  int64_t held = 1;
  for (unsigned d = 0; d < tensor.shape.size(); ++d)
    held *= d == tensor.laneDim ? (tensor.shape[d] + vector - 1) / vector : tensor.shape[d];
  const int64_t operations = bytes < 4 ? 2 : 1; // for each: to widen, to combine
  const double interval = stepCycles(graph, kernel, kernel.nodes[of.node], machine);
  const auto alusFor = [&](int64_t each) { return each * operations - 1; };
  const auto cyclesOf = [&](int64_t each) {
    const double running = double(rows / each) * interval / kHemispheres / machine.pes();
    const bool isTwice = kHemispheres * alusFor(each) <= int64_t(machine.vxm.alus);
    return each == 1
               ? running
               : running + double(rows / each) / (isTwice ? kHemispheres : 1) / machine.pes() +
                     kStep;
  };
  int64_t best = 1;
  for (int64_t each = 2; each <= steps && each * bytes <= mostSlices; ++each)
    if (steps % each == 0 && alusFor(each) <= int64_t(machine.vxm.alus) &&
        held * bytes * each <= room && cyclesOf(each) < cyclesOf(best))
      best = each;
  return best;
}

/// Combines `each` neighbours into a tensor of its own, and reduces that.
void pair(KernelGraph &graph, unsigned number, const Reduction &of, int64_t each) {
  const Kernel kernel = graph.kernels[number];
  const AluOp combine = kernel.nodes[of.node].op;
  const Access from = kernel.operands[of.operand];
  KernelBuilder map(graph, kernel);
  map.kernel().loops[of.loop].extent /= each;
  for (Loop &loop : map.kernel().loops)
    loop.kind = LoopKind::Parallel;
  std::vector<unsigned> level;
  const int64_t step = coefficient(from.index[of.dim], of.loop);
  for (int64_t k = 0; k < each; ++k) {
    Access access = from;
    AffineIndex &index = access.index[of.dim];
    index.offset += k * step;
    for (auto &[loop, moves] : index.terms)
      moves *= loop == of.loop ? each : 1;
    level.push_back(map.load(access));
  }
  for (size_t size = level.size(); size > 1; size = (size + 1) / 2) {
    for (size_t k = 0; k < size / 2; ++k)
      level[k] = map.op(combine, {level[2 * k], level[2 * k + 1]});
    if (size % 2)
      level[size / 2] = level[size - 1];
  }
  Access part{0, {}, 0};
  std::vector<int64_t> shape;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (l != of.lane) {
      part.index.push_back(at(l));
      shape.push_back(map.kernel().loops[l].extent);
    }
  part.index.push_back(at(of.lane));
  shape.push_back(kernel.loops[of.lane].extent);
  part.tensor = addTensor(graph, kernel.name + ".parts", shape, ElementType::Fp32,
                          unsigned(shape.size() - 1));
  graph.tensors[part.tensor].unbounded = graph.tensors[from.tensor].unbounded;
  map.store(level.front(), part);
  map.finish(kernel.name, kernel.provenance);
  KernelBuilder rest(graph, kernel);
  rest.kernel().loops[of.loop].extent /= each;
  rest.continueFrom(kernel, of.node, rest.reduce(combine, rest.load(part)));
  graph.kernels[number] = std::move(rest.kernel());
}

} // namespace

unsigned pairRunning(KernelGraph &graph, const Machine &machine) {
  constexpr int64_t kMostShare = 8, kAtOnce = 2; // of all rows; tensors with copies at a time
  const int64_t all = int64_t(kHemispheres) * machine.memory.slices * machine.rowsPerSlice(),
                room = std::min(all / kMostShare, roomBeside(graph, machine) / kAtOnce);
  unsigned maps = 0;
  const std::vector<std::pair<bool, unsigned>> order = std::move(graph.order);
  graph.order.clear();
  for (auto [isHost, number] : order) {
    for (bool isShorter = !isHost; isShorter;) {
      const std::optional<Reduction> of = reductionOf(graph, graph.kernels[number]);
      const int64_t each = of ? neighboursOf(graph, graph.kernels[number], *of, machine, room) : 1;
      isShorter = each > 1;
      if (isShorter) {
        pair(graph, number, *of, each); // its map goes before it
        ++maps;
      }
    }
    graph.order.push_back({isHost, number});
  }
  return maps;
}

} // namespace millrace::forms
