// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Rewritings/UnrollRunning.h"

#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/PairRunning.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace millrace::forms {
namespace {

using Point = std::vector<int64_t>;

/// Steps beyond this many are no window: a kernel's nodes are looked through again and again.
constexpr int64_t kMostSteps = 128;

/// Per node: does its value differ from step to step of a running loop?
std::vector<bool> runningNodes(const Kernel &kernel) {
  std::vector<bool> runs(kernel.nodes.size(), false);
  for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
    const Node &node = kernel.nodes[n];
    if (node.kind == Node::Kind::Operand)
      for (unsigned l = 0; l < kernel.loops.size(); ++l)
        runs[n] = runs[n] || (kernel.loops[l].kind == LoopKind::Running &&
                              usesLoop(kernel.operands[node.index], l));
    else if (node.kind == Node::Kind::Op)
      runs[n] =
          std::any_of(node.args.begin(), node.args.end(), [&](unsigned a) { return runs[a]; });
  }
  return runs;
}

/// What both ways take, in cycles of the machine, about.
struct Ways {
  double reduced = 0, unrolled = 0;
};

Ways waysOf(const KernelGraph &graph, const Kernel &kernel, const Machine &machine, int64_t steps) {
  const Access &result = kernel.results.front().access;
  const Tensor &tensor = graph.tensors[result.tensor];
  const int64_t lanes = tensor.shape[tensor.laneDim];
  double rows = double((lanes + machine.lanes() - 1) / machine.lanes());
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (kernel.loops[l].kind == LoopKind::Parallel && !coefficient(result.index[tensor.laneDim], l))
      rows *= double(kernel.loops[l].extent);
  const std::vector<bool> runs = runningNodes(kernel);
  int64_t each = 0; // operations of a step
  double interval = 1;
  for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
    const Node &node = kernel.nodes[n];
    each += node.kind == Node::Kind::Reduce || (node.kind == Node::Kind::Op && runs[n]);
    if (node.kind == Node::Kind::Reduce)
      interval = std::max(interval, stepCycles(graph, kernel, node, machine));
  }
  int64_t again = 0, last = 0; // steps of running loops but the last; of the last
  for (const Loop &loop : kernel.loops)
    if (loop.kind == LoopKind::Running && loop.extent > 1) {
      again = last ? std::max<int64_t>(1, again) * last : 0;
      last = loop.extent;
    }
  // A map may have any layout, thus as many rows as its lanes fill.
  const double filled = std::min(1.0, double(lanes) / double(machine.lanes()));
  constexpr double kLatency = 100, // from a row's reading to that of what is made of it
      kPart = 60;                  // where both are parts of a sum
  double reads = double(steps);    // of a tensor at once
  for (unsigned n = 0; n < kernel.nodes.size(); ++n)
    if (kernel.nodes[n].kind == Node::Kind::Operand && runs[n])
      reads = std::min<double>(
          reads,
          mostReadsAtOnce(graph.tensors[kernel.operands[kernel.nodes[n].index].tensor].type));
  const double alus = machine.vxm.alus,
               parts = std::ceil(double(steps) * std::max(double(each) / alus, 1 / reads)),
               work = rows * double(steps * each) / alus / machine.pes(),
               // One after the other, and of two loops the sums of the inner one again.
      read = rows * double(steps + again) / kHemispheres / machine.pes();
  double reduced = std::max(read, double(steps)) * interval;
  if (canPair(graph, kernel)) { // maps of neighbours first, one on each hemisphere
    const double most = std::min((alus / kHemispheres + 1) / double(each), reads),
                 left = read / std::max(1.0, std::floor(most));
    reduced = std::min(reduced, left * (1 + interval) + kLatency);
  }
  return {reduced + kLatency, work * filled + kLatency + kPart * (parts - 1)};
}

bool canUnroll(const Kernel &kernel) {
  return kernel.terms.empty() &&
         std::any_of(kernel.nodes.begin(), kernel.nodes.end(),
                     [](const Node &n) { return n.kind == Node::Kind::Reduce; }) &&
         std::none_of(kernel.operands.begin(), kernel.operands.end(),
                      [](const Access &a) { return a.lookup.has_value(); });
}

