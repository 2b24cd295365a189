// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <string>
#include <vector>

namespace millrace::gpu {

/// How long one launch of a kernel took on a GPU, by the driver's events.
struct LaunchTime {
  std::string kernel;
  std::vector<double> seconds; ///< of each repetition, in their order
};

} // namespace millrace::gpu
