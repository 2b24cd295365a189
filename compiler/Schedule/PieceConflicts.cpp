// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bursts of one piece that meet in a MEM slice: finding them, and moving one elsewhere.
#include "compiler/Schedule/Piece.h"

#include <algorithm>

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

std::optional<std::pair<Piece::BurstId, Piece::BurstId>> Piece::conflict() const {
  std::vector<BurstId> ids;
  for (BurstId b = 0; b < bursts.size(); ++b)
    if (bursts[b].unit.kind == UnitKind::Mem)
      ids.push_back(b);
  const auto place = [&](BurstId b) {
    return std::tuple(bursts[b].pe, bursts[b].unit.hemisphere, bursts[b].unit.index);
  };
  std::stable_sort(ids.begin(), ids.end(),
                   [&](BurstId x, BurstId y) { return place(x) < place(y); });
  for (size_t i = 0; i < ids.size(); ++i)
    for (size_t k = i + 1; k < ids.size() && place(ids[k]) == place(ids[i]); ++k)
      if (meet(memNeed(bursts[ids[i]]), memNeed(bursts[ids[k]])))
        return std::pair(ids[i], ids[k]);
  return std::nullopt;
}

Cycle Piece::dispatchIn(BurstId id, unsigned slice) const {
  const unsigned from = program.machine.position(bursts[id].unit.index),
                 to = program.machine.position(slice);
  for (const Stream &s : streams) {
    const auto isOf = [&](const auto &end) { return end.burst == id; };
    if (std::any_of(s.feeds.begin(), s.feeds.end(), isOf) ||
        std::any_of(s.taps.begin(), s.taps.end(), isOf))
      return bursts[id].at + diagonal(s, 0, from) - diagonal(s, 0, to);
  }
  return bursts[id].at;
}

bool Piece::fits(BurstId id, unsigned slice, unsigned bank) const {
  const Burst &b = bursts[id];
  const unsigned position = program.machine.position(slice);
  for (const Stream &s : streams) {
    const auto isBefore = [&](unsigned x, unsigned y) {
      return s.direction == Direction::Outward ? x <= y : x >= y;
    };
    for (const Feed &f : s.feeds)
      for (const Tap &t : s.taps)
        if ((f.burst == id && !isBefore(position, t.position)) ||
            (t.burst == id && !isBefore(f.position, position)))
          return false;
  }
  MemNeed need = memNeed(b);
  need.slice = slice;
  need.firstBank = need.lastBank = bank;
  need.at = dispatchIn(id, slice);
  for (BurstId other = 0; other < bursts.size(); ++other)
    if (const Burst &o = bursts[other]; other != id && o.unit.kind == UnitKind::Mem &&
                                        o.pe == b.pe && o.unit.hemisphere == b.unit.hemisphere &&
                                        meet(need, memNeed(o)))
      return false;
  return true;
}

void Piece::moveRows(BurstId id, unsigned slice, unsigned address, int32_t s0, int32_t s1,
                     uint32_t region) {
  const Cycle at = dispatchIn(id, slice);
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
