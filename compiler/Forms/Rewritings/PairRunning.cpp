// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/PairRunning.h"

#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/SplitBatches.h"
#include "compiler/Forms/Rewritings/UnrollRunning.h"

#include "arch/isa/semantics/Alu.h"

#include <algorithm>
#include <array>
#include <optional>

namespace millrace::forms {
namespace {

/// A reduction step by step along rows, of what operands hold or of what is made of that.
struct Reduction {
  unsigned node = 0;            ///< in fp32
  unsigned value = 0;           ///< the node that is reduced
  std::vector<unsigned> moving; ///< the operands that the loop moves
  bool addsNothing = false;     ///< where those are zeros
  unsigned loop = 0;            ///< the running one, the innermost of several
  unsigned lane = 0;            ///< the loop along the lanes
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

/// Is the value of a step of which all that is read is zeros zero, too?
bool isZeroOfZeros(const Kernel &kernel, const Reduction &of) {
  std::vector<uint32_t> bits(of.value + 1, 0);
  for (unsigned n : nodesOf(kernel, of.value)) {
    const Node &node = kernel.nodes[n];
    if (node.kind == Node::Kind::Immediate)
      bits[n] = node.bits;
    else if (node.kind == Node::Kind::Operand && !usesLoop(kernel.operands[node.index], of.loop))
      return false; // who knows what it is
    std::array<uint32_t, 3> args{};
    for (size_t i = 0; i < node.args.size(); ++i)
      args[i] = bits[node.args[i]];
    if (node.kind == Node::Kind::Op)
      bits[n] = semantics::applyAlu(node.op, args[0], args[1], args[2]);
  }
  return (bits[of.value] & 0x7FFFFFFF) == 0;
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
  found.value = kernel.nodes[found.node].args[0];
  const std::optional<unsigned> lane = laneLoop(graph, kernel, kernel.results[0].access);
  if (!lane)
    return std::nullopt;
  found.lane = *lane;
  for (unsigned n : nodesOf(kernel, found.value)) {
    const Node &node = kernel.nodes[n];
    if (node.kind != Node::Kind::Operand || !usesLoop(kernel.operands[node.index], found.loop))
      continue;
    const Access &access = kernel.operands[node.index];
    const Tensor &tensor = graph.tensors[access.tensor];
    if (tensor.role == TensorRole::Constant || access.lookup ||
        !staysInside(graph, kernel, access) || laneLoop(graph, kernel, access) != lane)
      return std::nullopt;
    found.moving.push_back(node.index);
  }
  if (found.moving.empty())
    return std::nullopt;
  found.addsNothing = isZeroOfZeros(kernel, found);
  return found;
}

/// Blocks of `each` steps that are all steps of the loop: the last one may reach beyond the end of
/// the tensors, where a sum adds 0, or overlap the one before where that changes nothing. None if
/// there are none.
std::optional<Blocks> blocksOf(AluOp op, int64_t steps, int64_t each, bool endsWithTensors) {
  const int64_t count = (steps + each - 1) / each;
  if (steps % each == 0 || (op == AluOp::AddF32 && endsWithTensors))
    return Blocks{count, each, each};
  if (isIdempotent(op) && (steps - each) % (count - 1) == 0)
    return Blocks{count, each, (steps - each) / (count - 1)};
  return std::nullopt;
}

/// Does the index that the loop moves, and no other, go up to the end of the tensor?
bool endsWith(const KernelGraph &graph, const Kernel &kernel, unsigned operand, unsigned loop) {
  const Access &access = kernel.operands[operand];
  return std::all_of(access.index.begin(), access.index.end(), [&](const AffineIndex &index) {
    const int64_t step = coefficient(index, loop),
                  extent = graph.tensors[access.tensor].shape[size_t(&index - &access.index[0])];
    return step == 0 || (step > 0 && onlyLoop(kernel, index) == loop &&
                         index.offset + step * kernel.loops[loop].extent >= extent);
  });
}

/// A map of the steps of each block, combined, and the node that holds them.
std::pair<KernelBuilder, unsigned> combined(KernelGraph &graph, const Kernel &kernel,
                                            const Reduction &of, const Blocks &blocks) {
  KernelBuilder map(graph, kernel);
  map.kernel().loops[of.loop].extent = blocks.count;
  for (Loop &loop : map.kernel().loops)
    loop.kind = LoopKind::Parallel;
  std::vector<unsigned> level;
  for (int64_t k = 0; k < blocks.steps; ++k)
    level.push_back(map.computeAt(kernel, of.value, [&](Access access) {
      if (usesLoop(access, of.loop))
        access.pad = 0; // of a sum that reaches beyond the end
      for (AffineIndex &index : access.index) {
        index.offset += k * coefficient(index, of.loop);
        for (auto &[loop, moves] : index.terms)
          moves *= loop == of.loop ? blocks.apart : 1;
      }
      return access;
    }));
  for (size_t size = level.size(); size > 1; size = (size + 1) / 2) {
    for (size_t k = 0; k < size / 2; ++k)
      level[k] = map.op(kernel.nodes[of.node].op, {level[2 * k], level[2 * k + 1]});
    if (size % 2)
      level[size / 2] = level[size - 1];
  }
  return {std::move(map), level.front()};
}

/// Which neighbours to combine at a time; none where that saves less than a further step takes.
/// `room`: rows of memory for the copies that they are read from.
std::optional<Blocks> neighboursOf(KernelGraph &graph, const Kernel &kernel, const Reduction &of,
                                   const Machine &machine, int64_t room) {
  constexpr double kStep = 100; // cycles from reading an operand to reading the result
  // Copies that are read together lie in slices of their own, and leave as many to what is written.
  const int64_t mostSlices = machine.memory.slices / 2;
  const int64_t steps = kernel.loops[of.loop].extent, vector = machine.lanes(),
                lanes = kernel.loops[of.lane].extent;
  int64_t rows = (lanes + vector - 1) / vector;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (l != of.lane && l != of.loop)
      rows *= kernel.loops[l].extent;
  int64_t bytes = 0, held = 0; // of a step; rows of all steps
  for (unsigned operand : of.moving) {
    const Tensor &tensor = graph.tensors[kernel.operands[operand].tensor];
    const int64_t all = tensor.shape[tensor.laneDim], width = byteWidth(tensor.type);
    bytes += width;
    held += elementCount(tensor) / all * ((all + vector - 1) / vector) * width;
  }
  const bool endsWithTensors =
      of.addsNothing && std::all_of(of.moving.begin(), of.moving.end(), [&](unsigned operand) {
        return endsWith(graph, kernel, operand, of.loop);
      });
  const double interval = stepCycles(graph, kernel, kernel.nodes[of.node], machine);
  const auto alusFor = [&](const Blocks &blocks) {
    auto [map, value] = combined(graph, kernel, of, blocks);
    map.storeBits(value, kernel.results.front().access);
    const EpilogueNeeds needs = epilogueNeeds(map.kernel(), graph, machine);
    return needs.fit(machine) ? needs.alus : machine.vxm.alus + 1;
  };
  const auto cyclesOf = [&](const Blocks &blocks) {
    const auto left = double(rows * blocks.count);
    const double running = left * interval / kHemispheres / machine.pes();
    const bool isTwice = kHemispheres * alusFor(blocks) <= machine.vxm.alus;
    return running + left / (isTwice ? kHemispheres : 1) / machine.pes() + kStep;
  };
  double least = double(rows * steps) * interval / kHemispheres / machine.pes();
  std::optional<Blocks> best;
  for (int64_t each = 2; each <= steps && each * bytes <= mostSlices && held * each <= room; ++each)
    if (const auto blocks = blocksOf(kernel.nodes[of.node].op, steps, each, endsWithTensors)) {
      if (alusFor(*blocks) > machine.vxm.alus)
        break;
      if (const double cycles = cyclesOf(*blocks); cycles < least) {
        best = blocks;
        least = cycles;
      }
    }
  return best;
}

/// Combines the steps of each block, and reduces that.
void pair(KernelGraph &graph, unsigned number, const Reduction &of, const Blocks &blocks) {
  const Kernel kernel = graph.kernels[number];
  auto [map, value] = combined(graph, kernel, of, blocks);
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
  graph.tensors[part.tensor].unbounded = true; // a sum may overflow
  map.store(value, part);
  map.finish(kernel.name, kernel.provenance);
  KernelBuilder rest(graph, kernel);
  rest.kernel().loops[of.loop].extent = blocks.count;
  rest.continueFrom(kernel, of.node, rest.reduce(kernel.nodes[of.node].op, rest.load(part)));
  graph.kernels[number] = std::move(rest.kernel());
}

} // namespace

bool canPair(const KernelGraph &graph, const Kernel &kernel) {
  return reductionOf(graph, kernel).has_value();
}

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
      const std::optional<Blocks> blocks =
          of ? neighboursOf(graph, graph.kernels[number], *of, machine, room) : std::nullopt;
      isShorter = blocks.has_value();
      if (isShorter) {
        pair(graph, number, *of, *blocks); // its map goes before it
        ++maps;
      }
    }
    graph.order.push_back({isHost, number});
  }
  return maps;
}

} // namespace millrace::forms
