// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who held what while a program was scheduled.
#pragma once

#include "compiler/Schedule/Waits.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

namespace millrace::schedule {

/// Who held which resource of one PE in one step, found by cycle.
class Holders {
public:
  Holders(const std::vector<Held> &all, uint32_t resources) : begin(resources + 1, 0) {
    for (const Held &h : all)
      ++begin[h.resource + 1];
    for (uint32_t r = 0; r < resources; ++r)
      begin[r + 1] += begin[r];
    std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
    held.resize(all.size());
    for (const Held &h : all)
      held[next[h.resource]++] = h;
    isSorted.assign(resources, false);
  }

  /// Who holds the resource in some of the cycles [from, to], in order of time.
  std::span<const Held> during(uint32_t resource, Cycle from, Cycle to) {
    const auto first = held.begin() + begin[resource], last = held.begin() + begin[resource + 1];
    if (!isSorted[resource])
      std::sort(first, last, [](const Held &x, const Held &y) { return x.first < y.first; });
    isSorted[resource] = true;
    const auto a = std::partition_point(first, last, [&](const Held &h) { return h.last < from; });
    const auto b = std::partition_point(a, last, [&](const Held &h) { return h.first <= to; });
    return {a, b};
  }
  /// The burst that holds the resource in a cycle; none: nothing.
  std::optional<uint32_t> at(uint32_t resource, Cycle cycle) {
    const std::span<const Held> all = during(resource, cycle, cycle);
    return all.empty() ? std::nullopt : std::optional(all.front().burst);
  }

private:
  std::vector<uint32_t> begin; ///< by resource
  std::vector<Held> held;
  std::vector<bool> isSorted;
};

} // namespace millrace::schedule
