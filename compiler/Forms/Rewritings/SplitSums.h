// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Sums a tensor of few lanes over whole dimensions of its rows (a global average) in steps that
/// may have any layout: maps add a few neighbours each, in fp32, and a contraction with ones adds
/// what is left, from wherever it lies in its rows of lanes. One rounding more than the sum itself
/// has. A running reduction, as before, would hold the tensor to a row for each pixel. Returns how
/// many it split.
unsigned splitSums(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
