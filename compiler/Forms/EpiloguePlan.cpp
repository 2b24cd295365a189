// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/EpiloguePlan.h"

#include "compiler/Forms/KernelBuilder.h"

#include <algorithm>
#include <limits>
#include <map>

namespace millrace::forms {
namespace {

using Cycles = EpiloguePlan::Cycles;
constexpr Cycles kLatest = std::numeric_limits<Cycles>::max();

bool isOperation(const Node &n) { return n.kind == Node::Kind::Op || n.kind == Node::Kind::Reduce; }

/// Calls f(user) for each argument of a needed operation that is node `n`.
template <class F>
void forEachUse(const Kernel &kernel, const std::vector<bool> &needed, unsigned n, F f) {
  for (unsigned u = n + 1; u < kernel.nodes.size(); ++u)
    if (needed[u] && isOperation(kernel.nodes[u]))
      for (unsigned a : kernel.nodes[u].args)
        if (a == n)
          f(u);
}

bool isResult(const Kernel &kernel, unsigned n) {
  return std::any_of(kernel.results.begin(), kernel.results.end(),
                     [&](const Result &r) { return r.node == n; });
}

} // namespace

Cycles EpiloguePlan::earliestUse(const Kernel &kernel, unsigned node) const {
  Cycles least = kLatest;
  forEachUse(kernel, needed, node, [&](unsigned u) { least = std::min(least, dispatch[u]); });
  return least == kLatest ? 0 : least;
}

EpiloguePlan planEpilogue(const Kernel &kernel, const std::function<int64_t(AluOp)> &chained,
                          int64_t lastElement) {
  const std::vector<Node> &nodes = kernel.nodes;
  EpiloguePlan plan;
  plan.needed = neededNodes(kernel);
  plan.onAccumulator.assign(nodes.size(), false);
  plan.late.assign(nodes.size(), false);
  plan.dispatch.assign(nodes.size(), 0);
  const auto latency = [&](unsigned n) {
    return (nodes[n].kind == Node::Kind::Reduce ? lastElement : 0) + chained(nodes[n].op);
  };
  for (unsigned n = 0; n < nodes.size(); ++n) {
    plan.onAccumulator[n] = nodes[n].kind == Node::Kind::Accumulator;
    if (!isOperation(nodes[n]))
      continue;
    for (unsigned a : nodes[n].args) {
      plan.onAccumulator[n] = plan.onAccumulator[n] || plan.onAccumulator[a];
      plan.late[n] = plan.late[n] || plan.late[a] || nodes[a].kind == Node::Kind::Reduce;
    }
    for (unsigned a : nodes[n].args) {
      const bool before = plan.onAccumulator[n] && !plan.onAccumulator[a] && !plan.late[a] &&
                          nodes[a].kind != Node::Kind::Reduce;
      if (isOperation(nodes[a]) && !before) // what comes before the accumulator is in time
        plan.dispatch[n] = std::max(plan.dispatch[n], plan.dispatch[a] + latency(a));
    }
  }
  for (unsigned n = unsigned(nodes.size()); n-- > 0;) {
    if (plan.onAccumulator[n] || !plan.needed[n] || plan.late[n] ||
        nodes[n].kind == Node::Kind::Reduce)
      continue;
    Cycles latest = kLatest;
    bool once = !isResult(kernel, n);
    forEachUse(kernel, plan.needed, n, [&](unsigned u) {
      if (isOperation(nodes[n]))
        latest = std::min(latest, plan.dispatch[u] - latency(n));
      once = once && plan.late[u];
    });
    plan.late[n] = once;
    if (isOperation(nodes[n]) && latest != kLatest)
      plan.dispatch[n] = latest;
  }
  return plan;
}

namespace {

/// What is held from a cycle to another.
struct Held {
  Cycles first, last;
  unsigned amount;
};

unsigned mostAtOnce(const std::vector<Held> &held) {
  unsigned most = 0;
  for (const Held &at : held) {
    unsigned together = 0;
    for (const Held &other : held)
      together += other.first <= at.first && at.first <= other.last ? other.amount : 0;
    most = std::max(most, together);
  }
  return most;
}

/// Rows so many that everything that can be under way at once is.
constexpr Cycles kLong = Cycles(1) << 32;

class NeedsCount {
public:
  NeedsCount(const Kernel &kernel, const KernelGraph &graph, const Machine &machine, Cycles rows)
      : kernel(kernel), graph(graph), nodes(kernel.nodes), latency(machine.latency),
        lastRow(std::min(rows, kLong)) {
    plan = planEpilogue(
        kernel, [&](AluOp op) { return chained(op); }, kLong);
    for (const AluOpInfo &op : aluOpTable)
      fastest = std::min(fastest, cyclesOf(op.mnemonic));
    for (unsigned n = 0; n < nodes.size(); ++n)
      if (plan.needed[n] && isOperation(nodes[n]))
        addOperation(n);
    for (unsigned n = 0; n < nodes.size(); ++n)
      if (isResult(kernel, n) && !isOperation(nodes[n]))
        addStoredAsItIs(n);
    for (const auto &[n, last] : taken)
      addWaiting(n, last);
  }
  EpilogueNeeds needs() const { return {mostAtOnce(alus), mostAtOnce(streams)}; }
  const std::vector<Held> &heldAlus() const { return alus; }

private:
  const Kernel &kernel;
  const KernelGraph &graph;
  const std::vector<Node> &nodes;
  const LatencySpec &latency;
  const Cycles lastRow; ///< from the first row to behind the last
  EpiloguePlan plan;
  Cycles fastest = kLatest;
  std::vector<Held> alus, streams;
  std::map<unsigned, Cycles> taken; ///< per node that is not latched: when it is taken last

