// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Bounds.h"

#include "compiler/Schedule/Dependences.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

namespace millrace::schedule {

namespace {

/// Work of a piece on a unit: not before `head`, and from its end to what is waited for are at
/// least `tail` cycles.
struct Job {
  Cycle head = 0, work = 0, tail = 0;
  uint32_t piece = 0;
};

/// A set of jobs of a unit.
struct JobSet {
  Cycle work = 0;         ///< of the unit, in cycles
  Job earliest, shortest; ///< the one of the earliest head, and the one of the shortest tail
  uint32_t firstPiece = UINT32_MAX, lastPiece = 0;
};

/// The largest head + work / `units` + tail over all sets of jobs: of those that begin no earlier
/// than one and whose tails are no shorter than that of another.
class SetBound {
public:
  SetBound(std::vector<Job> its, Cycle units) : jobs(std::move(its)), units(units) {
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
  Cycle cycles = kNever; ///< from the begin to what is waited for
  JobSet set() const {
    JobSet all;
    all.earliest = jobs[bestJob];
    Cycle work = 0;
    for (size_t k = jobs.size(); k-- > 0;) { // the longest tails first
      const Job &job = jobs[byTail[k]];
      if (job.head < jobs[bestJob].head)
        continue;
      work += job.work;
      all.firstPiece = std::min(all.firstPiece, job.piece);
      all.lastPiece = std::max(all.lastPiece, job.piece);
      all.shortest = job;
      if ((jobs[bestJob].head + job.tail) * units + work == best)
        break;
    }
    all.work = cycles - all.earliest.head - all.shortest.tail;
    return all;
  }

private:
  /// Of the jobs of a range that are in: their work, and the most of a tail and the work with no
  /// shorter one. Tails count `units` times.
  struct Node {
    Cycle work = 0, best = kNever;
  };
  const std::vector<Job> jobs;
  const Cycle units;
  std::vector<uint32_t> byTail, byHead;
  size_t leaves = 1;
  std::vector<Node> nodes;
  Cycle best = kNever;
  uint32_t bestJob = 0;

  void find() {
    std::vector<uint32_t> place(jobs.size());
    for (uint32_t k = 0; k < byTail.size(); ++k)
      place[byTail[k]] = k;
    for (const uint32_t j : byHead) {
      size_t n = leaves + place[j];
      nodes[n] = {jobs[j].work, jobs[j].work + jobs[j].tail * units};
      while (n /= 2) {
        const Node &left = nodes[2 * n], &right = nodes[2 * n + 1];
        nodes[n] = {left.work + right.work, std::max(right.best, left.best + right.work)};
      }
      if (const Cycle its = jobs[j].head * units + nodes[1].best; its > best)
        best = its, bestJob = j;
    }
    if (!jobs.empty())
      cycles = best >= 0 ? (best + units - 1) / units : best / units;
  }
};

/// Cycles that `work` takes if `units` share it.
Cycle inAll(Cycle work, Cycle units) { return (work + units - 1) / units; }

/// Like resources of a PE: `units` of them share the work.
struct UnitGroup {
  BoundKind kind = BoundKind::Mxm;
  uint32_t pe = 0, queue = 0; ///< the queue is that of one of them
  Cycle units = 1;
};

/// What a piece holds of a unit: `work` cycles, from `begin` behind its start up to `end`.
struct Hold {
  uint32_t piece = 0, unit = 0;
  Cycle begin = 0, end = 0, work = 0;
};

/// Of each key the items that have it, in one piece of memory.
template <class T> class Lists {
public:
  template <class KeyOf>
  Lists(size_t keys, const std::vector<T> &items, KeyOf keyOf)
      : first(keys + 1), all(items.size()) {
    for (const T &item : items)
      ++first[keyOf(item) + 1];
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (const T &item : items)
      all[next[keyOf(item)]++] = item;
  }
  std::span<const T> of(uint32_t key) const {
    return {all.data() + first[key], all.data() + first[key + 1]};
  }

private:
  std::vector<uint32_t> first;
  std::vector<T> all;
};

/// What the bursts of a grid step hold, and what its pieces take from each other. Pieces are
/// numbered as placements, from 0 on; they take from those before them.
struct StepWork {
  uint32_t first = 0; ///< placement of piece 0
  uint32_t pieces = 0;
  std::vector<UnitGroup> units;
  std::vector<Hold> holds;       ///< one of a piece and a unit
  std::vector<Dependence> edges; ///< one of two pieces
  std::vector<Cycle> earliest;   ///< by piece: start, as far as its own bursts say
  std::vector<Cycle> rest;       ///< from its start to the last write slot, likewise
};

/// Pieces, and how far each is from what lies before and behind: `head` from the begin to its
/// start, `tail` from its start to what is waited for; kNever of pieces that are not reached.
struct Reach {
  const std::vector<Cycle> &head, &tail;
};

/// What gives the start of a piece, or its rest: that of another, and the cycles between.
struct Reason {
  uint32_t piece = kNobody; ///< none: its own bursts give it
  Cycle cycles = 0;
  uint32_t unit = kNobody; ///< whose set of jobs lies between; none: one takes from the other
  JobSet set;
};

/// Parts of a bound in order of time: sets of jobs, those that follow each other on like units as
/// one, and what lies between.
class Parts {
public:
  Parts(const std::vector<PlacedPiece> &placements, const StepWork &work)
      : placements(placements), work(work) {}
  void add(Cycle cycles) { chain += cycles; }
  void add(uint32_t unit, const JobSet &set) {
    const UnitGroup &its = work.units[unit];
    const auto kernel = [&](uint32_t piece) { return placements[work.first + piece].kernel; };
    if (parts.empty() || parts.back().kind != its.kind || parts.back().pe != its.pe) {
      endChain();
      parts.push_back({its.kind, its.pe, its.queue, kernel(set.firstPiece)});
    }
    parts.back().cycles += set.work;
    parts.back().lastKernel = kernel(set.lastPiece);
  }
  void add(const Reason &reason) {
    if (reason.unit != kNobody)
      add(reason.unit, reason.set);
    add(reason.cycles - reason.set.work);
  }
  std::vector<BoundPart> take() {
    endChain();
    return std::move(parts);
  }

private:
  const std::vector<PlacedPiece> &placements;
  const StepWork &work;
  std::vector<BoundPart> parts;
  Cycle chain = 0;

