// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The stream registers of one PE. A vector put into a stream at distance x (in registers from the
// stream's start) in cycle t moves one register every `hop` cycles: it lives on the diagonal t - x
// hop, so nothing is copied from cycle to cycle. One entry per diagonal is enough: a later
// injection on the same diagonal, further along, replaces the vector for everyone behind it, and
// what was replaced, by whom, is remembered for S3.
#pragma once

#include "simulator/base/Tag.h"
#include "simulator/base/Timing.h"
#include "simulator/base/VectorPool.h"

#include <optional>
#include <vector>

namespace millrace::sim {

/// What stands in a register now.
struct StreamCell {
  Cycle diagonal = INT64_MIN;
  Tag tag;
  VectorRef value = 0;
  uint16_t from = 0, to = 0; ///< distance of the injection and of the last sampler
  uint32_t buried = 0;       ///< the latest vector that this diagonal has lost (S3); 0: none
};

/// A vector that another one was injected over.
struct Buried {
  Tag tag;
  uint32_t by = 0; ///< instruction that injected over it
  Cycle injected = 0;
  uint32_t earlier = 0; ///< lost before it on the same diagonal; 0: none
};

class StreamFile {
public:
  StreamFile(const Machine &machine, const Timing &timing, VectorPool &pool);

  struct Injection {
    StreamId stream;
    uint16_t position;
    VectorRef value; ///< ownership of one reference passes to the stream
    Tag tag;         ///< of the element that injects
  };
  /// The vector stands in the register of `position` at cycle `at`, which is not before the last
  /// advance().
  void inject(Cycle at, const Injection &injection) {
    Slot &slot = wheel[size_t(at & (wheelSize - 1))];
    if (slot.count == slot.room) [[unlikely]]
      grow(slot);
    slot.injections[slot.count++] = injection;
    ++waiting;
    if (at <= done) // a delay of zero: the register is filled in the cycle being simulated
      done = at - 1;
  }
  /// What advance() does when no injection waits; false, and nothing is done, when one may.
  bool rest(Cycle now) {
    if (waiting && done < now)
      return false;
    done = now;
    return true;
  }
  /// Performs the injections up to and including cycle `now`; calls `clash(cycle, injection, cell)`
  /// for S3.
  template <class F> void advance(Cycle now, F clash);
  /// What a unit at `position` sees on the stream in cycle `now`, or null when the register is
  /// empty.
  StreamCell *sample(StreamId stream, unsigned position, Cycle now) {
    unsigned x = distance(stream, position);
    Cycle d = now - Cycle(x) * hop;
    StreamCell &cell = cells[size_t(stream) * ring + (d & (ring - 1))];
    if (cell.diagonal != d)
      return nullptr;
    if (x > cell.to)
      cell.to = uint16_t(x);
    return &cell;
  }
  /// Who injected over the vector `tag` on this diagonal, or null when nobody did.
  const Buried *burier(const StreamCell &cell, const Tag &tag) const {
    for (uint32_t b = cell.buried; b; b = buried[b].earlier)
      if (buried[b].tag == tag)
        return &buried[b];
    return nullptr;
  }
  bool idle() const { return waiting == 0; }
  /// Forgets everything under way (the end of a step).
  void clear();
  uint64_t injected() const { return injections; }
  uint64_t vectorHops() const { return hops; }
  unsigned distance(StreamId s, unsigned position) const {
    return outward[s] ? position : last - position;
  }

private:
  /// The injections of one cycle.
  struct Slot {
    std::unique_ptr<Injection[]> injections;
    uint32_t count = 0, room = 0;
  };
  static void grow(Slot &slot);
  void retire(StreamCell &cell) {
    hops += cell.to - cell.from;
    pool.release(cell.value);
  }
  uint32_t bury(const StreamCell &lost, const Injection &by, Cycle now);
  void forget(uint32_t last);
  template <class F> void place(Cycle now, const Injection &injection, F &clash);

  VectorPool &pool;
  unsigned hop, last;
  Cycle ring, wheelSize;
  std::vector<uint8_t> outward;  ///< by stream
  std::vector<StreamCell> cells; ///< [stream][diagonal mod ring]
  std::vector<Slot> wheel;       ///< [cycle mod wheelSize]
  std::vector<Buried> buried;    ///< slot 0 stays unused
  uint32_t freeBuried = 0;       ///< a list through `earlier`
  size_t waiting = 0;
  Cycle done = -1; ///< injections up to this cycle have been performed
  uint64_t injections = 0, hops = 0;
};

template <class F> void StreamFile::place(Cycle now, const Injection &injection, F &clash) {
  unsigned x = distance(injection.stream, injection.position);
  Cycle d = now - Cycle(x) * hop;
  StreamCell &cell = cells[size_t(injection.stream) * ring + (d & (ring - 1))];
  uint32_t lost = 0;
  if (cell.diagonal == d) {
    if (cell.from == x)
      clash(now, injection, cell);
    lost = bury(cell, injection, now);
  } else if (cell.buried) {
    forget(cell.buried);
  }
  if (cell.diagonal != INT64_MIN)
    retire(cell);
  // Field by field: GCC would make the cell elsewhere and wait for its parts before copying it.
  cell.diagonal = d;
  cell.tag = injection.tag;
  cell.value = injection.value;
  cell.from = cell.to = uint16_t(x);
  cell.buried = lost;
}

template <class F> void StreamFile::advance(Cycle now, F clash) {
  for (Cycle c = done + 1; waiting && c <= now; ++c) {
    Slot &slot = wheel[size_t(c & (wheelSize - 1))];
    waiting -= slot.count;
    injections += slot.count;
    for (uint32_t k = 0; k < slot.count; ++k)
      place(c, slot.injections[k], clash);
    slot.count = 0;
  }
  done = now;
}

} // namespace millrace::sim
