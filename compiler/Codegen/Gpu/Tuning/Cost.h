// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long a launch takes, by what it has to do.
#pragma once

#include "compiler/Codegen/Gpu/Tuning/TuningTable.h"

namespace millrace::gpu {

/// What a launch has to do, as the compiler noted it.
struct GpuLaunch {
  std::string kernel;
  double programs = 0, bytes = 0, matrixFlops = 0, otherFlops = 0;
  bool isWhole = true; ///< else it does more: a loop's length is data
  KernelKind kind = {};
};

/// Seconds of the roofline: the launch, then the longest of its bytes, matrix and other operations
/// at the chip's peak, of which fewer programs than processors reach their share. Real kernels take
/// longer.
double rooflineSeconds(const GpuLaunch &launch, const GpuChip &chip);

/// What is expected of a launch on the table's chip.
struct LaunchEstimate {
  double seconds = 0;
  bool isMeasured = false; ///< by the share of a kernel of its kind that was measured
};

/// The roofline over the share of it that the table has for the kernel.
LaunchEstimate estimate(const GpuLaunch &launch, const TuningTable &table = TuningTable::builtIn());

/// The kind of kernels by their name, product of product_3.
std::string opOf(const std::string &kernel);

} // namespace millrace::gpu
