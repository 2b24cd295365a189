// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/SplitEpilogues.h"

#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/StreamBias.h"
#include "compiler/Forms/Simplify.h"

#include "arch/spec/Facts.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

namespace millrace::forms {
namespace {

bool isOperation(const Node &n) { return n.kind == Node::Kind::Op || n.kind == Node::Kind::Reduce; }

/// An operand is widened and scaled; more is rather stored.
constexpr unsigned kMostRepeated = 2;

/// Operands and immediates can be had again, and what so many operations in a row make of them.
bool canBeHadAgain(const Kernel &kernel, unsigned n, unsigned repeated) {
  const Node &node = kernel.nodes[n];
  if (node.kind == Node::Kind::Operand || node.kind == Node::Kind::Immediate)
    return true;
  return repeated > 0 && node.kind == Node::Kind::Op &&
         std::all_of(node.args.begin(), node.args.end(),
                     [&](unsigned a) { return canBeHadAgain(kernel, a, repeated - 1); });
}

/// A sum that can lie between two kernels as it is: one of real numbers.
bool isRealSum(const KernelGraph &graph, const Kernel &kernel, unsigned n) {
  return kernel.nodes[n].kind == Node::Kind::Accumulator &&
         std::none_of(kernel.terms.begin(), kernel.terms.end(), [&](const Term &term) {
           const ElementType type = graph.tensors[term.a.tensor].type;
           return type == ElementType::Int8 || type == ElementType::UInt8;
         });
}

/// The last operation, or sum of those that `maySplit`, after which only its own value goes on,
/// before every result, that `fits`. `repeated`: operations in a row that both parts may do.
std::optional<unsigned> cutOf(const Kernel &kernel, const std::vector<bool> &needed,
                              unsigned repeated, const std::function<bool(unsigned)> &maySplit,
                              const std::function<bool(unsigned, unsigned)> &fits) {
  unsigned operations = 0;
  std::optional<unsigned> cut;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
    if (!needed[n] || !(isOperation(kernel.nodes[n]) || maySplit(n)))
      continue;
    operations += isOperation(kernel.nodes[n]);
    bool alone = repeated == 0 || !canBeHadAgain(kernel, n, repeated);
    for (const Result &r : kernel.results)
      alone &= r.node > n;
    for (unsigned u = n + 1; u < kernel.nodes.size(); ++u) {
      if (!needed[u])
        continue;
      alone &= kernel.nodes[u].kind != Node::Kind::Accumulator;
      for (unsigned a : kernel.nodes[u].args)
        alone &= a >= n || canBeHadAgain(kernel, a, repeated);
    }
    if (alone && fits(n, operations))
      cut = n;
  }
  return cut;
}

/// Every read of one tensor in a bundle needs a copy of it to itself, with slices for each byte: so
/// many reads at most where a cut can help, fewer where the copies would take much of the memory.
struct MostReads {
  unsigned reads = 5, bytes = 20;
  /// Of a window: partial sums cost more than what else ALUs could do, unless more rows are done at
  /// once.
  bool usesAllAlus = true;
  unsigned of(const Tensor &tensor) const { return of(tensor.type); }
  unsigned of(ElementType type) const {
    return std::max(1u, std::min(reads, bytes / byteWidth(type)));
  }
};

/// Rows of memory that constants leave.
int64_t rowsBesideConstants(const KernelGraph &graph, const Machine &machine) {
  const double left = std::max(0.0, 1 - constantShare(graph, machine));
  return int64_t(left * double(factsOf(machine).capacityBytes) * machine.pes() / machine.lanes());
}

/// Of a bundle's reads of one tensor: `left` is what constants leave, of which a quarter is for the
/// copies of it. Where memory is least, a copy in each hemisphere is all that there is.
MostReads mostReads(const KernelGraph &graph, const Kernel &kernel, const Machine &machine,
                    Room room, int64_t left) {
  const MostReads usual, few{3, 8, false}, least{kHemispheres, 8, false};
  if (room >= Room::Spare)
    return room >= Room::Least ? least : few;
  std::map<unsigned, int64_t> rows; ///< per tensor that is read: of all copies
  for (const Access &operand : kernel.operands)
    if (const Tensor &tensor = graph.tensors[operand.tensor]; tensor.role != TensorRole::Constant) {
      const int64_t lanes = tensor.shape[tensor.laneDim], vector = machine.lanes();
      rows[operand.tensor] = elementCount(tensor) / lanes * ((lanes + vector - 1) / vector) *
                             usual.of(tensor) * byteWidth(tensor.type) * kHemispheres;
    }
  return std::any_of(rows.begin(), rows.end(), [&](const auto &r) { return r.second > left / 4; })
             ? few
             : usual;
}

/// Does a kernel read a tensor that is made at run time more often, up to a node?
bool readsTooOften(const KernelGraph &graph, const Kernel &kernel, unsigned node,
                   const MostReads &most) {
  std::map<unsigned, unsigned> reads;
  std::vector<bool> counted(kernel.operands.size(), false);
  for (unsigned n = 0; n <= node; ++n)
    for (unsigned a : kernel.nodes[n].args) {
      const Node &arg = kernel.nodes[a];
      if (arg.kind != Node::Kind::Operand || counted[arg.index])
        continue;
      const Tensor &tensor = graph.tensors[kernel.operands[arg.index].tensor];
      counted[arg.index] = true;
      if (tensor.role != TensorRole::Constant &&
          ++reads[kernel.operands[arg.index].tensor] > most.of(tensor))
        return true;
    }
  return false;
}

/// Does a map read several neighbours of one tensor?
bool isWindow(const KernelGraph &graph, const Kernel &kernel) {
  std::set<unsigned> tensors;
  return kernel.terms.empty() &&
         std::any_of(kernel.operands.begin(), kernel.operands.end(), [&](const Access &access) {
           return graph.tensors[access.tensor].role != TensorRole::Constant &&
                  !tensors.insert(access.tensor).second;
         });
}

} // namespace