/// Rebuilds a kernel's nodes without its running loops.
class Unroller {
public:
  Unroller(KernelGraph &graph, const Kernel &kernel)
      : kernel(kernel), runs(runningNodes(kernel)), build(graph) {}

  Kernel unrolled() {
    build.kernel().name = kernel.name;
    build.kernel().provenance = kernel.provenance;
    std::vector<unsigned> running;
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (kernel.loops[l].kind == LoopKind::Running)
        running.push_back(l);
    forEachPoint(kernel, running, [&](const Point &point) {
      points.push_back(point);
      return true;
    });
    for (const Loop &loop : kernel.loops) // numbers stay
      build.loop(loop.kind == LoopKind::Running ? 1 : loop.extent);
    for (const Result &r : kernel.results)
      build.storeBits(valueOf(r.node, 0), r.access);
    return std::move(build.kernel());
  }

private:
  const Kernel &kernel;
  const std::vector<bool> runs;
  KernelBuilder build;
  std::vector<Point> points;
  std::map<std::pair<unsigned, size_t>, unsigned> known;

  unsigned operandAt(Access access, const Point &point) {
    for (AffineIndex &index : access.index) {
      for (auto [l, c] : index.terms)
        if (kernel.loops[l].kind == LoopKind::Running)
          index.offset += c * point[l];
      std::erase_if(index.terms,
                    [&](const auto &t) { return kernel.loops[t.first].kind == LoopKind::Running; });
    }
    return build.operand(std::move(access));
  }

  unsigned valueOf(unsigned n, size_t step) {
    const auto key = std::pair(n, runs[n] ? step : 0);
    if (auto found = known.find(key); found != known.end())
      return found->second;
    const Node &node = kernel.nodes[n];
    unsigned value = 0;
    switch (node.kind) {
    case Node::Kind::Operand:
      value = operandAt(kernel.operands[node.index], points[step]);
      break;
    case Node::Kind::Immediate:
      value = build.immediate(node.bits);
      break;
    case Node::Kind::Reduce:
      value = valueOf(node.args[0], 0);
      for (size_t s = 1; s < points.size(); ++s)
        value = build.op(node.op, {value, valueOf(node.args[0], s)});
      break;
    case Node::Kind::Op: {
      std::vector<unsigned> args;
      for (unsigned a : node.args)
        args.push_back(valueOf(a, step));
      value = build.op(node.op, args);
      break;
    }
    case Node::Kind::Accumulator: // no terms
      break;
    }
    return known[key] = value;
  }
};

} // namespace

int64_t stepInterval(const Machine &machine, AluOp op) {
  return std::max<int64_t>(
      1, int64_t(machine.latency.aluLatency(std::string(aluOpInfo(op).mnemonic))));
}

double stepCycles(const KernelGraph &graph, const Kernel &kernel, const Node &node,
                  const Machine &machine) {
  const Access &result = kernel.results.front().access;
  const AffineIndex &lanes = result.index[graph.tensors[result.tensor].laneDim];
  const int64_t interval = stepInterval(machine, node.op);
  int64_t together = 1;
  for (unsigned l = 0; l < kernel.loops.size() && kernel.terms.empty(); ++l)
    if (kernel.loops[l].kind == LoopKind::Parallel && !coefficient(lanes, l))
      together = std::max(together, kernel.loops[l].extent);
  together = std::min({together, interval, int64_t(machine.vxm.runningAccumulators)});
  return double(interval) / double(together);
}

unsigned unrollRunning(KernelGraph &graph, const Machine &machine) {
  unsigned unrolled = 0;
  for (Kernel &kernel : graph.kernels) {
    int64_t steps = 1;
    for (const Loop &loop : kernel.loops)
      if (loop.kind == LoopKind::Running && steps <= kMostSteps)
        steps *= loop.extent;
    if (steps < 2 || steps > kMostSteps || !canUnroll(kernel))
      continue;
    if (const Ways ways = waysOf(graph, kernel, machine, steps); ways.unrolled >= ways.reduced)
      continue;
    kernel = Unroller(graph, kernel).unrolled();
    ++unrolled;
  }
  return unrolled;
}

} // namespace millrace::forms
