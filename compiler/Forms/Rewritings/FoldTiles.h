// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// A sum over lanes (a product with a matrix that is the same everywhere) sweeps each vector of a
/// long row. Where that takes longer than a further step, maps first add whole vectors of a row to
/// each other, in fp32, and the sum takes what they make: the mean of them in the row's type, or,
/// of two bf16 that add up to a row, two such. Returns how many sums it shortened.
unsigned foldTiles(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
