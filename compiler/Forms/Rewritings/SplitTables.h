// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Cuts tables of more than `most` rows, where an operand looks indices up in them, into parts that
/// one Gather reaches: each part is looked up, an index outside a part reads 0, and the bits of all
/// parts are joined by or. Exact. Returns how many lookups were cut.
unsigned splitTables(KernelGraph &graph, int64_t most);

} // namespace millrace::forms
