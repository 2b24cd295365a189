// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is refused before any time is spent on it.
#pragma once

#include "arch/spec/Machine.h"
#include "compiler/Forms/Kernel.h"

namespace millrace::driver {

/// A model that cannot be in the memory of all PEs, however it is laid out, is refused before it is
/// planned, by how much it is larger: its constants are there all the time, its inputs at the
/// beginning, every other value at some time, its outputs at the end. A value takes whole vectors.
Status checkFits(const forms::KernelGraph &graph, const Machine &machine);

} // namespace millrace::driver