  /// What begins before a set ends takes from what the set adds.
  void endChain() {
    if (chain < 0 && !parts.empty())
      parts.back().cycles += chain;
    else if (chain != 0)
      parts.push_back({BoundKind::CriticalPath, 0, 0, kNobody, kNobody, chain});
    chain = 0;
  }
};

/// The bound of a step. Starts and rests of pieces follow from chains of pieces and, at gates, from
/// all work before or behind: no unit that does some of it is through sooner.
class Bounder {
public:
  Bounder(const Program &program, StepWork its)
      : program(program), work(std::move(its)),
        holdsOfPiece(work.pieces, work.holds, [](const Hold &h) { return h.piece; }),
        holdsOfUnit(work.units.size(), work.holds, [](const Hold &h) { return h.unit; }),
        into(work.pieces, work.edges, [](const Dependence &e) { return e.to; }),
        outOf(work.pieces, work.edges, [](const Dependence &e) { return e.from; }),
        before(work.pieces), behind(work.pieces), distance(work.pieces, kNever),
        spansOf(work.units.size()), isUsed(work.units.size()) {}

  void addTo(Bounds &bounds, unsigned step) {
    walk(std::vector<bool>(work.pieces));
    std::array<Cycle, kBoundKinds> most;
    most.fill(kNever);
    most[0] = longestWay();
    for (uint32_t u = 0; u < work.units.size(); ++u)
      raise(most[unsigned(work.units[u].kind)], whole, u);
    for (unsigned kind = 0; kind < kBoundKinds; ++kind)
      if (most[kind] != kNever)
        bounds.byKind[kind] += program.timing.countFrom(most[kind]);

    walk(gates());
    Cycle cycles = longestWay();
    std::optional<JobSet> set;
    uint32_t unit = 0;
    for (uint32_t u = 0; u < work.units.size(); ++u)
      if (std::optional<JobSet> its = raise(cycles, whole, u))
        set = its, unit = u;
    StepBound bound{step, program.timing.countFrom(cycles), {}};
    Parts parts(program.waits.placements, work);
    parts.add(program.timing.countFrom(0));
    if (set) {
      const uint32_t from = set->earliest.piece, to = set->shortest.piece;
      addBefore(parts, from);
      parts.add(set->earliest.head - work.earliest[from]);
      parts.add(unit, *set);
      parts.add(set->shortest.tail - work.rest[to]);
      addBehind(parts, to);
    } else if (work.pieces > 0) {
      addBefore(parts, middle());
      addBehind(parts, middle());
    }
    bound.parts = parts.take();
    bounds.cycles += bound.cycles;
    bounds.steps.push_back(std::move(bound));
  }

private:
  enum class Side { Before, Behind };
  /// Work of a unit that begins, or ends, in a span of time.
  struct Span {
    Cycle work = 0, head = -kNever, tail = -kNever; ///< the earliest head, the shortest tail
  };
  static constexpr Cycle kSpans = 32;
  static constexpr size_t kRanked = 2; ///< units of a gate whose sets are looked at
  /// Holds and dependences that gates look at; half a second.
  static constexpr uint64_t kGateWork = 60'000'000;