unsigned mostReadsAtOnce(ElementType type) { return MostReads().of(type); }

Kernel upTo(const Kernel &kernel, unsigned cut, const Access &result) {
  Kernel first = kernel;
  first.nodes.resize(cut + 1);
  first.results = {{cut, result}};
  dropDeadNodes(first); // what is not read needs no copy
  return first;
}

namespace {

/// Where to cut the kernel: if it has more than `most` operations, or needs more ALUs or streams
/// than the machine has; `atSum`: then also at its sum.
std::optional<unsigned> findCut(const KernelGraph &graph, const Kernel &kernel, unsigned most,
                                const MostReads &reads, const Machine *machine,
                                bool atSum = false) {
  const std::vector<bool> needed = neededNodes(kernel);
  unsigned operations = 0;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n)
    operations += needed[n] && isOperation(kernel.nodes[n]);
  std::optional<unsigned> cut;
  if (machine && reads.usesAllAlus && isWindow(graph, kernel))
    most = machine->vxm.alus;
  const auto fits = [&](unsigned n) {
    return !machine ||
           epilogueNeeds(upTo(kernel, n, kernel.results.front().access), graph, *machine)
               .fit(*machine);
  };
  if (operations > most || readsTooOften(graph, kernel, unsigned(kernel.nodes.size()) - 1, reads))
    cut = cutOf(
        kernel, needed, 0, [](unsigned) { return false; },
        [&](unsigned n, unsigned before) {
          return before <= most && !readsTooOften(graph, kernel, n, reads) && fits(n);
        });
  if (cut || !machine || epilogueNeeds(kernel, graph, *machine).fit(*machine))
    return cut;
  for (unsigned repeated = 1; !cut && repeated <= kMostRepeated; ++repeated)
    cut = cutOf(
        kernel, needed, repeated, [&](unsigned n) { return atSum && isRealSum(graph, kernel, n); },
        [&](unsigned n, unsigned before) { return before <= most && fits(n); });
  return cut;
}

/// The kernel with what hangs on the sum before all else that an operation takes: a sum that waits
/// for a long chain of its other operand (a gate) can then be cut off and stored.
Kernel sumsFirst(const Kernel &kernel) {
  std::vector<bool> onSum(kernel.nodes.size());
  for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
    const Node &node = kernel.nodes[n];
    onSum[n] =
        node.kind == Node::Kind::Accumulator ||
        std::any_of(node.args.begin(), node.args.end(), [&](unsigned a) { return onSum[a]; });
  }
  Kernel sorted = kernel;
  sorted.nodes.clear();
  std::vector<std::optional<unsigned>> place(kernel.nodes.size());
  const std::function<unsigned(unsigned)> put = [&](unsigned n) {
    if (place[n])
      return *place[n];
    Node node = kernel.nodes[n];
    for (bool ofSums : {true, false})
      for (unsigned a : node.args)
        if (onSum[a] == ofSums)
          put(a);
    for (unsigned &a : node.args)
      a = *place[a];
    sorted.nodes.push_back(std::move(node));
    place[n] = unsigned(sorted.nodes.size() - 1);
    return *place[n];
  };
  for (Result &r : sorted.results)
    r.node = put(r.node);
  return sorted;
}

