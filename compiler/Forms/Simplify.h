// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Replaces kernels whose operands are all constant by their results, merges maps into the kernels
/// that write what they read (at most `chain` operations each), and drops what nothing needs.
void simplify(KernelGraph &graph, unsigned chain);

/// Merges maps into kernels that write one tensor, which they alone read, in a graph whose tensors
/// were cut since, and drops what nothing needs then. What others read, too, would be written all
/// the same, and a kernel of many results takes more units at a time than several that take turns.
void mergeMaps(KernelGraph &graph, unsigned chain);

/// Drops kernels, results, host calls and tensors that no output needs.
void dropUnneeded(KernelGraph &graph);

/// Drops nodes that no result needs, and operands that no node reads.
void dropDeadNodes(Kernel &kernel);

/// Loop `inner` takes in `outer` where every index moves with both as with one loop: a tile of few
/// lanes for each step of the outer one becomes a tile of all. Whether it did.
bool joinLoops(Kernel &kernel, unsigned outer, unsigned inner);

} // namespace millrace::forms
