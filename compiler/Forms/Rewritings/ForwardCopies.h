// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Lets the readers of a copy read what was copied: all rows of some lanes of one tensor, as they
/// are. Exact. Returns how many copies it removed.
unsigned forwardCopies(KernelGraph &graph);

} // namespace millrace::forms
