// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Replaces kernels whose operands are all constant by their results, merges maps into the kernels
/// that write what they read (at most `chain` operations each), and drops what nothing needs.
void simplify(KernelGraph &graph, unsigned chain);

/// Drops nodes that no result needs, and operands that no node reads.
void dropDeadNodes(Kernel &kernel);

} // namespace millrace::forms
