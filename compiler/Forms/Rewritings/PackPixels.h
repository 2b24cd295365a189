// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

#include <string>
#include <vector>

namespace millrace::forms {

/// Puts several neighbouring pixels of few channels into one row between contractions: where a
/// contraction writes [1, C, H, W], one with a window along W reads it,
/// and contractions of single pixels read that one's result. The weights become bands, so that
/// packing and unpacking cost no vector of their own. The number of pixels divides W and is the one
/// with the fewest vectors through the MXM; chains that gain nothing stay as they are. The same
/// products are summed, in another order. Returns a line per packed chain.
std::vector<std::string> packPixels(KernelGraph &graph, const Machine &machine);

} // namespace millrace::forms
