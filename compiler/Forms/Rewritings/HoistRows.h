// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Computes once, in a kernel of its own and in fp32, what a map computes for each of its rows from
/// one tensor whose rows do not move with them (the gate of a squeeze-and-excite block), where that
/// saves more cycles than another kernel takes. The same values. Returns how many it hoisted.
unsigned hoistRows(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
