// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Cuts running loops down to what lies inside the tensors where the rest only adds the reduction's
/// neutral element (the padding of an average, say): fewer rows, and rows that step evenly. What
/// reduces a single row then takes it as it is. Returns how many loops it cut.
unsigned clipRunning(KernelGraph &graph);

} // namespace millrace::forms
