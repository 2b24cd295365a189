// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// PEs on their fabric: in which order work meets them, and by which links rows travel.
#pragma once

#include "arch/spec/Machine.h"

#include <vector>

namespace millrace::placement {

/// Place p of a line of work is PE order[p]: what is next to each other in the work is next to each
/// other on the fabric where that is possible.
struct Placement {
  std::vector<unsigned> order;
  /// Steps of the line that no link spans.
  unsigned gaps = 0;
};

/// A walk over the fabric's graph that takes the neighbour with the fewest neighbours left
/// (Warnsdorff's rule); from a dead end it goes on at the nearest PE left. If `first` PEs fill
/// whole columns, those come first, in the order that a fabric of so many columns would have.
Placement solve(const Machine &machine, unsigned first = 0);
/// Every PE once, and as many gaps as it says.
Status verify(const Machine &machine, const Placement &placement);

/// For every source PE, the link by which each other PE is reached first: a tree of the routes of
/// least latency (Dijkstra).
class Routes {
public:
  explicit Routes(const Machine &machine);
  /// Links of the tree from `from` that lead to the given PEs, sources before targets. Empty if one
  /// cannot be reached.
  std::vector<const Link *> tree(unsigned from, const std::vector<unsigned> &to) const;

private:
  std::vector<std::vector<const Link *>> into; ///< [from][pe]: last link on the way
};

} // namespace millrace::placement
