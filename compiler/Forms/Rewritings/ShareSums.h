// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// A sum that is the same in all lanes of a result (of a normalisation, say) is made for each of
/// the result's lane tiles. Where a result is longer than a vector, makes it once, with what else
/// of the epilogue is the same in all lanes, and lets maps of each lane tile read it; unless that
/// saves less than a further step takes. Returns how many kernels were cut.
unsigned shareSums(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
