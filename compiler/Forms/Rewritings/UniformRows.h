// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Keeps one vector of each row of a constant that is the same in all lanes and longer than a
/// vector (scales of channels that are rows, of thousands of pixels along the lanes): every vector
/// of a result meets that one. Of what epilogues read inside the tensor, at an index that is no
/// data. Returns how many constants it shortened.
unsigned shortenUniformRows(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
