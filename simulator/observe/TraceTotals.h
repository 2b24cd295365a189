// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a PE does in a cycle, summed over its bursts, for the counters of a trace.
#pragma once

#include "arch/spec/Machine.h"
#include "simulator/base/Burst.h"

#include <array>
#include <map>

namespace millrace::sim {

class TraceTotals {
public:
  enum Counter : unsigned { Streams, MemoryPorts, Macs, kCounters };
  using Values = std::array<double, kCounters>;
  static const char *nameOf(Counter counter);

  /// Counts a burst that acts in cycles [from, to). What it does in a cycle is its mean: bursts may
  /// pause between elements.
  void add(const Burst &burst, const Machine &machine, uint64_t from, uint64_t to);

  /// Calls `change(cycle, counter, value)` for every value that holds from a cycle on, in order of
  /// time, and forgets all.
  template <class Change> void take(Change change) {
    Values values{}, shown{};
    for (const auto &[cycle, delta] : deltas)
      for (unsigned c = 0; c < kCounters; ++c) {
        values[c] += delta[c];
        if (const double value = rounded(values[c]); value != shown[c])
          change(cycle, Counter(c), shown[c] = value);
      }
    deltas.clear();
  }

private:
  /// Sums of fractions end at zero again.
  static double rounded(double value);
  std::map<uint64_t, Values> deltas; ///< by cycle
};

} // namespace millrace::sim