/// Do the results need a reduction besides the value at the cut?
bool reducesAfter(const Kernel &kernel, unsigned cut) {
  const std::vector<bool> needed = neededNodes(kernel, cut);
  for (unsigned n = 0; n < kernel.nodes.size(); ++n)
    if (n != cut && needed[n] && kernel.nodes[n].kind == Node::Kind::Reduce)
      return true;
  return false;
}

/// Does a running loop move the value at the cut?
bool movesValue(const Kernel &kernel, unsigned cut, unsigned loop) {
  for (unsigned n : nodesOf(kernel, cut)) {
    const Node &node = kernel.nodes[n];
    if (node.kind == Node::Kind::Operand && usesLoop(kernel.operands[node.index], loop))
      return true;
    if (node.kind == Node::Kind::Accumulator &&
        std::any_of(kernel.terms.begin(), kernel.terms.end(), [&](const Term &term) {
          return usesLoop(term.a, loop) || usesLoop(term.w, loop);
        }))
      return true;
  }
  return false;
}

} // namespace

std::optional<Access> addBetween(KernelGraph &graph, const Kernel &kernel, unsigned cut) {
  const Access &like = kernel.results.front().access;
  std::vector<int64_t> shape;
  Access between;
  for (unsigned l = 0; reducesAfter(kernel, cut) && l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind == LoopKind::Running && movesValue(kernel, cut, l)) {
      shape.push_back(kernel.loops[l].extent);
      between.index.push_back(at(l));
    }
  unsigned lane = 0;
  std::vector<unsigned> seen;
  for (unsigned d = 0; d < like.index.size(); ++d) {
    const AffineIndex &i = like.index[d];
    const bool isLane = d == graph.tensors[like.tensor].laneDim;
    if (isLane && (i.terms.size() > 1 || (i.terms.size() == 1 && i.terms[0].second != 1)))
      return std::nullopt;
    if (isLane)
      lane = unsigned(shape.size());
    if (i.terms.empty()) {
      shape.push_back(1);
      between.index.push_back(fixed(0));
    }
    for (const auto &[loop, step] : i.terms) { // rows that a reshape merged have one each
      if (std::find(seen.begin(), seen.end(), loop) != seen.end())
        return std::nullopt;
      seen.push_back(loop);
      shape.push_back(kernel.loops[loop].extent);
      between.index.push_back(at(loop));
    }
  }
  between.tensor = addTensor(graph, kernel.name + ".part", shape, ElementType::Fp32, lane);
  return between;
}

