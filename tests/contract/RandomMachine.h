// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random machines within machineRanges(): all keys drawn, the dependent ones from what they depend
// on.
#pragma once

#include "tests/contract/Ranges.h"

namespace millrace::test {

/// The machine that random ones are laid over and reduced to.
constexpr const char *kBaseMachine = "tsp-small";

/// A machine as overrides of the base machine's keys, "superlanes=3".
std::vector<std::string> randomMachine(Draw &draw);

} // namespace millrace::test