  Cycles cyclesOf(std::string_view mnemonic) const {
    return latency.aluLatency(std::string(mnemonic));
  }
  Cycles chained(AluOp op) const { return cyclesOf(aluOpInfo(op).mnemonic) + latency.aluChain; }
  Cycles length(unsigned n) const { return plan.late[n] ? 0 : lastRow; }
  /// An operand that surely is the same for all elements of a burst: only loops that run along the
  /// lanes move it.
  bool isLatched(unsigned n) const {
    if (nodes[n].kind != Node::Kind::Operand)
      return false;
    const Access &result = kernel.results.front().access;
    const AffineIndex &lanes = result.index[graph.tensors[result.tensor].laneDim];
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (usesLoop(kernel.operands[nodes[n].index], l) && coefficient(lanes, l) == 0)
        return false;
    return true;
  }
  unsigned widthOf(unsigned n) const {
    return nodes[n].kind == Node::Kind::Accumulator
               ? 4
               : byteWidth(graph.tensors[kernel.operands[nodes[n].index].tensor].type);
  }
  void take(unsigned n, Cycles at) {
    auto [it, fresh] = taken.emplace(n, at);
    it->second = std::max(it->second, at);
  }
  void addOperation(unsigned n);
  void addStoredAsItIs(unsigned n);
  void addWaiting(unsigned n, Cycles last);
};

void NeedsCount::addOperation(unsigned n) {
  const Node &node = nodes[n];
  const Cycles at = plan.dispatch[n];
  std::optional<unsigned> latch;
  for (unsigned a : node.args) {
    if (nodes[a].kind == Node::Kind::Immediate)
      continue;
    if (node.kind == Node::Kind::Op && node.args.size() > 1 && isLatched(a) &&
        (!latch || *latch == a)) {
      latch = a;
      continue;
    }
    take(a, at);
  }
  if (latch)
    streams.push_back({at - 1, at - 1, widthOf(*latch)});
  // Results leave one at a time: a slow operation holds its ALU for longer.
  const Cycles slower = cyclesOf(aluOpInfo(node.op).mnemonic) - fastest;
  alus.push_back({at - (latch ? 1 : 0), at + length(n) + slower, 1});
}

/// An operand, an immediate or the sum itself passes an ALU on its way to memory.
void NeedsCount::addStoredAsItIs(unsigned n) {
  const Cycles at = nodes[n].kind == Node::Kind::Accumulator ? 0 : plan.earliestUse(kernel, n);
  if (nodes[n].kind != Node::Kind::Immediate)
    take(n, at);
  alus.push_back({at, at + length(n), 1});
}

/// From where the value first can be taken to where it is taken last, it passes through ALUs.
void NeedsCount::addWaiting(unsigned n, Cycles last) {
  const bool isReduce = nodes[n].kind == Node::Kind::Reduce;
  Cycles ready = 0;
  if (isOperation(nodes[n]))
    ready = plan.dispatch[n] + (isReduce ? kLong : 0) + chained(nodes[n].op);
  else if (nodes[n].kind == Node::Kind::Operand)
    ready = plan.earliestUse(kernel, n);
  const Cycles held = isReduce ? 0 : length(n);
  if (!isOperation(nodes[n]))
    streams.push_back({ready, ready + held, widthOf(n)});
  const Cycles step = chained(AluOp::Pass);
  if (last - ready >
      kLong / 2) { // of every element until after the reduction: no machine has so many
    alus.push_back({ready, last, std::numeric_limits<unsigned>::max() / 2});
    return;
  }
  for (; ready < last; ready += step)
    alus.push_back({ready, ready + held, 1});
}

} // namespace

EpilogueNeeds epilogueNeeds(const Kernel &kernel, const KernelGraph &graph,
                            const Machine &machine) {
  return kernel.results.empty() ? EpilogueNeeds{}
                                : NeedsCount(kernel, graph, machine, kLong).needs();
}

EpilogueNeeds epilogueNeedsOfRows(const Kernel &kernel, const KernelGraph &graph,
                                  const Machine &machine) {
  if (kernel.results.empty())
    return {};
  const Access &result = kernel.results.front().access;
  const AffineIndex &lanes = result.index[graph.tensors[result.tensor].laneDim];
  Cycles rows = 1;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind == LoopKind::Parallel && coefficient(lanes, l) == 0)
      rows *= kernel.loops[l].extent;
  return NeedsCount(kernel, graph, machine, rows).needs();
}