  const Program &program;
  StepWork work;
  const Lists<Hold> holdsOfPiece, holdsOfUnit;
  const Lists<Dependence> into, outOf;
  std::vector<Reason> before, behind; ///< by piece: of its earliest start, of its rest
  const Reach whole{work.earliest, work.rest};
  std::vector<Cycle> distance; ///< by piece, to or from a gate
  /// By unit: spans of the heads of its jobs, then of their tails.
  std::vector<std::array<Span, 2 * kSpans>> spansOf;
  std::vector<bool> isUsed;

  Cycle through(uint32_t p) const { return work.earliest[p] + work.rest[p]; }
  /// A piece of the longest way.
  uint32_t middle() const {
    uint32_t most = 0;
    for (uint32_t p = 0; p < work.pieces; ++p)
      if (through(p) > through(most))
        most = p;
    return most;
  }
  Cycle longestWay() const { return work.pieces > 0 ? through(middle()) : 0; }
  /// The first and the last piece of each kernel; where that is too much work, the last one; where
  /// that is, of some kernels.
  std::vector<bool> gates() const {
    const auto kernel = [&](uint32_t p) { return program.waits.placements[work.first + p].kernel; };
    std::vector<uint32_t> firsts, lasts;
    for (uint32_t p = 0; p < work.pieces; ++p) {
      if (p == 0 || kernel(p) != kernel(p - 1))
        firsts.push_back(p);
      if (p + 1 == work.pieces || kernel(p) != kernel(p + 1))
        lasts.push_back(p);
    }
    const uint64_t most = kGateWork / (1 + work.holds.size() + work.edges.size());
    std::vector<bool> all(work.pieces);
    for (const uint32_t p : firsts)
      all[p] = firsts.size() + lasts.size() <= most;
    const size_t stride = 1 + lasts.size() / (most + 1);
    for (size_t n = lasts.size(); n-- > 0;)
      if ((lasts.size() - 1 - n) % stride == 0)
        all[lasts[n]] = true;
    return all;
  }
  /// Starts forward and rests backward.
  void walk(const std::vector<bool> &gates) {
    for (uint32_t p = 0; p < work.pieces; ++p) {
      for (const Dependence &e : into.of(p))
        if (const Cycle its = work.earliest[e.from] + e.distance; its > work.earliest[p])
          work.earliest[p] = its, before[p] = {e.from, e.distance, kNobody, {}};
      if (gates[p])
        raiseAt(p, Side::Before);
    }
    for (uint32_t p = work.pieces; p-- > 0;) {
      for (const Dependence &e : outOf.of(p))
        if (const Cycle its = e.distance + work.rest[e.to]; its > work.rest[p])
          work.rest[p] = its, behind[p] = {e.to, e.distance, kNobody, {}};
      if (gates[p])
        raiseAt(p, Side::Behind);
    }
  }
  /// Of all work on one side of a gate, that of the units that seem to be through last: to the
  /// gate, or from it.
  void raiseAt(uint32_t gate, Side side) {
    const bool isBefore = side == Side::Before;
    const Reach set{isBefore ? work.earliest : distance, isBefore ? distance : work.rest};
    Cycle &cycles = isBefore ? work.earliest[gate] : work.rest[gate];
    const std::vector<uint32_t> reached = reach(gate, side);
    distance[gate] = kNever; // its own work is on neither side
    for (const uint32_t unit : busiest(set, reached, cycles)) {
      const std::optional<JobSet> jobs = raise(cycles, set, unit);
      if (!jobs)
        continue;
      const uint32_t other = isBefore ? jobs->earliest.piece : jobs->shortest.piece;
      (isBefore ? before : behind)[gate] = {
          other, cycles - (isBefore ? work.earliest : work.rest)[other], unit, *jobs};
    }
    for (const uint32_t p : reached)
      distance[p] = kNever;
  }
  /// The pieces on a side of a gate that it takes from, or that take from it; their distances.
  std::vector<uint32_t> reach(uint32_t gate, Side side) {
    std::vector<uint32_t> reached;
    distance[gate] = 0;
    const int step = side == Side::Before ? -1 : 1;
    for (int64_t p = gate; p >= 0 && p < work.pieces; p += step) {
      if (distance[p] == kNever)
        continue;
      if (p != gate)
        reached.push_back(uint32_t(p));
      for (const Dependence &e : (side == Side::Before ? into : outOf).of(uint32_t(p))) {
        Cycle &its = distance[side == Side::Before ? e.from : e.to];
        its = std::max(its, distance[p] + e.distance);
      }
    }
    return reached;
  }
  /// Units of most cycles by two kinds of sets: jobs whose heads, or whose tails, begin in a span
  /// of `cycles` or a later one.
  std::vector<uint32_t> busiest(const Reach &set, const std::vector<uint32_t> &pieces,
                                Cycle cycles) {
    const auto spanOf = [&](Cycle at) {
      return size_t(std::clamp<Cycle>(at * kSpans / std::max<Cycle>(cycles, 1), 0, kSpans - 1));
    };
    std::vector<uint32_t> used;
    for (const uint32_t p : pieces)
      for (const Hold &h : holdsOfPiece.of(p)) {
        const Cycle head = set.head[p] + h.begin, tail = set.tail[p] - h.end;
        if (!isUsed[h.unit])
          used.push_back(h.unit), isUsed[h.unit] = true;
        for (const size_t n : {spanOf(head), size_t(kSpans) + spanOf(tail)}) {
          Span &span = spansOf[h.unit][n];
          span.work += h.work;
          span.head = std::min(span.head, head);
          span.tail = std::min(span.tail, tail);
        }
      }
    std::vector<std::pair<Cycle, uint32_t>> ranked;
    for (const uint32_t u : used) {
      Cycle most = kNever;
      Span from;
      for (size_t n = 2 * kSpans; n-- > 0;) {
        if (n + 1 == kSpans)
          from = {}; // heads
        const Span span = std::exchange(spansOf[u][n], {});
        if (span.work == 0)
          continue;
        from = {from.work + span.work, std::min(from.head, span.head),
                std::min(from.tail, span.tail)};
        most = std::max(most, from.head + inAll(from.work, work.units[u].units) + from.tail);
      }
      isUsed[u] = false;
      ranked.emplace_back(most, u);
    }
    const size_t count = std::min(kRanked, ranked.size());
    std::partial_sort(ranked.begin(), ranked.begin() + count, ranked.end(), std::greater<>());
    std::vector<uint32_t> units;
    for (size_t n = 0; n < count; ++n)
      units.push_back(ranked[n].second);
    return units;
  }
  std::vector<Job> jobsOf(const Reach &set, uint32_t unit) const {
    std::vector<Job> jobs;
    for (const Hold &h : holdsOfUnit.of(unit)) {
      const Cycle head = set.head[h.piece], tail = set.tail[h.piece];
      if (head != kNever && tail != kNever)
        jobs.push_back({head + h.begin, h.work, tail - h.end, h.piece});
    }
    return jobs;
  }
  /// To what the jobs of a unit take, and the set that takes it, if that is more.
  std::optional<JobSet> raise(Cycle &cycles, const Reach &reach, uint32_t unit) const {
    const Cycle units = work.units[unit].units;
    std::vector<Job> jobs = jobsOf(reach, unit);
    Cycle longest = kNever, sum = 0; // of one job with what comes before and behind
    for (const Job &job : jobs)
      longest = std::max(longest, job.head + job.tail), sum += job.work;
    if (longest + inAll(sum, units) <= cycles)
      return std::nullopt; // no set of them takes more
    const SetBound bound(std::move(jobs), units);
    if (bound.cycles <= cycles)
      return std::nullopt;
    cycles = bound.cycles;
    return bound.set();
  }
  /// Adds the way from the begin to a piece's earliest start.
  void addBefore(Parts &parts, uint32_t piece) const {
    std::vector<uint32_t> way;
    for (; before[piece].piece != kNobody; piece = before[piece].piece)
      way.push_back(piece);
    parts.add(work.earliest[piece]);
    for (size_t n = way.size(); n-- > 0;)
      parts.add(before[way[n]]);
  }
  /// Adds a piece's rest.
  void addBehind(Parts &parts, uint32_t piece) const {
    for (; behind[piece].piece != kNobody; piece = behind[piece].piece)
      parts.add(behind[piece]);
    parts.add(work.rest[piece]);
  }
};

/// One item of those that have one key, by `merge`; in the order of keys.
template <class T, class KeyOf, class Merge>
std::vector<T> merged(std::vector<T> items, KeyOf keyOf, Merge merge) {
  std::sort(items.begin(), items.end(),
            [&](const T &x, const T &y) { return keyOf(x) < keyOf(y); });
  std::vector<T> all;
  for (const T &item : items)
    if (all.empty() || keyOf(all.back()) != keyOf(item))
      all.push_back(item);
    else
      merge(all.back(), item);
  return all;
}

/// What the bursts of a step hold, and what its pieces take.
StepWork workOf(const Program &program, const PlacedImage &placed, unsigned step) {
  const Machine &machine = program.machine;
  const Timing &timing = program.timing;
  const Resources resources(machine);
  StepWork work;
  uint32_t end = 0;
  work.first = UINT32_MAX;
  placed.forEachBurst(step, [&](unsigned pe, uint32_t k, const Instruction &) {
    work.first = std::min(work.first, placed.placementOf(pe, k));
    end = std::max(end, placed.placementOf(pe, k) + 1);
  });
  work.pieces = end - std::min(work.first, end);
  work.earliest.resize(work.pieces, kNever);
  work.rest.resize(work.pieces, kNever);
  work.edges = merged(
      placed.dependences(step), [](const Dependence &e) { return std::pair(e.to, e.from); },
      [](Dependence &all, const Dependence &e) {
        all.distance = std::max(all.distance, e.distance);
      });
  for (Dependence &e : work.edges)
    e.from -= work.first, e.to -= work.first;
  std::map<std::tuple<BoundKind, unsigned, uint32_t>, uint32_t> numbers; // by PE and resource
  std::vector<Hold> holds;
  placed.forEachBurst(step, [&](unsigned pe, uint32_t k, const Instruction &i) {
    const uint32_t piece = placed.placementOf(pe, k) - work.first;
    const Cycle length = lastElementCycle(i) + 1;
    const Cycle from = placed.at(pe, k);
    work.earliest[piece] = std::max(work.earliest[piece], -from); // no dispatch before 0
    if (i.opcode == Opcode::Write)
      work.rest[piece] = std::max(work.rest[piece], from + timing.writeSlot() + length - 1);
    const auto hold = [&](BoundKind kind, uint32_t resource, uint32_t queue, Cycle begin,
                          Cycle cycles, Cycle units = 1) {
      const auto [at, isNew] = numbers.try_emplace({kind, pe, resource}, work.units.size());
      if (isNew)
        work.units.push_back({kind, pe, queue, units});
      holds.push_back({piece, at->second, begin, begin + cycles, cycles});
    };
    const Unit its = machine.unit(i.queue);
    switch (its.kind) {
    case UnitKind::MxmActivate:
      for (unsigned p = 0; p < machine.mxm.format(i.format)->planes; ++p) {
        const uint32_t queue = machine.queue({its.kind, its.hemisphere, its.index + p});
        hold(BoundKind::Mxm, queue, queue, from, length);
      }
      break;
    case UnitKind::MxmInstall:
      hold(BoundKind::Install, i.queue, i.queue, from, length);
      break;
    case UnitKind::Alu:
      hold(BoundKind::Vxm, 0, i.queue, from, length, machine.vxm.alus);
      break;
    case UnitKind::Mem: {
      const bool writes = i.opcode == Opcode::Write;
      hold(writes ? BoundKind::WritePort : BoundKind::ReadPort, i.queue, i.queue, from, length);
      // A Gather may touch any of its banks; between elements others may use the bank (S5).
      if (i.opcode != Opcode::Gather)
        hold(BoundKind::Bank,
             resources.bank(its.hemisphere, its.index, i.address / machine.memory.rowsPerBank),
             i.queue, from + (writes ? timing.writeSlot() : 0), i.elements());
      break;
    }
    case UnitKind::Send:
      hold(BoundKind::Link, i.queue, i.queue, from, length);
      break;
    default:
      break;
    }
  });
  work.holds = merged(
      std::move(holds), [](const Hold &h) { return std::pair(h.piece, h.unit); },
      [](Hold &all, const Hold &h) {
        all.begin = std::min(all.begin, h.begin);
        all.end = std::max(all.end, h.end);
        all.work += h.work;
      });
  return work;
}

} // namespace

std::string_view nameOf(BoundKind kind) {
  constexpr std::string_view kNames[kBoundKinds] = {
      "critical_path", "mxm", "install", "vxm", "read_port", "write_port", "bank", "link"};
  return kNames[unsigned(kind)];
}

Bounds boundsOf(const Image &image, const Program &program,
                const std::vector<std::vector<uint32_t>> &numbers) {
  const PlacedImage placed(image, program, numbers);
  Bounds bounds;
  for (unsigned step = 0; step < image.steps.size(); ++step)
    if (image.steps[step].kind == Step::Kind::Grid)
      Bounder(program, workOf(program, placed, step)).addTo(bounds, step);
  return bounds;
}

} // namespace millrace::schedule
