// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Bounds.h"

#include "compiler/Schedule/Dependences.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace millrace::schedule {

namespace {

/// A burst on a unit: the unit works `length` cycles for it, not before `head`, and from its end
/// to the last write slot of the step are at least `tail` cycles.
struct Job {
  Cycle head = 0, length = 0, tail = 0;
  uint32_t placement = 0;
};

/// The largest head + work / `units` + tail over all sets of jobs: of those that begin no earlier
/// than one and whose tails are no shorter than that of another.
class SetBound {
public:
  SetBound(const std::vector<Job> &jobs, Cycle units) : jobs(jobs), units(units) {
    byTail.resize(jobs.size());
    std::iota(byTail.begin(), byTail.end(), 0u);
    byHead = byTail;
    std::sort(byTail.begin(), byTail.end(),
              [&](uint32_t x, uint32_t y) { return jobs[x].tail < jobs[y].tail; });
    std::sort(byHead.begin(), byHead.end(),
              [&](uint32_t x, uint32_t y) { return jobs[x].head > jobs[y].head; });
    while (leaves < jobs.size())
      leaves *= 2;
    nodes.resize(2 * leaves);
    find();
  }
  Cycle cycles = kNever; ///< from the step's begin to the last write slot
  /// The first and the last placement of the set.
  std::pair<uint32_t, uint32_t> placements() const {
    uint32_t first = UINT32_MAX, last = 0;
    Cycle work = 0;
    for (size_t k = jobs.size(); k-- > 0;) { // the longest tails first
      const Job &job = jobs[byTail[k]];
      if (job.head < bestHead)
        continue;
      work += job.length;
      first = std::min(first, job.placement);
      last = std::max(last, job.placement);
      if (bestHead * units + work + job.tail * units == best)
        break;
    }
    return {first, last};
  }

private:
  /// Of the jobs of a range that are in: their work, and the most of a tail and the work with no
  /// shorter one. Tails count `units` times.
  struct Node {
    Cycle work = 0, best = kNever;
  };
  const std::vector<Job> &jobs;
  const Cycle units;
  std::vector<uint32_t> byTail, byHead;
  size_t leaves = 1;
  std::vector<Node> nodes;
  Cycle best = kNever, bestHead = 0;

  void find() {
    std::vector<uint32_t> place(jobs.size());
    for (uint32_t k = 0; k < byTail.size(); ++k)
      place[byTail[k]] = k;
    for (const uint32_t j : byHead) {
      size_t n = leaves + place[j];
      nodes[n] = {jobs[j].length, jobs[j].length + jobs[j].tail * units};
      while (n /= 2) {
        const Node &left = nodes[2 * n], &right = nodes[2 * n + 1];
        nodes[n] = {left.work + right.work, std::max(right.best, left.best + right.work)};
      }
      if (const Cycle its = jobs[j].head * units + nodes[1].best; its > best)
        best = its, bestHead = jobs[j].head;
    }
    if (!jobs.empty())
      cycles = best >= 0 ? (best + units - 1) / units : best / units;
  }
};

class Bounder {
public:
  Bounder(const Image &image, const Program &program,
          const std::vector<std::vector<uint32_t>> &numbers)
      : image(image), program(program), machine(program.machine), timing(program.timing),
        placed(image, program, numbers), earliest(program.waits.placements.size(), kNever),
        rest(program.waits.placements.size(), kNever) {}

  Bounds run() {
    for (step = 0; step < image.steps.size(); ++step)
      if (image.steps[step].kind == Step::Kind::Grid)
        addStep();
    return std::move(bounds);
  }

private:
  /// Jobs of units that are alike: `units` of them share the work.
  struct Unit {
    std::vector<Job> jobs;
    Cycle units = 1, work = 0;
    uint32_t queue = 0; ///< of one of them
  };

  const Image &image;
  const Program &program;
  const Machine &machine;
  const Timing &timing;
  const PlacedImage placed;
  std::vector<Cycle> earliest; ///< by placement: start
  std::vector<Cycle> rest;     ///< by placement: from its start to the last write slot
  std::vector<Dependence> edges;
  unsigned step = 0;
  Bounds bounds;

