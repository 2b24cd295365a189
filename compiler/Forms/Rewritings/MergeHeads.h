// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Lets the heads of an attention lie side by side in a row: a tensor [.., heads, .., d] with lanes
/// d becomes [.., .., heads * d], and with it all that maps and sums within a head meet with it.
/// Who makes it, or sums over all heads, has one loop of both; then a row holds as many heads as
/// the vector has room for, and weights fill their tiles: with 64 lanes a head and 320 a vector, 3
/// tiles instead of 12 for 12 heads. Products of run-time values make each head in columns of its
/// own: only where it is made of whole column groups of a plane, so that an Activate can reach them
/// alone. A dimension that counts heads and something else (windows, images) is two for that.
/// Exact: no product and no sum changes. Returns how many tensors were merged.
unsigned mergeHeads(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
