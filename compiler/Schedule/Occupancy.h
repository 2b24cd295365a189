// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who holds what, when: reservations have two shapes. Ports, banks, ALUs and links are held for
// intervals of cycles; streams for rectangles of diagonals x registers.
#pragma once

#include "arch/spec/Types.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace millrace::schedule {

/// Disjoint intervals [first, last] of cycles on one resource.
class IntervalSet {
public:
  /// Least s >= start such that [s, s + length) is free.
  Cycle firstFree(Cycle start, Cycle length) const;
  bool isFree(Cycle start, Cycle length) const { return firstFree(start, length) == start; }
  void reserve(Cycle start, Cycle length);
  Cycle busyCycles() const { return busy; }

private:
  /// No free run of at least `length` cycles begins in [from, to). Nothing is ever given back, so
  /// this stays true, and a search need not walk over the same intervals again.
  struct Full {
    Cycle length = 0, from = 0, to = 0;
  };
  static constexpr std::size_t kRemembered = 8;
  void remember(Cycle length, Cycle from, Cycle to) const;
  std::size_t firstToEndAt(Cycle cycle) const;

  struct Interval {
    Cycle first = 0, last = 0;
  };
  std::vector<Interval> intervals; ///< by time: most that is new is the latest
  Cycle busy = 0;
  mutable std::vector<Full> full; ///< at most kRemembered, of different lengths
  mutable std::size_t oldest = 0;
};

/// Single cycles: a bit of each, in pages.
class CycleSet {
public:
  bool has(Cycle cycle) const {
    const auto page = pages.find(cycle >> kPageBits);
    return page != pages.end() && (page->second[wordOf(cycle)] & bitOf(cycle));
  }
  void insert(Cycle cycle) { pages[cycle >> kPageBits][wordOf(cycle)] |= bitOf(cycle); }

private:
  static constexpr int kPageBits = 10, kWordBits = 6;
  using Page = std::array<uint64_t, std::size_t(1) << (kPageBits - kWordBits)>;
  static std::size_t wordOf(Cycle cycle) {
    return std::size_t(cycle >> kWordBits) % std::tuple_size_v<Page>;
  }
  static uint64_t bitOf(Cycle cycle) { return uint64_t(1) << (uint64_t(cycle) % 64); }
  std::unordered_map<Cycle, Page> pages;
};

/// Vectors of one stream: diagonals [d0, d1], registers [p0, p1] (p0 <= p1, whatever the
/// direction).
struct Rectangle {
  Cycle d0 = 0, d1 = 0;
  uint16_t p0 = 0, p1 = 0;
  uint32_t holder = 0; ///< the burst that holds it: number in the PE's program
  bool overlaps(const Rectangle &o) const {
    return d0 <= o.d1 && o.d0 <= d1 && p0 <= o.p1 && o.p0 <= p1;
  }
};

/// Rectangles of one stream, found again by diagonal.
class StreamOccupancy {
public:
  /// One of those that `r` meets, until the next reserve(); null if free.
  const Rectangle *conflict(const Rectangle &r) const;
  /// 0 if free, else the least shift to larger diagonals after which this conflict is gone (others
  /// may remain).
  Cycle shiftNeeded(const Rectangle &r) const;
  void reserve(const Rectangle &r);

private:
  static constexpr int kBinBits = 8;
  std::unordered_map<Cycle, std::vector<Rectangle>> bins; ///< diagonal >> kBinBits
};

} // namespace millrace::schedule
