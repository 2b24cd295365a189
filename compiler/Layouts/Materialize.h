// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Layouts/Layout.h"

#include "arch/spec/Expected.h"
#include "arch/spec/Machine.h"

namespace millrace::layouts {

/// Rewrites the graph so that its tensors are the rows and lanes that `layouts` says, one for each
/// tensor: weights and other constants are laid out anew, a kernel whose rows differ in what they
/// need becomes one for each phase, and places that no element has hold what readers expect beside
/// the tensor. The same products are summed, in another order. Tensors of a plain layout stay as
/// they are. Errors: a kernel that cannot work in its layouts.
Status materialize(KernelGraph &graph, const Machine &machine, const std::vector<Layout> &layouts);

/// What all windows that leave the tensor read there; nothing if they differ.
std::optional<uint32_t> padOf(const KernelGraph &graph, unsigned tensor);
/// The same for every tensor.
std::vector<std::optional<uint32_t>> padsOf(const KernelGraph &graph);

} // namespace millrace::layouts
