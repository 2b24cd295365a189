// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Is the kernel a running reduction whose steps may be combined in any order, of what one operand
/// reads?
bool canPair(const KernelGraph &graph, const Kernel &kernel);

/// A running reduction takes a row in as many cycles as its operation takes. Where it has many
/// rows, maps combine a few neighbours each first, as many as the VXM takes at once and as there is
/// room for: each of them is read from a copy of its own, and all copies lie in half of the slices
/// at most. Again while that saves cycles, along the innermost loop that is left. Returns how many
/// maps it made.
unsigned pairRunning(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
