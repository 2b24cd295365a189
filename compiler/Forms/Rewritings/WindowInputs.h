// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/Kernel.h"

namespace millrace::forms {

/// Lets the host write the windows of images with few channels into the lanes (`lanes`: bytes of a
/// vector), so that a stem convolution needs a few passes instead of one per tap.
void windowInputs(KernelGraph &graph, int64_t lanes);

} // namespace millrace::forms
