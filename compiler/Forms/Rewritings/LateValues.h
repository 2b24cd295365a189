// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Computes once more what is used both within a running reduction, once per element, and after it,
/// once: no ALU keeps a value from the one to the other. Returns how many nodes it added.
unsigned repeatLateValues(KernelGraph &graph);

} // namespace millrace::forms