namespace {

/// The part of the kernel up to the cut.
Kernel firstPart(const Kernel &kernel, unsigned cut, const Access &between) {
  Kernel first = upTo(kernel, cut, between);
  first.name += ".part";
  const bool isReduced = !reducesAfter(kernel, cut);
  for (unsigned l = 0; l < first.loops.size() && !isReduced; ++l)
    if (first.loops[l].kind == LoopKind::Running)
      first.loops[l] = {movesValue(kernel, cut, l) ? first.loops[l].extent : 1, LoopKind::Parallel};
  return first;
}

/// A map of the value between, or its reduction.
Kernel secondPart(KernelGraph &graph, const Kernel &kernel, unsigned cut, const Access &between) {
  KernelBuilder build(graph, kernel);
  build.continueFrom(kernel, cut, build.operand(between));
  Kernel second = std::move(build.kernel());
  for (Loop &l : second.loops)
    if (l.kind == LoopKind::Contracted ||
        (l.kind == LoopKind::Running && !reducesAfter(kernel, cut)))
      l = {1, LoopKind::Parallel};
  return second;
}

/// How kernels are cut: with so many operations at most, and so many reads of a tensor.
struct Limits {
  unsigned most = 0;
  MostReads reads;
  const Machine *machine = nullptr;
};

/// Cuts a kernel as often as it has to be. Returns the parts behind the first.
std::vector<unsigned> cut(KernelGraph &graph, unsigned number, const Limits &limits) {
  std::vector<unsigned> parts;
  for (unsigned last = number;; last = parts.back()) {
    const Machine *machine = limits.machine;
    Kernel kernel = graph.kernels[last];
    std::optional<unsigned> at = findCut(graph, kernel, limits.most, limits.reads, machine);
    if (!at && machine && !epilogueNeeds(kernel, graph, *machine).fit(*machine)) {
      kernel = sumsFirst(kernel);
      at = findCut(graph, kernel, limits.most, limits.reads, machine);
      if (!at && !epilogueNeedsOfRows(kernel, graph, *machine).fit(*machine))
        at = findCut(graph, kernel, limits.most, limits.reads, machine, /*atSum=*/true);
    }
    const std::optional<Access> between = at ? addBetween(graph, kernel, *at) : std::nullopt;
    if (!between)
      return parts;
    graph.kernels[last] = firstPart(kernel, *at, *between);
    graph.kernels.push_back(secondPart(graph, kernel, *at, *between));
    parts.push_back(unsigned(graph.kernels.size() - 1));
  }
}

/// A graph of what a kernel is cut into.
KernelGraph cutAlone(const KernelGraph &graph, const Kernel &kernel, const Limits &limits) {
  KernelGraph alone; // with its tensors, by the same numbers
  alone.tensors.resize(graph.tensors.size());
  const auto take = [&](const Access &access) {
    const Tensor &tensor = graph.tensors[access.tensor];
    Tensor &its = alone.tensors[access.tensor];
    its.shape = tensor.shape;
    its.type = tensor.type;
    its.laneDim = tensor.laneDim;
    its.role = tensor.role;
  };
  for (const Access &operand : kernel.operands)
    take(operand);
  for (const Result &result : kernel.results)
    take(result.access);
  alone.kernels.push_back(kernel);
  cut(alone, 0, limits);
  return alone;
}

/// The map with a constant that it adds to a sum of many products added to the first of them: parts
/// that read as many neighbours as they can leave ALUs free, the last one, with what follows the
/// sum, may not. Nothing if it adds none.
std::optional<Kernel> biasFirst(const KernelGraph &graph, const Kernel &kernel) {
  const std::vector<unsigned> uses = usesOfNodes(kernel);
  const auto isSum = [&](unsigned n) {
    return kernel.nodes[n].kind == Node::Kind::Op && kernel.nodes[n].op == AluOp::AddF32;
  };
  const auto isConstant = [&](unsigned n) {
    const Node &node = kernel.nodes[n];
    return node.kind == Node::Kind::Operand &&
           graph.tensors[kernel.operands[node.index].tensor].role == TensorRole::Constant;
  };
  for (unsigned end = 0; end < kernel.nodes.size(); ++end) {
    if (!isSum(end) ||
        isConstant(kernel.nodes[end].args[0]) == isConstant(kernel.nodes[end].args[1]))
      continue;
    const bool isSecond = isConstant(kernel.nodes[end].args[1]);
    const unsigned bias = kernel.nodes[end].args[isSecond], sum = kernel.nodes[end].args[!isSecond];
    unsigned first = sum, sums = 0;
    for (; isSum(first) && uses[first] == 1; first = kernel.nodes[first].args[0])
      ++sums;
    if (sums < 2 || uses[first] != 1)
      continue;
    Kernel moved = kernel;
    std::vector<unsigned> place(kernel.nodes.size());
    moved.nodes = {kernel.nodes[bias]};
    for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
      if (n == end) {
        place[n] = place[sum];
        continue;
      }
      Node node = kernel.nodes[n];
      for (unsigned &arg : node.args)
        arg = place[arg];
      place[n] = unsigned(moved.nodes.size());
      moved.nodes.push_back(std::move(node));
      if (n != first)
        continue;
      moved.nodes.push_back({Node::Kind::Op, 0, 0, AluOp::AddF32, {place[n], 0}});
      place[n] = unsigned(moved.nodes.size() - 1);
    }
    for (Result &result : moved.results)
      result.node = place[result.node];
    dropDeadNodes(moved);
    return moved;
  }
  return std::nullopt;
}

/// The kernel as it had better be cut.
Kernel toCut(const KernelGraph &graph, const Kernel &kernel, const Limits &limits) {
  if (limits.machine && isWindow(graph, kernel))
    if (std::optional<Kernel> moved = biasFirst(graph, kernel);
        moved && cutAlone(graph, *moved, limits).kernels.size() <
                     cutAlone(graph, kernel, limits).kernels.size())
      return std::move(*moved);
  return kernel;
}

/// Rows of a map, one for each lane tile.
double rowsOf(const KernelGraph &graph, const Kernel &kernel, const Machine &machine) {
  const Access &result = kernel.results.front().access;
  const Tensor &to = graph.tensors[result.tensor];
  const std::optional<unsigned> lane =
      unitLoop(kernel, result.index[to.laneDim], LoopKind::Parallel);
  const int64_t vector = machine.lanes();
  double rows = 1;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    rows *=
        double(lane == l ? (kernel.loops[l].extent + vector - 1) / vector : kernel.loops[l].extent);
  return rows;
}

