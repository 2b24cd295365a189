// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes a failing case smaller as long as it still fails: fewer steps, smaller sizes, machine
// parameters back at those of the base machine.
#pragma once

#include "tests/contract/Case.h"

#include <functional>

namespace millrace::test {

/// Whether a case still shows what is looked for. Cases that are no machine or no graph must be
/// refused by it.
using Shows = std::function<bool(const Case &)>;

/// The smallest case found, of which no single part can be left out or made smaller. `shows` holds
/// of `c` and of the result. Asks at most `mostTries` times.
Case reduce(Case c, const Shows &shows, unsigned mostTries = 4000);

/// Cases that come to the same verdict for the same reason as this outcome.
Shows sameAs(const Outcome &outcome, const TrialOptions &options);

} // namespace millrace::test
