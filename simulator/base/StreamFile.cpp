// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/base/StreamFile.h"

#include <algorithm>
#include <bit>

namespace millrace::sim {

StreamFile::StreamFile(const Machine &machine, const Timing &timing, VectorPool &pool)
    : pool(pool), hop(timing.hop), last(timing.last),
      ring(std::bit_ceil(timing.last * timing.hop + 1u)),
      wheelSize(std::bit_ceil(timing.longestDelay + 2u)), buried(1) {
  for (unsigned s = 0; s < machine.streamCount(); ++s)
    outward.push_back(machine.directionOf(StreamId(s)) == Direction::Outward);
  cells.resize(size_t(machine.streamCount()) * ring);
  wheel.resize(wheelSize);
}

void StreamFile::grow(Slot &slot) {
  slot.room = std::max(16u, 2 * slot.room);
  auto larger = std::make_unique_for_overwrite<Injection[]>(slot.room);
  std::copy_n(slot.injections.get(), slot.count, larger.get());
  slot.injections = std::move(larger);
}

uint32_t StreamFile::bury(const StreamCell &lost, const Injection &by, Cycle now) {
  uint32_t slot = freeBuried;
  if (slot)
    freeBuried = buried[slot].earlier;
  else
    slot = uint32_t(buried.size()), buried.emplace_back();
  buried[slot] = {lost.tag, by.tag.instruction, now, lost.buried};
  return slot;
}

/// Gives the records of a diagonal that has left the stream back.
void StreamFile::forget(uint32_t last) {
  uint32_t first = last;
  while (buried[first].earlier)
    first = buried[first].earlier;
  buried[first].earlier = freeBuried;
  freeBuried = last;
}

void StreamFile::clear() {
  for (Slot &slot : wheel) {
    for (uint32_t k = 0; k < slot.count; ++k)
      pool.release(slot.injections[k].value);
    slot.count = 0;
  }
  waiting = 0;
  done = -1;
  buried.resize(1);
  freeBuried = 0;
  for (StreamCell &cell : cells) {
    if (cell.diagonal != INT64_MIN)
      retire(cell);
    cell = StreamCell();
  }
}

} // namespace millrace::sim
