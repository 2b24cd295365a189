// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What one run of a program is to people: so many tokens, so many images.
#pragma once

#include "arch/program/Image.h"

namespace millrace::driver {

struct Work {
  const char *unit = "runs"; ///< plural
  int64_t perRun = 1;
};

/// Tokens, if an input [batch, sequence] looks up rows of a table; or if an output is an input that
/// has grown along its dimension before the last, as a cache of keys and values does: by so many
/// steps, of each batch. Images, if the one input of rank 2 or more is [batch, channels, height,
/// width]. Else the run itself.
Work workOf(const Image &image);

} // namespace millrace::driver
