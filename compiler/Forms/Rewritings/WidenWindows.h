// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"
#include "compiler/Forms/Room.h"

#include "arch/spec/Machine.h"

namespace millrace::forms {

/// Stores in fp32, unrounded, what only maps read that widen it, where a window (a depthwise
/// convolution, a pooling) would convert it at each of its taps and takes the VXM fewer cycles
/// without. Only where splitEpilogues, which comes after and cuts at most `most` operations, still
/// has room for the copies that taps are read from. Returns how many tensors it widened.
unsigned widenWindows(KernelGraph &graph, unsigned most, const Machine &machine, Room room);

} // namespace millrace::forms
