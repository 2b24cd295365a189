// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What may be done otherwise when a program is scheduled: a search over whole schedules, each of
// which is made and counted.
#pragma once

#include "arch/spec/Expected.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace millrace::grid {

/// How a program is scheduled. What is computed does not depend on it, nor do weights lie elsewhere
/// as long as the same PEs compute.
struct Tactic {
  std::string order = "graph"; ///< a name of schedule::orderSolvers()
  uint64_t seed = 0;           ///< not 0: the order's priorities are drawn near what they are
  int64_t mapRows = 2048;      ///< most rows of a map in one piece
  unsigned bands = 2;          ///< a share of a contraction has 1/bands of the accumulator rows
  unsigned pes = 0;            ///< that compute, the first of the fabric's line; 0: all
  bool operator==(const Tactic &) const = default;
  /// "critical, maps of 128 rows"
  std::string text() const;
};

/// One schedule of a search.
struct Tried {
  Tactic tactic;
  uint64_t cycles = 0; ///< 0: it had no room
};

/// Most efforts that there are: 0 to this.
constexpr unsigned kMostEffort = 3;

/// Looks for a tactic of fewer cycles than `first`, whose program has `bursts` and `cycles`.
/// `schedule` makes and counts the program of one, 0 where it has no room; it is called from
/// several threads, with the number of its call. How many are tried depends on `effort` and
/// `bursts` alone: 0 none; 1 about as many as take some seconds, 2 ten times, 3 fifty times as
/// many; of small programs also half of the PEs, a quarter, and so on to one, as what passes over
/// links may take longer than it saves. Returns the best one, `first` where none is better, with
/// all that were tried in the order of the search.
struct Free {
  bool orders = true; ///< orders other than that of `first` may be tried
  unsigned pes = 1;   ///< PEs of the machine, if fewer may compute
};
struct Found {
  Tactic best;
  std::vector<Tried> tried;
};
Found searchTactics(const Tactic &first, uint64_t cycles, uint64_t bursts, unsigned effort,
                    const Free &free, const std::function<uint64_t(const Tactic &)> &schedule,
                    const std::function<void(size_t, size_t)> &progress = nullptr);

} // namespace millrace::grid
