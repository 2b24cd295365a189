// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who has parts of a resource when, while bundles are moved.
#pragma once

#include "compiler/Schedule/Problem/Problem.h"

#include <unordered_map>

namespace millrace::schedule {

/// Of one step. Cycles lie in bins, in which a conflict is found by looking at all.
class Board {
public:
  explicit Board(const ScheduleProblem &problem)
      : problem(&problem), bins(problem.resources.size()) {}

  void put(uint32_t bundle, Cycle start);
  /// Of a bundle that was put at this start.
  void take(uint32_t bundle, Cycle start);
  /// The first start from `from` on at which the bundle meets nobody; with `back` the last one up
  /// to there.
  Cycle fit(uint32_t bundle, Cycle from, bool back) const;

  /// What keeps a bundle from a start, if anything, and the next start at which it does not.
  struct Obstacle {
    Cycle until = 0;
    uint32_t resource = 0, holder = 0;
  };
  std::optional<Obstacle> obstacle(uint32_t bundle, Cycle start) const;

private:
  static constexpr int kBits = 7;
  struct Use {
    Cycle first, end;
    uint32_t low, high, bundle;
  };
  const ScheduleProblem *problem;
  std::vector<std::unordered_map<Cycle, std::vector<Use>>> bins; ///< [resource][cycle >> kBits]

  template <class F> void forEachUse(uint32_t bundle, Cycle start, F f) const;
  Cycle shiftFor(const Hold &h, Cycle start, bool back) const;
  Cycle shiftAt(const Hold &h, Cycle first, bool back, uint32_t *holder = nullptr) const;
};

} // namespace millrace::schedule
