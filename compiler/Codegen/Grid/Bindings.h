// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Codegen/Grid/Partition.h"

namespace millrace::grid {

/// Tensors that the host reads or writes, in the order of their bindings.
std::vector<unsigned> boundTensors(const KernelGraph &graph);

/// How the host's tensors map to rows (R15): every copy of an input; of an output, on every PE one
/// copy of what was written there.
std::vector<Binding> bindingsOf(Context &c, const Partition &partition);

} // namespace millrace::grid
