// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Codegen/Grid/Context.h"

namespace millrace::grid {

/// How the host's tensors map to rows (R15): every copy of an input, one copy of an output.
std::vector<Binding> bindingsOf(const Context &c);

} // namespace millrace::grid
