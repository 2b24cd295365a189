// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Rows of memory that values made at run time take together at most, if every tensor is stored
/// once, from the kernel that writes it first to the one that reads it last.
int64_t peakRows(const KernelGraph &graph, const Machine &machine);

/// Rows of all memory that constants, stored once, and values at their peak leave; 0 if none.
int64_t roomBeside(const KernelGraph &graph, const Machine &machine);

/// Does chains of kernels part by part of a loop that all of them step through (windows, heads,
/// images, rows), so that what lies between them takes the rows of a part alone: where the most is
/// alive, until peakRows() is `most` or nothing makes it less. Exact. A kernel for each part:
/// weights are installed again for each. Returns how many chains it split.
unsigned splitBatches(KernelGraph &graph, const Machine &machine, int64_t most);

} // namespace millrace::forms
