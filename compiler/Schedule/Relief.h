// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What more of a resource could give, by what the scheduler noted: the same pieces in the same
// order, with shorter waits for it.
#pragma once

#include "compiler/Schedule/Program.h"

#include <bitset>
#include <vector>

namespace millrace::schedule {

/// More of a resource, seen from a schedule.
struct Relief {
  std::bitset<kCauses> causes; ///< waits that become shorter
  /// What is left of the time that others hold it before a piece may start, to 1; with 0 there is
  /// no end of the resource, and nobody waits for it.
  double share = 0;
  /// The resource does work, so that what is done on it goes that much faster, too: sweeps of the
  /// MXM, or with `maps` everything.
  bool sweeps = false, maps = false;
};

/// Cycles of all grid steps if pieces started as early as what they waited for lets them, where
/// waits of `relief` are shorter: each piece behind the pieces that it takes rows, weights and
/// partial sums from, and behind those that it waited for when it was placed. With a share of 1,
/// the cycles of the image; never more, and fewer for smaller shares.
///
/// With a share of 0 and no work that is faster: no schedule of the same pieces takes fewer in
/// which whoever waited for another resource, or for something whose holder is not known, waits as
/// it did. It is a bound for such schedules, and like any other share an estimate for what a
/// compiler makes of a larger machine.
///
/// `image`, `program` and `numbers` as account() takes them. An error, a fault of the compiler: the
/// schedule without any relief differs from the image's.
Expected<std::vector<int64_t>> relievedCycles(const Image &image, const Program &program,
                                              const std::vector<std::vector<uint32_t>> &numbers,
                                              const std::vector<Relief> &reliefs);

} // namespace millrace::schedule
