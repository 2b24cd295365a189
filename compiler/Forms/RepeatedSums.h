// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// A contracted loop that no term uses (over repetitions of a value, say) only repeats the sum:
/// multiplies the sum by its extent and drops the loop. Returns how many loops it dropped.
unsigned multiplyRepeatedSums(KernelGraph &graph);

} // namespace millrace::forms
