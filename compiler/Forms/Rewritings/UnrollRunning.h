// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Turns reductions over running loops into maps that read every step as an operand of its own (a
/// depthwise convolution, an average over windows). A reduction takes a bundle for each row of
/// results and waits for its accumulator at every step; a map streams its rows, one a cycle, and
/// may have any layout. Done where that takes fewer cycles. Sums are taken in the order of the
/// steps. Returns how many it unrolled.
unsigned unrollRunning(KernelGraph &graph, const Machine &machine);

/// Cycles from one step of a running reduction to the next in the same accumulator (S8).
int64_t stepInterval(const Machine &machine, AluOp op);

/// Cycles that a step of a running reduction `node` takes for each row of the result, about: several
/// rows go through the accumulators of one ALU side by side, as far as a row loop has them.
double stepCycles(const KernelGraph &graph, const Kernel &kernel, const Node &node,
                  const Machine &machine);

} // namespace millrace::forms
