// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// A kernel whose one term brings lanes of a tensor, unchanged, to lanes elsewhere (a product with
/// an identity matrix) as a map that reads them: for who knows that the lanes need not move. Any
/// other kernel as it is.
Kernel asMap(const KernelGraph &graph, const Kernel &kernel);

} // namespace millrace::forms
