// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "arch/program/Image.h"

namespace millrace::memory {

/// The check of a memory plan, whoever made it: no two regions hold one row at one time. A region
/// lives from (step0, from) to (step1, to), both included. Errors name both regions, slice and row.
Status verify(const Machine &machine, const std::vector<Region> &regions,
              const std::vector<std::string> &strings);

} // namespace millrace::memory
