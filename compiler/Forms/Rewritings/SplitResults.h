// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Gives every result of a kernel with several a kernel of its own, which computes again what they
/// share: bursts that write them need not find slices apart from each other. Exact. Returns how
/// many kernels were added.
unsigned splitResults(KernelGraph &graph);

} // namespace millrace::forms
