// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Gives a tensor of one row that maps read for all rows of their results (a mean per channel) the
/// dimensions of the largest of those, each but the lanes' of one index: it may then lie in every
/// slot of a packed layout, and holds no result to a row for each pixel. Nothing else changes.
/// Returns how many tensors it gave others.
unsigned alignRanks(KernelGraph &graph);

/// Gives what a kernel writes beside its first result the order of that one's dimensions, where it
/// has the same ones and holds no ONNX value: layouts are chosen for both together. Returns how many
/// tensors it turned.
unsigned alignOrders(KernelGraph &graph);

} // namespace millrace::forms