/// Cycles of the VXM that a map takes once it is cut: for each part and row one, or half of it
/// where both hemispheres' rows find ALUs, and until the next part can read the first.
double cyclesOfParts(const KernelGraph &graph, const Kernel &kernel, const Limits &limits) {
  constexpr double kUntilRead = 64;
  const KernelGraph parts = cutAlone(graph, toCut(graph, kernel, limits), limits);
  const double rows = rowsOf(graph, kernel, *limits.machine);
  double cycles = 0;
  for (const Kernel &part : parts.kernels)
    cycles += kUntilRead + (twoRowsFit(part, parts, *limits.machine) ? rows / kHemispheres : rows);
  return cycles;
}

/// Are rows of a tensor read at several offsets along a loop? Those at the border of what a
/// hemisphere does are read in both.
bool readsAcross(const Kernel &kernel) {
  std::map<std::pair<unsigned, size_t>, std::set<int64_t>> offsets; ///< by tensor, dimension
  for (const Access &operand : kernel.operands)
    for (size_t d = 0; d < operand.index.size(); ++d)
      if (!operand.index[d].terms.empty())
        offsets[{operand.tensor, d}].insert(operand.index[d].offset);
  return std::any_of(offsets.begin(), offsets.end(),
                     [](const auto &its) { return its.second.size() > 1; });
}

/// A window is cut into parts of a row a cycle, or shorter ones of two where that is faster.
Limits limitsOf(const KernelGraph &graph, const Kernel &kernel, unsigned most,
                const Machine *machine, Room room, int64_t left) {
  if (!machine)
    return {most, {}, nullptr};
  const Limits usual{most, mostReads(graph, kernel, *machine, room, left), machine};
  if (!isWindow(graph, kernel)) {
    if (!kernel.terms.empty())
      return usual;
    // A map of few more operations is rather done as one, or in shorter parts.
    Limits best = usual;
    for (const unsigned other : {machine->vxm.alus, machine->vxm.alus / kHemispheres}) {
      Limits limits = usual;
      limits.most = other;
      if (cyclesOfParts(graph, kernel, limits) < cyclesOfParts(graph, kernel, best))
        best = limits;
    }
    return best;
  }
  if (!usual.reads.usesAllAlus)
    return usual;
  Limits shared = usual;
  shared.most = machine->vxm.alus / kHemispheres;
  shared.reads.usesAllAlus = false;
  // Of the slices that weights do not fill, sums that parts leave each other take some, too.
  const int64_t slices = left / (int64_t(machine->rowsPerSlice()) * kHemispheres * machine->pes());
  shared.reads.bytes = std::min(unsigned(slices * 3 / 5), mostBytesApart(*machine));
  constexpr double kForOthers = 128; // a writer waits to write rows among those of the other one
  const double waits = readsAcross(kernel) ? kForOthers : 0;
  return cyclesOfParts(graph, kernel, shared) + waits <= cyclesOfParts(graph, kernel, usual)
             ? shared
             : usual;
}

unsigned split(KernelGraph &graph, unsigned most, const Machine *machine, Room room) {
  unsigned split = 0;
  const int64_t left = machine && room < Room::Spare ? rowsBesideConstants(graph, *machine) : 0;
  std::vector<std::pair<bool, unsigned>> order;
  for (auto [isHost, index] : graph.order) {
    order.push_back({isHost, index});
    if (isHost)
      continue;
    const Limits limits = limitsOf(graph, graph.kernels[index], most, machine, room, left);
    graph.kernels[index] = toCut(graph, graph.kernels[index], limits);
    for (const unsigned part : cut(graph, index, limits)) {
      order.push_back({false, part});
      ++split;
    }
  }
  graph.order = std::move(order);
  return split;
}

} // namespace

unsigned splitEpilogues(KernelGraph &graph, unsigned most) {
  return split(graph, most, nullptr, Room::Ample);
}
unsigned splitEpilogues(KernelGraph &graph, unsigned most, const Machine &machine, Room room) {
  return split(graph, most, &machine, room);
}

double cyclesOfMap(const KernelGraph &graph, const Kernel &kernel, unsigned most,
                   const Machine &machine, Room room) {
  if (!kernel.terms.empty())
    return 0;
  return cyclesOfParts(
      graph, kernel,
      limitsOf(graph, kernel, most, &machine, room, rowsBesideConstants(graph, machine)));
}

} // namespace millrace::forms
