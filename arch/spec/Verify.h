// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is wrong with the numbers of a machine, one thing at a time; Machine::verify says it as one
// error. Nothing else refuses a machine for its numbers (docs/spec/machine.md, 7).
#pragma once

#include "arch/spec/Machine.h"

#include <string>
#include <vector>

namespace millrace {

/// Numbers of a machine that cannot be together.
struct Contradiction {
  std::vector<std::string> keys; ///< their paths in a machine file, such as "mxm.rows"
  std::string text;              ///< what is wrong, with the numbers, and the remedy
};

/// All of them; none for a machine that compiler and simulator take.
std::vector<Contradiction> contradictionsOf(const Machine &machine);

} // namespace millrace
