// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Lanes of what is installed are turned into rows by streaming an identity matrix: each of its
/// rows picks one lane. Where the lanes of a head lie in two parts of a vector, which the MXM takes
/// one at a time, all rows would go through both, though each picks a lane of one: such a kernel is
/// cut where the parts meet. The same values. Returns how many kernels it cut.
unsigned cutSelections(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
