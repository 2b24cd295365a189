// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Gives operands of products copies with their padding where it is more than rows that stream:
/// rows of what is made at run time and installed, since columns are installed from rows that
/// exist; and lanes that a window moves along, since lanes stay where they are. Exact, but for
/// infinities beside padded lanes. Returns how many copies were made.
unsigned padOperands(KernelGraph &graph);

} // namespace millrace::forms
