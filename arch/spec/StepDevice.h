// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

namespace millrace {

/// Where a step runs that the grid does not do.
enum class StepDevice : uint8_t {
  Host, ///< nobody chose: the host, by itself or with what a run gives it
  Cpu,  ///< the host's CPU
  Gpu   ///< kernels on the GPU beside the grid
};
constexpr unsigned kStepDevices = 3;

constexpr const char *nameOf(StepDevice device) {
  constexpr const char *names[] = {"host", "cpu", "gpu"};
  return names[unsigned(device)];
}

} // namespace millrace
