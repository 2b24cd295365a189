// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Replaces operations on constants alone by constants: immediates where no loop moves them, 32-bit
/// tensors where lanes and running loops do (weights and biases that are dequantised where they are
/// used), or rows of the results, if that takes no more bytes than a constant that is read there
/// (masks). The same bits. Returns how many operations it folded.
unsigned foldOperands(KernelGraph &graph);

} // namespace millrace::forms
