// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Many random graphs on many random machines, and the count of what became of them.
#pragma once

#include "tests/contract/Case.h"
#include "tests/contract/Ranges.h"

#include <functional>

namespace millrace::test {

/// Cycles times PEs that the slow simulator steps within seconds.
constexpr unsigned kMostSteps = 20000;

struct CampaignOptions {
  unsigned machines = 1, graphs = 1; ///< graphs on each machine
  unsigned first = 1;                ///< seed of the first machine
  unsigned mostSteps = kMostSteps;
};

struct CampaignTally {
  unsigned cases = 0, agreed = 0, refused = 0, failures = 0, stepped = 0;
  uint64_t cycles = 0;
  double distance = 0; ///< the largest of those that agree
  std::map<std::string, unsigned> refusals, failureKinds, operations;
  std::string text() const;
};

/// "refused: ..." in a line.
std::string describe(const Outcome &outcome);

/// `say` hears of every case that does not agree.
CampaignTally runCampaign(const CampaignOptions &options,
                          const std::function<void(const std::string &)> &say);

} // namespace millrace::test
