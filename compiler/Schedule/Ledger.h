// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The account of a program's cycles: each cycle of each MXM plane and of each VXM is busy for one
// kernel, or idle for exactly one cause.
#pragma once

#include "compiler/Schedule/Program.h"

#include <array>
#include <vector>

namespace millrace::schedule {

/// What is accounted for: planes of the MXM (both planes of a pair work in a 16-bit sweep), and the
/// VXM of each PE as a whole.
enum class Engine : uint8_t { Mxm, Vxm };
constexpr unsigned kEngines = 2;

/// Cycles of all units of an engine in which they worked for a kernel.
struct BusyCycles {
  Engine engine = Engine::Mxm;
  uint32_t kernel = kNobody;
  int64_t unitCycles = 0;
};

/// Cycles of all units of an engine in which they idled before work of a kernel (kNobody: no work
/// follows), held up by another kernel (kNobody: by none, or it is not known).
struct IdleCycles {
  Engine engine = Engine::Mxm;
  uint32_t kernel = kNobody, holder = kNobody;
  Cause cause = Cause::NothingLeft;
  int64_t unitCycles = 0;
};

/// A run of idle cycles [from, to) of one unit in one step.
struct Gap {
  Engine engine = Engine::Mxm;
  uint32_t step = 0, pe = 0;
  uint32_t unit = 0; ///< plane of the PE, west first
  Cycle from = 0, to = 0;
  uint32_t kernel = kNobody, holder = kNobody;
  Cause cause = Cause::NothingLeft;
};

struct Ledger {
  int64_t cycles = 0;                    ///< of all grid steps
  std::array<int64_t, kEngines> units{}; ///< that there are
  std::vector<BusyCycles> busy;          ///< by engine and kernel
  std::vector<IdleCycles> idle;          ///< by engine, kernel, cause and holder
  std::vector<IdleCycles> installs;      ///< of Cause::Install: why the installs came no sooner
  std::vector<Gap> gaps;                 ///< if they were asked for, unit by unit in order of time

  int64_t unitCycles(Engine e) const { return cycles * units[unsigned(e)]; }
  int64_t busyOf(Engine e) const;
  int64_t idleOf(Engine e) const;
  int64_t idleOf(Engine e, Cause cause) const;
};

/// The account of a pruned image. `numbers`: per PE and instruction of the image, its number in the
/// program. Errors are faults of the compiler: a cycle without a cause, or sums that differ from
/// the total.
Expected<Ledger> account(const Image &image, const Program &program,
                         const std::vector<std::vector<uint32_t>> &numbers, bool withGaps);

} // namespace millrace::schedule
