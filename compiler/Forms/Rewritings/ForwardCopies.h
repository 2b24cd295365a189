// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Lets the readers of a copy read what was copied: all rows of some lanes of one tensor, as they
/// are. Exact. With a machine, a slice that a product moved stays where its readers would tear more
/// apart (tornCycles) than the move takes. Returns how many copies it removed.
unsigned forwardCopies(KernelGraph &graph, const Machine *machine = nullptr);

} // namespace millrace::forms
