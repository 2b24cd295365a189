// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include <limits>

namespace millrace::forms {

/// Splits reductions over running loops that do not step evenly through their tensors, so that one
/// address walk cannot serve all: a kernel reduces the inner loops for every step of the outermost
/// one (of a contraction's sums, too), a second kernel the outermost loop. So with a loop that
/// moves along the lanes or the columns of a contraction's operands, each step of which is a sweep.
/// And so are reductions of more than `mostSums` sums of a contraction, which wait for each other.
/// Sums are kept in fp32 in between. Returns how many it split.
unsigned splitRunning(KernelGraph &graph, int64_t mostSums = std::numeric_limits<int64_t>::max());

} // namespace millrace::forms
