// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Occupancy.h"

#include <algorithm>
#include <cassert>

namespace millrace::schedule {

/// The first interval that ends at `cycle` or later, looked for from the latest on, in steps that
/// double: most are asked for near the end.
size_t IntervalSet::firstToEndAt(Cycle cycle) const {
  size_t from = intervals.size(), to = from;
  for (size_t step = 1; from > 0 && intervals[from - 1].last >= cycle; step *= 2) {
    to = from - 1;
    from -= std::min(step, from);
  }
  const auto found = std::partition_point(intervals.begin() + std::ptrdiff_t(from),
                                          intervals.begin() + std::ptrdiff_t(to),
                                          [&](const Interval &i) { return i.last < cycle; });
  return size_t(found - intervals.begin());
}

Cycle IntervalSet::firstFree(Cycle start, Cycle length) const {
  const Cycle from = start;
  for (const Full &f : full)
    if (f.length <= length && f.from <= start && start < f.to)
      start = f.to;
  for (size_t i = firstToEndAt(start); i < intervals.size() && intervals[i].first < start + length;
       ++i)
    start = intervals[i].last + 1;
  if (start != from)
    remember(length, from, start);
  return start;
}

/// Of each length what joins on, or reaches further than what is known.
void IntervalSet::remember(Cycle length, Cycle from, Cycle to) const {
  for (Full &f : full) {
    if (f.length != length)
      continue;
    if (from <= f.to && f.from <= to) {
      f.from = std::min(f.from, from);
      f.to = std::max(f.to, to);
    } else if (to - from > f.to - f.from) {
      f = {length, from, to};
    }
    return;
  }
  if (full.size() < kRemembered) {
    full.push_back({length, from, to});
    return;
  }
  full[oldest] = {length, from, to};
  oldest = (oldest + 1) % kRemembered;
}

void IntervalSet::reserve(Cycle start, Cycle length) {
  assert(isFree(start, length));
  busy += length;
  const Cycle last = start + length - 1;
  const auto next = intervals.begin() + std::ptrdiff_t(firstToEndAt(start));
  const bool joinsNext = next != intervals.end() && next->first == last + 1,
             joinsBefore = next != intervals.begin() && std::prev(next)->last == start - 1;
  if (joinsNext && joinsBefore) {
    std::prev(next)->last = next->last;
    intervals.erase(next);
  } else if (joinsNext) {
    next->first = start;
  } else if (joinsBefore) {
    std::prev(next)->last = last;
  } else {
    intervals.insert(next, {start, last});
  }
}

const Rectangle *StreamOccupancy::conflict(const Rectangle &r) const {
  for (Cycle bin = r.d0 >> kBinBits; bin <= r.d1 >> kBinBits; ++bin) {
    auto it = bins.find(bin);
    if (it == bins.end())
      continue;
    for (const Rectangle &held : it->second)
      if (held.overlaps(r))
        return &held;
  }
  return nullptr;
}

Cycle StreamOccupancy::shiftNeeded(const Rectangle &r) const {
  const Rectangle *held = conflict(r);
  return held ? held->d1 + 1 - r.d0 : 0;
}

void StreamOccupancy::reserve(const Rectangle &r) {
  for (Cycle bin = r.d0 >> kBinBits; bin <= r.d1 >> kBinBits; ++bin)
    bins[bin].push_back(r);
}

} // namespace millrace::schedule
