// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Scores of several heads in one vector. A product of two run-time tensors for each of many heads,
/// whose rows hold the lanes of all heads, gives vectors of as many lanes as a head has columns,
/// and so do the maps and reductions that follow. Where several heads' columns fit a vector, the
/// columns of each are installed with the lanes of the other heads zero, so that one sweep over the
/// lanes of all of them gives a row for all; what follows works on whole rows. Zeros are added, in
/// the order of the lanes, so that values are those of before, unless what is swept is NaN in one
/// head and not in another; what may be infinite is left. Only where the vectors saved are worth
/// it. Returns how many products were packed.
unsigned packHeads(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
