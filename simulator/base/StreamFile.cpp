// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/base/StreamFile.h"

#include <bit>

namespace millrace::sim {

StreamFile::StreamFile(const Machine &machine, const Timing &timing, VectorPool &pool)
    : pool(pool), hop(timing.hop), last(timing.last),
      ring(std::bit_ceil(timing.last * timing.hop + 1u)),
      wheelSize(std::bit_ceil(timing.longestDelay + 2u)) {
  for (unsigned s = 0; s < machine.streamCount(); ++s)
    outward.push_back(machine.directionOf(StreamId(s)) == Direction::Outward);
  cells.resize(size_t(machine.streamCount()) * ring);
  wheel.resize(wheelSize);
}

void StreamFile::inject(Cycle at, const Injection &injection) {
  wheel[at & (wheelSize - 1)].push_back(injection);
  ++waiting;
  if (at <= done) // a delay of zero: the register is filled in the cycle being simulated
    done = at - 1;
}

void StreamFile::clear() {
  for (std::vector<Injection> &slot : wheel) {
    for (const Injection &injection : slot)
      pool.release(injection.value);
    slot.clear();
  }
  waiting = 0;
  done = -1;
  for (StreamCell &cell : cells) {
    if (cell.diagonal != INT64_MIN)
      retire(cell);
    cell = StreamCell();
  }
}

} // namespace millrace::sim
