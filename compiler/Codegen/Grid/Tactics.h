// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What may be done otherwise when a program is scheduled: a search over whole schedules, each of
// which is made and counted.
#pragma once

#include "arch/spec/Machine.h"
#include "compiler/Codegen/Memory/Used.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace millrace::grid {

/// How a program is scheduled, and where it lies. What is computed does not depend on it.
struct Tactic {
  std::string order = "graph"; ///< a name of schedule::orderSolvers()
  uint64_t seed = 0;           ///< not 0: the order's priorities are drawn near what they are
  int64_t mapRows = 2048;      ///< most rows of a map in one piece
  unsigned bands = 2;          ///< a share of a contraction has 1/bands of the accumulator rows
  /// Pieces short enough that, one after another, they fill the ALUs (forms::rowsOfBurst): 1 those
  /// of contractions of one pass; 2 those of maps, too.
  unsigned fills = 0;
  unsigned flight = 1; ///< kernels that are scheduled together, where one PE computes
  /// StorageWays::segments; 0: halves.
  unsigned segments = 0;
  /// Rows lie where little else happens when they would be touched if memory held nothing up: how
  /// much a place costs at most for that (StorageWays::mostForMeeting). 0: nobody asks.
  unsigned meeting = 0;
  unsigned pes = 0;   ///< that compute, the first of the fabric's line; 0: all
  bool mixed = false; ///< weights and activations may lie in the same slices
  /// Replicas for Install lie in other slices, halves of an owner's rows in other banks, than in
  /// the way in which room was found first.
  bool otherSlices = false, otherBanks = false;
  Used used; ///< units of each PE
  auto operator<=>(const Tactic &) const = default;
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

/// What a search may change.
struct Free {
  bool orders = true;             ///< orders other than that of `first`
  std::vector<unsigned> pes = {}; ///< numbers of PEs that may compute instead of those of `first`
  bool flights = false;           ///< Tactic::flight; with one of several PEs it may always be
  bool places = false;            ///< Tactic::mixed, otherSlices, otherBanks
  bool halves = false;            ///< otherBanks puts halves of rows in two banks: tried first
  std::vector<Used> parts = {};   ///< of the machine's units that may be used instead of all
};
/// Numbers of PEs below `pes` (0: all of the machine's), the largest first: a column less than all,
/// columns by powers of two, and PEs of one column likewise. Those of a fabric of fewer columns are
/// among them, or near.
std::vector<unsigned> fewerPes(const Machine &machine, unsigned pes = 0);
/// Half of a machine's planes, slices, ALUs or banks, and as little less as there can be.
std::vector<Used> partsOf(const Machine &machine);

struct Found {
  Tactic best;
  std::vector<Tried> tried;
};

/// Looks for a tactic of fewer cycles than `first`, whose program has `bursts` and `cycles`.
/// `schedule` makes and counts the program of one, 0 where it has no room; it is called from
/// several threads. How many are tried depends on `effort` and `bursts` alone: 0 none; 1 about as
/// many as take some seconds, 2 ten times, 3 fifty times as many, those of less effort first. Tried
/// are orders, kernels scheduled together and lengths of pieces; fewer PEs, as what passes over
/// links may take longer than it saves; then, of the best one so far, other places in memory and
/// parts of the machine, and orders again where one of these takes fewer cycles. Returns the best
/// one, `first` where none is better, with all that were tried in the order of the search.
Found searchTactics(const Tactic &first, uint64_t cycles, uint64_t bursts, unsigned effort,
                    const Free &free, const std::function<uint64_t(const Tactic &)> &schedule,
                    const std::function<void(size_t, size_t)> &progress = nullptr);

} // namespace millrace::grid
