// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Gives a value made at run time that is installed as weights with neighbours of different
/// dimensions as columns a copy for each further dimension: in memory, columns of one copy have one
/// order. Exact. Returns how many copies were made.
unsigned splitColumns(KernelGraph &graph);

} // namespace millrace::forms
