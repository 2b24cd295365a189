// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The slow simulator: docs/spec/machine.md word by word. Every cycle is stepped, every stream
// register is shifted, every column group is multiplied in its own cycle. It shares the image, the
// arithmetic of a lane and the form of results with the fast simulator, and none of its timing,
// occupancy or batching; tests hold the two equal.
#pragma once

#include "simulator/system/Simulate.h"

namespace millrace::sim {

/// As simulate(), to the same result, some hundred times slower. Of the options it knows values,
/// annotations, ignoreMachineHash, writeInputs and readOutputs; there is nothing to observe, to
/// swap or to order. Messages of violations are shorter.
Expected<SimulationResult> simulateSlowly(const Image &image, const Machine &machine,
                                          const SimulationOptions &options = {},
                                          HostStepRunner *host = nullptr);

} // namespace millrace::sim
