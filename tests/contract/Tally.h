// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The verdicts of a campaign, with the reason of every survivor.
#pragma once

#include "tests/contract/Explain.h"

#include <map>

namespace millrace::test {

struct Counts {
  unsigned mutants = 0, killed = 0, malformed = 0, different = 0, harmless = 0, hung = 0,
           crashed = 0;
  unsigned rejected[12] = {}; ///< by invariant, from 1
  void add(const Verdict &verdict);
};

/// A mutant of which the two simulators say different things.
struct Disagreement {
  std::string image, kind, where;
};

struct Survivor {
  std::string image, kind, where;
  Explanation why;
};

struct Tally {
  Counts total;
  std::map<std::string, Counts> byImage, byKind;
  std::vector<Survivor> survivors;
  unsigned unexplained = 0;
  unsigned stepped = 0; ///< mutants that the slow simulator judged as well
  std::vector<Disagreement> disagreements;
  /// `explanation` is asked for when the mutant survived.
  void add(const std::string &image, const Mutant &mutant, const Verdict &verdict,
           const std::function<Explanation()> &explanation);
  void addTruth(const std::string &image, const Mutant &mutant, Truth truth);
  std::string text() const; ///< for people
  std::string json(unsigned each, unsigned seed) const;
};

} // namespace millrace::test
