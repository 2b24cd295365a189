// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Splits reductions over two running loops that do not step evenly through their tensors, so that
/// one address walk cannot serve both: a kernel reduces the inner loop for every step of the outer
/// one, a second kernel the outer loop. Sums are kept in fp32 in between. Returns how many it
/// split.
unsigned splitRunning(KernelGraph &graph);

} // namespace millrace::forms