bool twoRowsFit(const Kernel &kernel, const KernelGraph &graph, const Machine &machine) {
  return kHemispheres * epilogueNeedsOfRows(kernel, graph, machine).alus <= machine.vxm.alus &&
         std::all_of(kernel.operands.begin(), kernel.operands.end(), [&](const Access &access) {
           const Tensor &tensor = graph.tensors[access.tensor];
           return tensor.role == TensorRole::Constant ||
                  readsOfTile(kernel, graph, access) * byteWidth(tensor.type) <=
                      mostBytesApart(machine);
         });
}

/// ALUs at once if all that is held is held again every `period` cycles.
static Cycles mostAtOnce(const std::vector<Held> &held, Cycles period) {
  std::vector<Cycles> change(size_t(period) + 1, 0);
  Cycles always = 0;
  for (const Held &h : held) {
    const Cycles cycles = h.last - h.first + 1;
    const Cycles from = ((h.first % period) + period) % period, to = from + cycles % period;
    always += cycles / period * h.amount;
    change[size_t(from)] += h.amount;
    change[size_t(std::min(to, period))] -= h.amount;
    if (to > period) {
      change[0] += h.amount;
      change[size_t(to - period)] -= h.amount;
    }
  }
  Cycles now = 0, most = 0;
  for (Cycles t = 0; t < period; ++t)
    most = std::max(most, now += change[size_t(t)]);
  return always + most;
}

std::optional<int64_t> rowsOfBurst(const Kernel &kernel, const KernelGraph &graph,
                                   const Machine &machine, unsigned alus, int64_t step,
                                   double wanted) {
  constexpr int64_t kShortest = 16; // of fewer rows, latches and reads take longer than ALUs
  if (kernel.results.empty())
    return std::nullopt;
  const Cycles all = epilogueNeeds(kernel, graph, machine).alus;
  if (all == 0 || all > alus || double(alus / all) >= wanted) // whole bursts beside each other
    return std::nullopt;
  // Of three times the rows that a chain of all ALUs holds, bursts overlap as good as not at all.
  const int64_t inChain = machine.latency.aluLatency(std::string(aluOpInfo(AluOp::Pass).mnemonic)) +
                          machine.latency.aluChain;
  double best = double(alus / all);
  std::optional<int64_t> rows;
  for (int64_t length = 3 * inChain * alus / step * step; length >= kShortest; length -= step) {
    const std::vector<Held> held = NeedsCount(kernel, graph, machine, length - 1).heldAlus();
    Cycles period = std::max<Cycles>(1, length * all / alus);
    while (period < length && mostAtOnce(held, period) > Cycles(alus))
      ++period;
    const double rate = std::min(wanted, double(length) / double(period));
    if (rate > best * (rows ? 17. / 16 : 9. / 8)) {
      best = rate;
      rows = length;
    }
  }
  return rows;
}

unsigned readsOfTile(const Kernel &kernel, const KernelGraph &graph, const Access &access) {
  const unsigned lanes = graph.tensors[access.tensor].laneDim;
  return unsigned(
      std::count_if(kernel.operands.begin(), kernel.operands.end(), [&](const Access &other) {
        return !other.lookup && other.tensor == access.tensor &&
               other.index[lanes] == access.index[lanes];
      }));
}

unsigned mostBytesApart(const Machine &machine) {
  return machine.memory.slices * 3 / 4 / kHemispheres;
}

} // namespace millrace::forms
