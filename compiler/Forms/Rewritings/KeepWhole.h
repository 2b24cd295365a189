// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

#include <functional>

namespace millrace::forms {

/// Lanes that two kernels write, or that a map reads without the others, begin a vector of their
/// own, in every tensor that meets them lane by lane: a chain of residual sums behind one
/// concatenation, or beside slices of channels, is made vector by vector. Where that is worth it,
/// parts and slices are tensors of their own, moved through the MXM into the whole and out of it.
/// Several choices are tried, of those tensors first for which a move saves most: `cost` says what
/// a graph takes beside what is known here, what its concatenations take in the layouts that suit
/// them. Exact; -0 may become +0. Returns how many moves it added.
unsigned keepWhole(KernelGraph &graph, const Machine &machine,
                   const std::function<double(KernelGraph)> &cost);

/// About what kernels keep busy as they meet lanes that are torn apart so, in cycles.
double tornCycles(const KernelGraph &graph, const Machine &machine);
/// About what a product keeps busy that moves so many lanes of each row of a tensor.
double moveCycles(const KernelGraph &graph, const Machine &machine, unsigned tensor, int64_t lanes);

} // namespace millrace::forms
