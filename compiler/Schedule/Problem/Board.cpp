// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Problem/Board.h"

namespace millrace::schedule {

template <class F> void Board::forEachUse(uint32_t bundle, Cycle start, F f) const {
  for (const Hold &h : problem->bundles[bundle].holds)
    for (uint32_t k = 0; k < h.count; ++k)
      f(h, start + h.at + Cycle(k) * h.every);
}

void Board::put(uint32_t bundle, Cycle start) {
  forEachUse(bundle, start, [&](const Hold &h, Cycle first) {
    const Use use{first, first + h.length, h.low, h.high, bundle};
    for (Cycle bin = first >> kBits; bin <= (use.end - 1) >> kBits; ++bin)
      bins[h.resource][bin].push_back(use);
  });
}

void Board::take(uint32_t bundle, Cycle start) {
  forEachUse(bundle, start, [&](const Hold &h, Cycle first) {
    for (Cycle bin = first >> kBits; bin <= (first + h.length - 1) >> kBits; ++bin)
      std::erase_if(bins[h.resource][bin], [&](const Use &u) { return u.bundle == bundle; });
  });
}

Cycle Board::fit(uint32_t bundle, Cycle from, bool back) const {
  Cycle start = from;
  const std::vector<Hold> &holds = problem->bundles[bundle].holds;
  for (size_t clean = 0, at = 0; clean < holds.size(); at = (at + 1) % holds.size()) {
    const Cycle shift = shiftFor(holds[at], start, back);
    start += back ? -shift : shift;
    clean = shift ? 1 : clean + 1; // shiftFor() leaves this hold free
  }
  return start;
}

std::optional<Board::Obstacle> Board::obstacle(uint32_t bundle, Cycle start) const {
  std::optional<Obstacle> found;
  forEachUse(bundle, start, [&](const Hold &h, Cycle first) {
    uint32_t holder = 0;
    if (const Cycle shift = found ? 0 : shiftAt(h, first, false, &holder))
      found = {start + shift, h.resource, holder};
  });
  return found;
}

/// How far this hold moves until all of it is free.
Cycle Board::shiftFor(const Hold &h, Cycle start, bool back) const {
  Cycle shift = 0;
  for (uint32_t k = 0, clean = 0; clean < h.count; k = (k + 1) % h.count) {
    const Cycle first = start + h.at + Cycle(k) * h.every + (back ? -shift : shift);
    const Cycle more = shiftAt(h, first, back);
    shift += more;
    clean = more ? 0 : clean + 1;
  }
  return shift;
}

/// How far one of its repetitions does until it is behind all that it meets now.
Cycle Board::shiftAt(const Hold &h, Cycle first, bool back, uint32_t *holder) const {
  const auto &of = bins[h.resource];
  const Cycle end = first + h.length;
  Cycle shift = 0;
  for (Cycle bin = first >> kBits; bin <= (end - 1) >> kBits; ++bin) {
    const auto found = of.find(bin);
    if (found == of.end())
      continue;
    for (const Use &u : found->second) {
      const Cycle its = back ? end - u.first : u.end - first;
      if (u.first >= end || first >= u.end || u.low > h.high || h.low > u.high || its <= shift)
        continue;
      shift = its;
      if (holder)
        *holder = u.bundle;
    }
  }
  return shift;
}

} // namespace millrace::schedule
