// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Gives every result of a kernel with several a kernel of its own, which computes again what they
/// share: bursts that write them need not find slices apart from each other. Exact. Returns how
/// many kernels were added.
unsigned splitResults(KernelGraph &graph);
/// Of those kernels alone that take more ALUs at once than the machine has.
unsigned splitResults(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
