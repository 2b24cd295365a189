// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// ALUs that the kernel's epilogue keeps busy at once on long rows of work: one per operation, and
/// those that hold a value back until a later operation takes it. Constant operands count as
/// latched, so it may need more.
unsigned alusOf(const Kernel &kernel, const KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
