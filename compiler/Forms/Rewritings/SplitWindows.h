// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Rewrites window maps whose taps form a grid (one operation, associative, over rows x columns of
/// one tensor) as two kernels: first along the inner dimension for every row, then along the outer
/// one. k + k reads and operations instead of k * k. Maxima and minima keep their values; sums are
/// kept in fp32 in between. Returns how many it split.
unsigned splitWindows(KernelGraph &graph);

} // namespace millrace::forms
