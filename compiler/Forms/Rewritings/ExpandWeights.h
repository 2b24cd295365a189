// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Where columns of constant weights multiply lanes of their own (groups of channels), a column
/// takes a whole vector in memory for the few lanes that are not zero. Such weights are stored with
/// columns of different lanes in one vector, and set apart at run time, right before the kernel
/// that installs them: a kernel for as many whole groups as a vector of results holds, of weights
/// made by a map. The same values. Returns about how many bytes of constants that saves; 0: nothing
/// is changed.
int64_t expandWeights(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
