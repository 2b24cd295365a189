// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The schedule under construction: what every resource of every PE is held for, and the bursts placed so far.
#pragma once

#include "arch/program/Image.h"
#include "compiler/Schedule/Hazards.h"
#include "compiler/Schedule/Occupancy.h"
#include "compiler/Schedule/Timing.h"

#include <deque>
#include <memory>

namespace millrace::schedule {

/// Resources of one PE.
struct PeOccupancy {
  explicit PeOccupancy(const Machine &machine);
  std::vector<IntervalSet> readPorts, writePorts; ///< per (hemisphere, slice)
  std::vector<IntervalSet> banks;                 ///< per (hemisphere, slice, bank)
  std::vector<IntervalSet> units;                 ///< per queue: MXM, ALU, SXM and C2C ports
  std::vector<std::unordered_set<Cycle>> dispatches; ///< per queue; only MEM queues hold two ports
  std::vector<StreamOccupancy> streams;
};

/// Placed bursts of one PE; their place in this list is their provisional number.
struct PeProgram {
  std::vector<Instruction> instructions;
  std::vector<std::vector<Producer>> producers;
};

class Program {
public:
  explicit Program(const Machine &machine);

  const Machine &machine;
  Timing timing;
  std::vector<PeOccupancy> occupancy;
  std::vector<PeState> state;
  std::vector<PeProgram> pes;
  std::vector<RegionState> regions;

  uint32_t addRegion(RegionState region) {
    regions.push_back(region);
    return uint32_t(regions.size() - 1);
  }
  /// Last bank write slot so far.
  Cycle lastWriteSlot() const { return lastWrite; }
  void noteWrite(Cycle slot) { lastWrite = std::max(lastWrite, slot); }

  /// Sorts every PE's bursts into (cycle, queue) order, renumbers producers, and appends instructions, producers,
  /// regions and one grid step to the image.
  void finish(Image &image) const;

private:
  Cycle lastWrite = 0;
};

} // namespace millrace::schedule