  uint32_t placementOf(unsigned pe, uint32_t k) const { return placed.placementOf(pe, k); }
  Cycle at(unsigned pe, uint32_t k) const { return placed.at(pe, k); }
  template <class F> void forEachBurst(F f) const { placed.forEachBurst(step, f); }
  void addStep();
  void walk();
  void addUnits(StepBound &bound);
};

/// Earliest starts forward, rests backward: a piece is placed behind those that it takes from.
void Bounder::walk() {
  std::sort(edges.begin(), edges.end(),
            [](const Dependence &x, const Dependence &y) { return x.to < y.to; });
  for (const Dependence &e : edges)
    earliest[e.to] = std::max(earliest[e.to], earliest[e.from] + e.distance);
  for (size_t k = edges.size(); k-- > 0;)
    rest[edges[k].from] = std::max(rest[edges[k].from], edges[k].distance + rest[edges[k].to]);
}

void Bounder::addUnits(StepBound &bound) {
  const Resources resources(machine);
  std::map<std::pair<BoundKind, uint64_t>, Unit> units; ///< by PE and resource
  forEachBurst([&](unsigned pe, uint32_t k, const Instruction &i) {
    const uint32_t placement = placementOf(pe, k);
    const Cycle length = lastElementCycle(i) + 1;
    const Cycle from = at(pe, k);
    /// Held from `begin` on for `its` cycles, of which it works in `work`.
    const auto add = [&](BoundKind kind, uint32_t resource, Cycle begin, Cycle its, Cycle alike,
                         Cycle work) {
      Unit &unit = units[{kind, uint64_t(pe) << 32 | resource}];
      unit.units = alike;
      unit.queue = kind == BoundKind::Mxm ? resource : i.queue;
      unit.work += work;
      unit.jobs.push_back(
          {earliest[placement] + begin, work, rest[placement] - begin - its + 1, placement});
    };
    const millrace::Unit its = machine.unit(i.queue);
    switch (its.kind) {
    case UnitKind::MxmActivate:
      for (unsigned p = 0; p < machine.mxm.format(i.format)->planes; ++p)
        add(BoundKind::Mxm, machine.queue({its.kind, its.hemisphere, its.index + p}), from, length,
            1, length);
      break;
    case UnitKind::MxmInstall:
      add(BoundKind::Install, i.queue, from, length, 1, length);
      break;
    case UnitKind::Alu:
      add(BoundKind::Vxm, machine.queue({UnitKind::Alu, Hemisphere::West, 0}), from, length,
          machine.vxm.alus, length);
      break;
    case UnitKind::Mem: {
      const bool writes = i.opcode == Opcode::Write;
      add(writes ? BoundKind::WritePort : BoundKind::ReadPort, i.queue, from, length, 1, length);
      // A Gather may touch any of its banks; between elements others may use the bank (S5).
      if (i.opcode != Opcode::Gather)
        add(BoundKind::Bank,
            resources.bank(its.hemisphere, its.index, i.address / machine.memory.rowsPerBank),
            from + (writes ? timing.writeSlot() : 0), length, 1, i.elements());
      break;
    }
    case UnitKind::Send:
      add(BoundKind::Link, i.queue, from, length, 1, length);
      break;
    default:
      break;
    }
  });
  std::array<Cycle, kBoundKinds> most;
  most.fill(kNever);
  most[0] = bound.cycles;
  for (const auto &[key, unit] : units) {
    const auto kind = unsigned(key.first);
    Cycle longest = kNever; // of one job with what comes before and behind
    for (const Job &job : unit.jobs)
      longest = std::max(longest, job.head + job.tail);
    if (timing.countFrom(longest + unit.work - 1) <= most[kind])
      continue; // no set of its jobs gives more
    const SetBound set(unit.jobs, unit.units);
    const Cycle cycles = timing.countFrom(set.cycles - 1);
    most[kind] = std::max(most[kind], cycles);
    if (cycles <= bound.cycles)
      continue;
    bound.cycles = cycles;
    bound.kind = key.first;
    bound.pe = uint32_t(key.second >> 32);
    bound.queue = unit.queue;
    const auto [first, last] = set.placements();
    bound.firstKernel = program.waits.placements[first].kernel;
    bound.lastKernel = program.waits.placements[last].kernel;
  }
  for (unsigned kind = 0; kind < kBoundKinds; ++kind)
    bounds.byKind[kind] += std::max<Cycle>(most[kind], 0);
}

void Bounder::addStep() {
  forEachBurst([&](unsigned pe, uint32_t k, const Instruction &i) {
    const uint32_t placement = placementOf(pe, k);
    earliest[placement] = std::max(earliest[placement], -at(pe, k)); // no dispatch before 0
    if (i.opcode == Opcode::Write)
      rest[placement] =
          std::max(rest[placement], at(pe, k) + timing.writeSlot() + lastElementCycle(i));
  });
  edges = placed.dependences(step);
  walk();
  Cycle last = 0;
  forEachBurst([&](unsigned pe, uint32_t k, const Instruction &) {
    const uint32_t placement = placementOf(pe, k);
    last = std::max(last, earliest[placement] + rest[placement]);
  });
  StepBound bound{step, timing.countFrom(last)};
  addUnits(bound);
  bounds.cycles += bound.cycles;
  bounds.steps.push_back(bound);
}

} // namespace

std::string_view nameOf(BoundKind kind) {
  constexpr std::string_view kNames[kBoundKinds] = {
      "critical_path", "mxm", "install", "vxm", "read_port", "write_port", "bank", "link"};
  return kNames[unsigned(kind)];
}

Bounds boundsOf(const Image &image, const Program &program,
                const std::vector<std::vector<uint32_t>> &numbers) {
  return Bounder(image, program, numbers).run();
}

} // namespace millrace::schedule
