// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

#include <optional>
#include <utility>

namespace millrace::forms {

/// A sum that is the same in all lanes of a result (of a normalisation, say) is made for each of
/// the result's lane tiles. Where a result is longer than a vector, makes it once, with what else
/// of the epilogue is the same in all lanes, and lets maps of each lane tile read it; unless that
/// saves less than a further step takes. Returns how many kernels were cut.
unsigned shareSums(KernelGraph &graph, const Machine &machine);

/// The same for a kernel whose lanes are about to be dealt to `times` kernels: one that makes the
/// sum for all lanes, and a map that reads it. Nothing where there is no such sum, no map, or too
/// little is saved.
std::optional<std::pair<Kernel, Kernel>> separateSum(KernelGraph &graph, const Kernel &kernel,
                                                     const Machine &machine, int64_t times);

} // namespace millrace::forms
