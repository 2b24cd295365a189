// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies of tensors through the MXM, by products with ones and zeros: what they read and what they
// write may have any layouts.
#pragma once

#include "compiler/Layouts/Layout.h"

#include "arch/spec/Machine.h"

namespace millrace::layouts {

/// Which elements of a dimension go to element i of the copy: step * i + offset.
struct Moved {
  unsigned dim = 0;
  int64_t step = 1, offset = 0;
};

/// Can all elements of the tensor be moved so, with their values? -0 may become +0.
bool canMove(const KernelGraph &graph, const Machine &machine, unsigned tensor);

/// The kernel that moves elements of one tensor to all of another with the same lanes; elements
/// outside the first are `pad` (raw bits). Appends constants to the graph, not the kernel.
Kernel moveOf(KernelGraph &graph, unsigned from, unsigned to, const Moved &moved, uint32_t pad = 0);

/// Lets the results of a kernel be `pad` wherever element step * i + offset of a dimension lies
/// outside `extent`; i is the loop that moves that dimension of its first result. Appends a
/// constant to the graph, unless all lie inside.
void maskOutside(KernelGraph &graph, Kernel &kernel, const Moved &moved, int64_t extent,
                 uint32_t pad);

} // namespace millrace::layouts
