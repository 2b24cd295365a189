// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bursts of one piece that meet in a MEM slice: finding them, and moving one elsewhere.
#include "compiler/Schedule/Piece.h"

#include <algorithm>
#include <climits>

namespace millrace::schedule {

Piece::MemNeed Piece::memNeed(const Burst &b) const {
  const unsigned rowsPerBank = program.machine.memory.rowsPerBank;
  MemNeed need;
  need.at = b.at;
  need.length = lastElementCycle(b.proto) + 1;
  need.slice = b.unit.index;
  need.firstBank = need.lastBank = b.proto.address / rowsPerBank;
  if (b.proto.opcode == Opcode::Gather) // which rows it takes is data
    need.lastBank = program.lastRowOf(b.proto) / rowsPerBank;
  need.writes = b.proto.opcode == Opcode::Write;
  return need;
}

/// Of one hemisphere.
bool Piece::meet(const MemNeed &x, const MemNeed &y) const {
  const auto overlap = [](Cycle a, Cycle n, Cycle b, Cycle m) { return a < b + m && b < a + n; };
  if (x.slice != y.slice)
    return false;
  if (x.at == y.at || (x.writes == y.writes && overlap(x.at, x.length, y.at, y.length)))
    return true;
  const auto slot = [&](const MemNeed &need) {
    return need.at + (need.writes ? program.timing.writeSlot() : 0);
  };
  return x.firstBank <= y.lastBank && y.firstBank <= x.lastBank &&
         overlap(slot(x), x.length, slot(y), y.length);
}

std::optional<std::pair<Piece::BurstId, Piece::BurstId>> Piece::conflict() {
  return Conflicts(*this).next();
}

const Piece::Stream *Piece::streamOf(BurstId id) const {
  const auto isOf = [&](const auto &end) { return end.burst == id; };
  const auto found = std::find_if(streams.begin(), streams.end(), [&](const Stream &s) {
    return std::any_of(s.feeds.begin(), s.feeds.end(), isOf) ||
           std::any_of(s.taps.begin(), s.taps.end(), isOf);
  });
  return found == streams.end() ? nullptr : &*found;
}

Cycle Piece::dispatchIn(const Burst &b, const Stream *stream, unsigned slice) const {
  return stream ? b.at + diagonal(*stream, 0, program.machine.position(b.unit.index)) -
                      diagonal(*stream, 0, program.machine.position(slice))
                : b.at;
}

std::pair<unsigned, unsigned> Piece::slicesFor(BurstId id) const {
  const MemorySpec &memory = program.machine.memory;
  unsigned low = 0, high = UINT_MAX; // positions
  for (const Stream &s : streams) {
    const bool outward = s.direction == Direction::Outward;
    const auto isOf = [&](const auto &end) { return end.burst == id; };
    if (std::any_of(s.feeds.begin(), s.feeds.end(), isOf))
      for (const Tap &t : s.taps)
        outward ? high = std::min(high, t.position) : low = std::max(low, t.position);
    if (std::any_of(s.taps.begin(), s.taps.end(), isOf))
      for (const Feed &f : s.feeds)
        outward ? low = std::max(low, f.position) : high = std::min(high, f.position);
  }
  unsigned first = 0, last = memory.slices - 1; // positions grow with slices
  while (first < memory.slices && program.machine.position(first) < low)
    ++first;
  while (last > first && program.machine.position(last) > high)
    --last;
  if (first < memory.slices && program.machine.position(last) > high)
    first = memory.slices;
  return {first, last};
}

Piece::Conflicts::Conflicts(Piece &piece)
    : piece(piece),
      bySlice(piece.program.machine.pes() * kHemispheres * piece.program.machine.memory.slices) {
  for (BurstId b = 0; b < piece.bursts.size(); ++b)
    if (piece.bursts[b].unit.kind == UnitKind::Mem)
      sliceOf(b).push_back(b);
}

size_t Piece::Conflicts::placeOf(const Burst &b, unsigned slice) const {
  return (size_t(b.pe) * kHemispheres + size_t(b.unit.hemisphere)) *
             piece.program.machine.memory.slices +
         slice;
}

std::vector<Piece::BurstId> &Piece::Conflicts::sliceOf(BurstId b) {
  return bySlice[placeOf(piece.bursts[b], piece.bursts[b].unit.index)];
}

std::optional<std::pair<Piece::BurstId, Piece::BurstId>> Piece::Conflicts::next() {
  for (; at < bySlice.size(); ++at, first = 0, second = 1)
    for (const std::vector<BurstId> &ids = bySlice[at]; first < ids.size();
         ++first, second = first + 1)
      for (const MemNeed need = piece.memNeed(piece.bursts[ids[first]]); second < ids.size();
           ++second)
        if (piece.meet(need, piece.memNeed(piece.bursts[ids[second]])))
          return std::pair(ids[first], ids[second]);
  return std::nullopt;
}

std::vector<bool> Piece::Conflicts::freePlaces(BurstId id) const {
  const MemorySpec &memory = piece.program.machine.memory;
  const Burst &b = piece.bursts[id];
  std::vector<bool> isFree(size_t(memory.slices) * memory.banks, false);
  const Stream *stream = piece.streamOf(id);
  const auto [from, to] = piece.slicesFor(id);
  for (unsigned slice = from; slice <= to; ++slice) {
    MemNeed need = piece.memNeed(b);
    need.slice = slice;
    need.at = piece.dispatchIn(b, stream, slice);
    for (unsigned bank = 0; bank < memory.banks; ++bank) {
      need.firstBank = need.lastBank = bank;
      const std::vector<BurstId> &there = bySlice[placeOf(b, slice)];
      isFree[slice * memory.banks + bank] =
          std::none_of(there.begin(), there.end(), [&](BurstId other) {
            return other != id && piece.meet(need, piece.memNeed(piece.bursts[other]));
          });
    }
  }
  return isFree;
}

void Piece::Conflicts::move(BurstId id, unsigned slice, unsigned address, int32_t s0, int32_t s1,
                            uint32_t region) {
  std::vector<BurstId> &from = sliceOf(id);
  from.erase(std::find(from.begin(), from.end(), id));
  piece.moveRows(id, slice, address, s0, s1, region);
  std::vector<BurstId> &to = sliceOf(id);
  to.insert(std::lower_bound(to.begin(), to.end(), id), id);
  // Of the pair the other is left, or what came behind takes the first one's place. Into its own
  // slice it comes back where it was, or meets nothing there.
  second = first + 1;
}

void Piece::moveRows(BurstId id, unsigned slice, unsigned address, int32_t s0, int32_t s1,
                     uint32_t region) {
  const Cycle at = dispatchIn(bursts[id], streamOf(id), slice);
  const unsigned position = program.machine.position(slice);
  for (Stream &s : streams) {
    for (Feed &f : s.feeds)
      if (f.burst == id)
        f.position = position;
    for (Tap &t : s.taps)
      if (t.burst == id)
        t.position = position;
  }
  Burst &b = bursts[id];
  b.at = at;
  b.unit.index = slice;
  b.proto.address = address;
  b.proto.s0 = s0;
  b.proto.s1 = s1;
  b.proto.tensor = region;
}

} // namespace millrace::schedule
