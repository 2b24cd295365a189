// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The earliest start of a piece, and why it is none earlier.
#include "compiler/Schedule/Piece.h"

#include <algorithm>

namespace millrace::schedule {

/// Raises `bound` to the first start at which the burst may touch the state that it needs.
void Piece::raise(Obstacle &bound, BurstId id) const {
  const Burst &b = bursts[id];
  const Timing &timing = program.timing;
  const Machine &m = program.machine;
  const Resources resources(m);
  PeState &state = program.state[b.pe];
  const Instruction &i = b.proto;
  const Hemisphere h = b.unit.hemisphere;
  const unsigned index = b.unit.index;
  /// Element `offset` after the dispatch not before `cycle`; true if nothing else asks for more.
  const auto need = [&](Cycle cycle, Cycle offset, Cause cause) {
    if (cycle - b.at - offset <= bound.until)
      return false;
    bound = {cycle - b.at - offset, cause, id};
    return true;
  };
  const auto heldBy = [&](uint32_t resource, Cycle at) {
    bound.resource = resource;
    bound.heldAt = at;
  };
  const auto unit = [&](UnitKind kind, unsigned plane) {
    return resources.unit(m.queue({kind, h, plane}));
  };
  switch (i.opcode) {
  case Opcode::Read:
    forEachElement(i, [&](unsigned i0, unsigned i1) {
      const RowState &row = state.row(h, index, elementAddress(i, i0, i1));
      if (need(row.writeSlot + timing.readAfterWrite(), elementCycle(i, i0, i1), Cause::Dependence))
        bound.holder = row.origin.instruction;
    });
    break;
  case Opcode::Gather:
    for (unsigned address = i.address; address <= program.lastRowOf(i); ++address) {
      const RowState &row = state.row(h, index, address);
      if (need(row.writeSlot + timing.readAfterWrite(), 0, Cause::Dependence))
        bound.holder = row.origin.instruction;
    }
    break;
  case Opcode::Write: {
    if (program.ignoresMemory)
      break;
    const Cycle slot = timing.writeSlot();
    const Cycle over = program.regions[i.tensor].notBefore;
    if (need(over + 1, slot, Cause::MemoryReuse))
      heldBy(resources.bank(h, index, i.address / m.memory.rowsPerBank), over);
    forEachElement(i, [&](unsigned i0, unsigned i1) {
      const RowState &row = state.row(h, index, elementAddress(i, i0, i1));
      if (need(row.lastRead + 1, slot + elementCycle(i, i0, i1), Cause::MemoryReuse))
        heldBy(resources.readPort(h, index), row.lastRead);
      if (need(row.writeSlot + 1, slot + elementCycle(i, i0, i1), Cause::MemoryReuse))
        bound.holder = row.origin.instruction;
    });
    break;
  }
  case Opcode::Install: {
    const BufferState &buffer = state.buffer(h, index, i.buffer);
    forEachElement(i, [&](unsigned i0, unsigned i1) {
      const unsigned group = elementAddress(i, i0, i1);
      const Cycle offset = elementCycle(i, i0, i1);
      if (need(buffer.lastActivate[group] + group + 1, offset, Cause::BufferReuse))
        heldBy(unit(UnitKind::MxmActivate, index), buffer.lastActivate[group]);
      if (need(buffer.installed[group] + 1, offset, Cause::BufferReuse))
        heldBy(unit(UnitKind::MxmInstall, index), buffer.installed[group]);
    });
    break;
  }
  case Opcode::Activate:
    for (unsigned plane = 0; plane < m.mxm.format(i.format)->planes; ++plane) {
      const BufferState &buffer = state.buffer(h, index + plane, i.buffer);
      for (unsigned group = i.g0; group < i.g1; ++group)
        if (need(buffer.installed[group] - Cycle(group) + timing.installToActivate(), 0,
                 Cause::Install))
          heldBy(unit(UnitKind::MxmInstall, index + plane), buffer.installed[group]);
    }
    break;
  case Opcode::Accumulate: {
    const bool adds = i.function & AccumulateMode::Add;
    forEachElement(i, [&](unsigned i0, unsigned i1) {
      const Cycle last = state.accumulator(h, index, elementAddress(i, i0, i1));
      if (need(last + timing.accumulateInterval(), elementCycle(i, i0, i1),
               adds ? Cause::AccumulateInterval : Cause::AccumulatorRow))
        heldBy(unit(UnitKind::MxmAccumulate, index), last);
    });
    break;
  }
  default:
    break;
  }
}

Piece::Obstacle Piece::lowerBound() const {
  const bool first = program.step() == 0;
  Obstacle bound{0, first ? Cause::StepBegin : Cause::HostBarrier};
  for (BurstId b = 0; b < bursts.size(); ++b) {
    if (-bursts[b].at > bound.until) // no dispatch before cycle 0
      bound = {-bursts[b].at, first ? Cause::StepBegin : Cause::HostBarrier, b};
    raise(bound, b);
  }
  return bound;
}

/// The burst for which byte `byte` of the stream is held longest: the last to sample it, else to
/// feed it.
Piece::BurstId Piece::longestOn(const Stream &s, unsigned byte) const {
  const Tap *last = nullptr;
  for (const Tap &t : s.taps)
    if (byte >= t.byte && byte < t.byte + t.width &&
        (!last || (s.direction == Direction::Outward ? t.position > last->position
                                                     : t.position < last->position)))
      last = &t;
  if (last)
    return last->burst;
  for (const Feed &f : s.feeds)
    if (byte >= f.byte && byte < f.byte + f.width)
      return f.burst;
  return kNoBurst;
}

/// Of the stream whose place misfitStreams() did not find, with the base that is free first.
Piece::Obstacle Piece::obstacleOf(const Stream &s, Cycle start, Cycle wait) const {
  Obstacle obstacle{start + wait, Cause::Stream};
  for (unsigned byte = 0; byte < s.width; ++byte) {
    Rectangle r = s.needs[byte];
    r.d0 += start;
    r.d1 += start;
    obstacle.burst = longestOn(s, byte);
    const Rectangle *held =
        program.occupancy[s.pe]
            .streams[program.machine.stream(s.hemisphere, s.direction, s.base + byte)]
            .conflict(r);
    if (held && held->d1 + 1 - r.d0 == wait) {
      obstacle.holder = held->holder;
      break;
    }
  }
  return obstacle;
}

/// What keeps the piece from `start`, and the start to try next; nothing if it fits.
std::optional<Piece::Obstacle> Piece::misfit(Cycle start) {
  for (const Hold &h : holds)
    if (Cycle free = h.set->firstFree(start + h.at, h.length); free != start + h.at)
      return Obstacle{free - h.at, h.cause, h.burst, h.resource, free - 1};
  for (const DispatchNeed &d : dispatchNeeds)
    if (d.set->has(start + d.at))
      return Obstacle{start + 1, Cause::Dispatch, d.burst, d.otherPort, start + d.at};
  // A choice that only this piece's other choices block may be free one cycle later.
  unsigned which = 0;
  if (const Cycle wait = misfitAlus(start, false, &which)) {
    if (wait == kNoShift)
      return Obstacle{start + 1, Cause::Alu, alus[which].lastBurst};
    const AluNeed &need = alus[which];
    const unsigned queue = program.machine.queue({UnitKind::Alu, Hemisphere::West, need.chosen});
    return Obstacle{start + wait, Cause::Alu, need.lastBurst,
                    Resources(program.machine).unit(queue), start + wait + need.at - 1};
  }
  if (const Cycle wait = misfitStreams(start, false, &which))
    return wait == kNoShift ? Obstacle{start + 1, Cause::Stream, longestOn(streams[which], 0)}
                            : obstacleOf(streams[which], start, wait);
  return std::nullopt;
}

Expected<Cycle> Piece::place(Cycle from) {
  if (!wrong.empty())
    return Error{wrong};
  collectNeeds();
  if (Status s = checkHolds(); !s)
    return s.takeError();
  if (clashes()) {
    program.crowded = true;
    return Error{"two bursts that belong together leave one MEM queue in one cycle; use a machine "
                 "with more slices, or cut the node into several"};
  }
  if (Status s = orderChoices(); !s)
    return s.takeError();
  std::vector<Obstacle> obstacles{lowerBound()};
  if (const Obstacle bound = obstacles.back(); bound.cause == Cause::AccumulateInterval) {
    obstacles.front().until -= program.timing.accumulateInterval() - 1; // the pass before is there
    obstacles.front().cause = Cause::PartialSum;
    obstacles.push_back(bound);
  }
  if (from > obstacles.back().until)
    obstacles.push_back({from, Cause::Order});
  while (std::optional<Obstacle> obstacle = misfit(obstacles.back().until))
    if (Obstacle &last = obstacles.back(); obstacle->isAsBefore(last))
      last = *obstacle;
    else
      obstacles.push_back(*obstacle);
  const Cycle start = obstacles.back().until;
  emit(start);
  reserve(start);
  note(start, obstacles);
  if (!wrong.empty())
    return Error{wrong};
  return start;
}

void Piece::reserve(Cycle start) {
  const Machine &m = program.machine;
  const Resources resources(m);
  std::vector<std::vector<Held>> &held = program.waits.held.back();
  for (const Hold &h : holds) {
    h.set->reserve(start + h.at, h.length);
    const Burst &b = bursts[h.burst];
    held[b.pe].push_back({start + h.at, start + h.at + h.length - 1, h.resource, b.id});
  }
  for (const DispatchNeed &d : dispatchNeeds)
    d.set->insert(start + d.at);
  for (const AluNeed &need : alus) {
    const unsigned queue = m.queue({UnitKind::Alu, Hemisphere::West, need.chosen});
    program.occupancy[need.pe].units[queue].reserve(start + need.at, need.last - need.at + 1);
    held[need.pe].push_back(
        {start + need.at, start + need.last, resources.unit(queue), bursts[need.lastBurst].id});
  }
  for (const Stream &s : streams)
    for (unsigned byte = 0; byte < s.width; ++byte) {
      Rectangle r = s.needs[byte];
      if (r.d1 < r.d0)
        continue; // a byte of the group that nothing uses
      r.d0 += start;
      r.d1 += start;
      r.holder = bursts[longestOn(s, byte)].id;
      program.occupancy[s.pe].streams[m.stream(s.hemisphere, s.direction, s.base + byte)].reserve(
          r);
    }
}

/// Why the piece starts in `start`, for the ledger.
void Piece::note(Cycle start, const std::vector<Obstacle> &obstacles) {
  Waits &waits = program.waits;
  const auto placement = uint32_t(waits.placements.size());
  waits.placements.push_back({start, waits.kernel, uint32_t(waits.waits.size())});
  for (const Obstacle &o : obstacles) {
    Wait wait{o.until, o.heldAt, 0, kNobody, o.holder, o.resource, o.cause};
    if (o.burst != kNoBurst) {
      wait.pe = bursts[o.burst].pe;
      wait.burst = bursts[o.burst].id;
    }
    waits.waits.push_back(wait);
  }
  for (const Burst &b : bursts)
    program.pes[b.pe].placements[b.id] = placement;
}

} // namespace millrace::schedule
