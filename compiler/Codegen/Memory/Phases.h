// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors whose rows are touched at a stride: every second pixel, say, by each of two kernels.
#pragma once

#include "compiler/Forms/Kernel.h"

#include <vector>

namespace millrace::grid {

/// Per tensor and dimension: the largest number of steps f such that every access of the tensor
/// either moves the index by a multiple of f or stays within one such step, so that x / f and x % f
/// of an index x are affine in the loops, too; 1 where there is none. The rows of each x % f then
/// lie together (TensorLayout::phases), as the workers that make or read them step through them. 1
/// for what the host touches, what is installed, and tables and indices of lookups, whose order is
/// not free, and for dimensions through which a reduction runs.
std::vector<std::vector<int64_t>> phasesOf(const forms::KernelGraph &graph);

} // namespace millrace::grid
