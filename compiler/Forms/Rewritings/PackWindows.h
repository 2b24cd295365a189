// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

#include <string>
#include <vector>

namespace millrace::forms {

struct PackOptions {
  double mostRepeats = 3; ///< how often the host may write an input element, on average
};

/// Packs several pixels into one row where a convolution reads the model's input and feeds a
/// pooling: the host writes rows of whole windows, the convolution computes one
/// packed tensor per column tap of the pooling, so that pooling is lane-wise, and contractions with
/// 0/1 matrices unpack the result. A pixel of few channels would otherwise fill few of the lanes.
/// Returns a line per packed convolution.
std::vector<std::string> packWindows(KernelGraph &graph, const Machine &machine,
                                     const PackOptions &options = {});

} // namespace millrace::forms
