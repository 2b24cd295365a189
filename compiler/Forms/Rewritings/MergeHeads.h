// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Lets the heads of an attention lie side by side in a row: a tensor [.., heads, .., d] with lanes
/// d that one contraction of run-time values writes, and that others read as lanes heads x d of one
/// sum, becomes [.., .., heads * d], and their two contracted loops one. A row then holds as many
/// heads as the vector has room for, and the weights of the sum's readers fill their tiles: with 64
/// lanes a head and 320 a vector, 3 tiles instead of 12 for 12 heads. Only where a head is made of
/// whole column groups of a plane, so that an Activate can reach its columns alone. A dimension
/// that counts heads and something else (windows, images) is two for that. Exact: no product and no
/// sum changes. Returns how many tensors were merged.
unsigned mergeHeads(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
