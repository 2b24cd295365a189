// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the scheduler notes while it places pieces: why each of them could not start earlier, and
// which burst holds which resource when. Ledger.h makes an account of idle cycles of it.
#pragma once

#include "arch/spec/Machine.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace millrace::schedule {

/// Why a unit idles, or a piece does not start, in a cycle. docs/running.md defines each.
enum class Cause : uint8_t {
  // What the earliest start of a piece waits for, whatever else is reserved.
  Dependence,         ///< a row that another burst writes
  Install,            ///< weights on their way into the buffer
  PartialSum,         ///< the passes of its sum before, which are on their way
  AccumulateInterval, ///< the row takes the next part of its sum after `accumulate_interval`
  AccumulatorRow,     ///< the accumulator row takes part in another sum
  BufferReuse,        ///< the weight buffer serves other sweeps
  MemoryReuse,        ///< memory rows that hold other values, which are still read
  Order,              ///< passes of a share follow each other
  GivenStart,         ///< whoever solved the schedule lets it start no sooner
  StepBegin,          ///< what a piece needs first is dispatched in cycle 0 at the earliest
  HostBarrier,        ///< the same behind a host step, and what idles before one
  // What other pieces hold.
  ReadPort,
  WritePort,
  Bank,
  Dispatch, ///< a MEM queue lets one instruction go in a cycle
  MxmPort,
  SxmPort,
  LinkPort,
  Alu,
  Stream,
  // The rest.
  Dropped, ///< any of these, if it was for bursts that pruning left out
  Pace,    ///< within a piece: its elements or operations do not follow each other in each cycle
  NothingLeft, ///< behind the unit's last work
};
constexpr unsigned kCauses = unsigned(Cause::NothingLeft) + 1;
/// "read_port": a key of JSON.
std::string_view nameOf(Cause cause);

constexpr uint32_t kNobody = UINT32_MAX;

/// Numbers of what bursts of a PE hold for intervals of cycles.
class Resources {
public:
  explicit Resources(const Machine &machine)
      : machine(machine), slices(machine.memory.slices), banks(machine.memory.banks),
        queues(machine.queues()) {}
  uint32_t readPort(Hemisphere h, unsigned slice) const { return uint32_t(h) * slices + slice; }
  uint32_t writePort(Hemisphere h, unsigned slice) const {
    return kHemispheres * slices + readPort(h, slice);
  }
  uint32_t bank(Hemisphere h, unsigned slice, unsigned bank) const {
    return 2 * kHemispheres * slices + readPort(h, slice) * banks + bank;
  }
  uint32_t unit(unsigned queue) const { return kHemispheres * slices * (2 + banks) + queue; }
  uint32_t count() const { return unit(queues); }
  /// Of a piece that finds it held; none for ALUs, which pieces choose.
  std::optional<Cause> causeOf(uint32_t resource) const;

private:
  const Machine &machine;
  unsigned slices, banks, queues;
};

/// Cycles from the end of the wait before up to `until` in which a piece could not start.
struct Wait {
  Cycle until = 0;
  Cycle heldAt = 0;            ///< `resource` is held in this cycle
  uint32_t pe = 0;             ///< of burst, resource and holder
  uint32_t burst = kNobody;    ///< of the piece, which needed it: number in its PE's program
  uint32_t holder = kNobody;   ///< the burst that held it, likewise, if it was known at once
  uint32_t resource = kNobody; ///< else what was held
  Cause cause = Cause::StepBegin;
};

/// A burst holds a resource from `first` to `last`.
struct Held {
  Cycle first = 0, last = 0;
  uint32_t resource = 0;
  uint32_t burst = 0; ///< number in its PE's program; of an ALU, the last burst of the piece on it
};

/// A placed piece.
struct PlacedPiece {
  Cycle start = 0;
  uint32_t kernel = kNobody;
  uint32_t firstWait = 0; ///< of Waits::waits, up to those of the next placement
};

/// All of a program.
struct Waits {
  std::vector<PlacedPiece> placements;
  std::vector<Wait> waits;
  std::vector<std::vector<std::vector<Held>>> held; ///< [step][pe], of grid steps
  uint32_t kernel = kNobody;                        ///< for which pieces are placed now
};

} // namespace millrace::schedule
