// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The MEM slices of one PE: rows, and the banks that each cycle's accesses hold.
#pragma once

#include "simulator/truth/Core.h"

#include <map>

namespace millrace::sim::truth {

class Memories {
public:
  explicit Memories(Core &core) : core(core) {}

  /// The element to come of a Read, Write, Gather or Scatter acts.
  void element(const Work &work, Cycle now);
  /// The end of a cycle: banks are compared (S5), rows are written whose slot this is (T5).
  void endCycle(Cycle now);
  bool busy() const { return !writes.empty(); }

  /// Rows as loaded or as the host sees them; absent ones are zeros.
  struct Row {
    Tag tag;
    unsigned step = 0; ///< of the last write
    Cycle slot = INT64_MIN / 2;
    Lanes bytes;
  };
  Row &row(Hemisphere hemisphere, unsigned slice, uint32_t row);

private:
  struct Write {
    Cycle slot;
    Work work;
    uint32_t first, last; ///< rows whose banks it holds
    Bytes value, map;     ///< map: of a Scatter
  };
  struct Read {
    Work work;
    uint32_t first, last;
  };
  Cycle slotOf(const Work &work, Cycle now) const;
  const Region *regionOf(const Work &work) const;
  void checkRegion(const Work &work, Cycle slot);
  uint32_t lastRow(const Work &work, uint32_t first) const;
  void checkReadable(const Work &work, const Row &row, Cycle now);
  void read(const Work &work, Cycle now, Row &row);
  void gather(const Work &work, Cycle now, uint32_t first);
  void perform(const Write &write);
  void scatter(const Write &write);
  uint32_t addressIn(const Lanes &map, unsigned superlane) const;
  Row &rowOf(const Work &work, uint32_t number);
  unsigned bank(uint32_t row) const { return row / core.machine.memory.rowsPerBank; }

  Core &core;
  std::map<std::pair<unsigned, uint32_t>, Row> rows; ///< by queue of the slice, and row
  std::vector<Write> writes;                         ///< sampled, not yet in memory
  std::vector<Read> reads;                           ///< of this cycle
};

} // namespace millrace::sim::truth
