// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Deals the steps of a running reduction of sums from the MXM (the maximum of scores) to as many
/// accumulators as an ALU has, and combines what those hold in a map: one accumulator takes a step
/// only every few cycles, several side by side one in each. Done where that takes fewer cycles.
/// Blocks of steps may overlap where a value counts once however often it comes. Returns how many
/// reductions it dealt.
unsigned interleaveRunning(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
