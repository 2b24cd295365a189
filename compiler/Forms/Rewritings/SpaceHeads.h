// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// The MXM takes a vector in parts. A product of two run-time tensors for each head, whose rows
/// hold the lanes of all heads, sweeps the lanes of one; where these lie in two parts, it sweeps
/// twice. As many whole heads as a part holds become a run of lanes with a gap behind it, in both
/// tensors and in all that meets their lanes, where constant weights write those and no row takes
/// more vectors. A gap holds a copy of the lane before it, which no product takes. The same values.
/// Returns how many products take fewer sweeps.
unsigned spaceHeads(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
