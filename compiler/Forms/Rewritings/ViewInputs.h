// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Lets the host write what a map of few lanes reads of an input (a slice, every other row, the
/// channels in another order, the dimensions in another order) as a tensor of its own with the
/// dimensions of the map's result: both may then have any layout that the host can write (R15).
/// All that is written of an input is at most three times the input. Returns how many tensors it
/// added.
unsigned viewInputs(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
