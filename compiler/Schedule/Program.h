// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The schedule under construction: what every resource of every PE is held for, and the bursts
// placed so far.
#pragma once

#include "arch/program/Image.h"
#include "compiler/Schedule/Hazards.h"
#include "compiler/Schedule/Occupancy.h"
#include "compiler/Schedule/Timing.h"
#include "compiler/Schedule/Waits.h"

#include <deque>
#include <memory>

namespace millrace::schedule {

/// Resources of one PE.
struct PeOccupancy {
  explicit PeOccupancy(const Machine &machine);
  std::vector<IntervalSet> readPorts, writePorts; ///< per (hemisphere, slice)
  std::vector<IntervalSet> banks;                 ///< per (hemisphere, slice, bank)
  std::vector<IntervalSet> units;                 ///< per queue: MXM, ALU, SXM and C2C ports
  std::vector<CycleSet> dispatches;               ///< per queue; only MEM queues hold two ports
  std::vector<StreamOccupancy> streams;
};

/// Placed bursts of one PE; their place in this list is their provisional number.
struct PeProgram {
  std::vector<Instruction> instructions;
  std::vector<std::vector<Producer>> producers;
  std::vector<uint32_t> placements; ///< per instruction: of Waits::placements
};

class Program {
public:
  /// Of the first `alus` ALUs of each PE, if not 0.
  explicit Program(const Machine &machine, unsigned alus = 0);

  const Machine &machine;
  const unsigned alus; ///< of a PE that are used
  Timing timing;
  std::vector<PeOccupancy> occupancy;
  std::vector<PeState> state;
  std::vector<PeProgram> pes;
  std::vector<RegionState> regions;
  Waits waits;
  /// A piece could not be placed since two of its bursts need one queue or bank at once.
  bool crowded = false;
  /// Ports, queues and banks of memory hold nothing up, and rows are free whenever they are
  /// written. The schedule is none that a machine could run: it says when what would be touched.
  bool ignoresMemory = false;

  uint32_t addRegion(RegionState region) {
    regions.push_back(region);
    return uint32_t(regions.size() - 1);
  }
  /// The last row that a Gather may touch: the last one of its region.
  unsigned lastRowOf(const Instruction &gather) const {
    return regions[gather.tensor].row + regions[gather.tensor].rows - 1;
  }
  /// Number of the grid or host step that is being made.
  unsigned step() const { return unsigned(steps.size()); }
  /// Notes an access of a region at a cycle of the present step.
  void noteAccess(uint32_t region, Cycle first, Cycle last);
  /// The region's contents are loaded with the program.
  void noteAccessFromStart(uint32_t region) {
    regions[region].step0 = 0;
    regions[region].from = 0;
  }
  void noteWrite(Cycle slot) { lastWrite = std::max(lastWrite, slot); }
  /// Ends a grid step (its bursts are those placed since the last end) or adds a host step; time
  /// starts anew.
  void endGridStep();
  void addHostStep(Step step);
  bool stepIsEmpty() const;
  /// Cycles of the grid steps that have ended, before anything is pruned.
  uint64_t cycles() const;
  /// Calls f(step, pe, burst) for those of the grid steps that have ended.
  template <class F> void forEachBurst(F f) const {
    for (unsigned step = 0; step < steps.size(); ++step)
      for (unsigned pe = 0; pe < pes.size(); ++pe)
        for (uint32_t i = steps[step].pes[pe].begin; i < steps[step].pes[pe].end; ++i)
          f(step, pe, pes[pe].instructions[i]);
  }

  /// Sorts every PE's bursts into (step, cycle, queue) order, renumbers producers, and appends
  /// instructions, producers, regions and steps to the image. Returns, per PE, the provisional
  /// number of each instruction there.
  std::vector<std::vector<uint32_t>> finish(Image &image) const;

private:
  void beginStep();

  Cycle lastWrite = 0;
  std::vector<Step> steps;
};

} // namespace millrace::schedule
