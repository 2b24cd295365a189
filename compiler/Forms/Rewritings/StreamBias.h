// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// A constant that is added to a sum, and that is the same along the lanes but differs by row (the
/// bias of features that lie along rows), takes four bytes of every lane of memory. Where constants
/// take more than three quarters of the machine's memory it becomes a term of the sum instead:
/// three lanes that add up to it in the format of the sum's operands, times ones. Returns how many.
unsigned streamBias(KernelGraph &graph, const Machine &machine);

/// The part of all memory that constants take, stored once in whole vectors: 1 is all of it.
double constantShare(const KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
