// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a simulation found.
#pragma once

#include "arch/program/Image.h"
#include "simulator/base/Counters.h"
#include "simulator/base/Violation.h"

#include <optional>
#include <vector>

namespace millrace::sim {

struct StepResult {
  Step::Kind kind = Step::Kind::Grid;
  uint64_t predictedCycles = 0, measuredCycles = 0; ///< 0 for host steps
};

struct SimulationResult {
  std::vector<StepResult> steps; ///< those that ran; after a violation the last one is incomplete
  uint64_t measuredCycles = 0;   ///< sum over the grid steps
  std::optional<Violation> violation; ///< the first one, or nothing: the program is right
  std::vector<Counters> pes;
  Counters total;
};

} // namespace millrace::sim
