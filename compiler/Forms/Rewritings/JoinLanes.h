// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Makes one loop of two along the lanes of a result (pixels of a window, rows and columns of an
/// image that are tokens): a kernel writes tiles of the lanes of one loop alone, and what meets them
/// elsewhere is cut into such tiles, too. Where what is installed has the two in rows of two
/// dimensions, a copy of it has them in one; where an operand has the inner one along its lanes and
/// the outer one in rows, both become its lanes, if everything that touches it can take them so.
/// Exact. Returns how many kernels it changed.
unsigned joinLanes(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
