// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulator as a library: an image and a machine in, cycles, the first violation, counters and
// memory out.
#pragma once

#include "arch/program/HostStep.h"
#include "arch/program/Image.h"
#include "simulator/base/PeContext.h"
#include "simulator/base/Result.h"
#include "simulator/base/UnitModule.h"
#include "simulator/observe/Observer.h"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace millrace::sim {

/// Makes a unit in place of the simulator's own: `unit` names the first of its queues (a unit of
/// the MXM or SXM serves a hemisphere, the VXM one PE). Null keeps the simulator's unit. Not asked
/// for MEM slices, whose rows the host reads.
using UnitFactory = std::function<std::unique_ptr<UnitModule>(const sc_core::sc_module_name &name,
                                                              PeContext &context, Unit unit)>;

struct SimulationOptions {
  bool values = true; ///< false: cycles only; no data is touched, counts and checks are the same
  Annotations annotations = Annotations::Checked;
  bool ignoreMachineHash =
      false; ///< run an image on a machine that it was not made for (mutation tests)
  /// Cycles that a PE simulates per kernel event; never more than the least latency of a link into
  /// it. Results are the same for any value; 0 chooses the largest.
  Cycle window = 0;
  /// Activations of a burst, and sums, that a plane of the MXM keeps to compute them together.
  /// Results are the same for any value.
  size_t batch = 8192;
  bool reverseConstruction = false; ///< builds PEs in reverse order; results are the same (tested)
  Observer *observer = nullptr;
  UnitFactory makeUnit; ///< empty: all units are the simulator's
  /// Called before the first step and after the last one in runs with values: input rows in, output
  /// rows out.
  std::function<Status(RowAccess &)> writeInputs, readOutputs;
};

/// Runs the image. An error means that nothing could be simulated (an image for another machine, a
/// malformed image, a host step without a runner, a failing host step); a program that breaks an
/// invariant is a result. The SystemC kernel is one per process: not to be called from two threads
/// at once.
Expected<SimulationResult> simulate(const Image &image, const Machine &machine,
                                    const SimulationOptions &options = {},
                                    HostStepRunner *host = nullptr);

} // namespace millrace::sim
