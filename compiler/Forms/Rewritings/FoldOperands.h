// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Replaces operations on constants alone by constants: immediates where no loop moves them, 32-bit
/// tensors where only the lanes and running loops do (weights and biases that are dequantised where
/// they are used). The same bits. Constants that differ from row to row of the results stay as they
/// are: wider ones might not fit. Returns how many operations it folded.
unsigned foldOperands(KernelGraph &graph);

} // namespace millrace::forms
