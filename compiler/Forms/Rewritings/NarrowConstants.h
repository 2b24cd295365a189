// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Rounds constants of fp32 that epilogues read row by row and add (biases of positions, masks) to
/// `type`, fp16 or bf16, where they lie in its range: half of their rows. Whole numbers that the type
/// does not hold stay. For programs that do not fit otherwise. Returns the names of what it rounded.
std::vector<std::string> narrowConstants(KernelGraph &graph, ElementType type);

} // namespace millrace::forms
