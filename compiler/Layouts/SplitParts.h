// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Layouts/Layout.h"

#include "arch/spec/Machine.h"

namespace millrace::layouts {

/// Cuts tensors whose lanes several kernels write one after the other (a concatenation) into a
/// tensor for each, where some part fills at most half a vector, so that each may have a layout of
/// its own, or lies across more vectors than alone and all alone take no more. A sum over the lanes
/// becomes one of several terms; what works lane by lane becomes a kernel for each part, and what
/// it reads beside them is cut as they are, where its writer can be: lanes of another tensor that
/// begin elsewhere than the result's would keep both from being packed. Of kernels that make the
/// same thereby one is left. Exact, but for the order of sums. Returns how many concatenations it
/// cut.
unsigned splitParts(KernelGraph &graph, const Machine &machine);
/// The same for one tensor, whatever its parts fill. Whether it could be cut.
bool splitTensor(KernelGraph &graph, unsigned tensor, const Machine &machine);

} // namespace millrace::layouts
