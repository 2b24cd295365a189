// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// What one kernel makes as a sum of products with a constant, for all lanes of a row, and another
/// one takes from its own sum of products (the maxima of scores that a softmax subtracts), becomes
/// terms of that sum: a kernel less waits between the two. Returns how many kernels went.
unsigned subtractInSums(KernelGraph &graph);

} // namespace millrace::forms
