// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows of a hemisphere: taken once, given back, and never loaded twice.
#include "compiler/MemoryPlan/Allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

using namespace millrace;
using memory::HemisphereAllocator;
using memory::Span;

namespace {

Machine machine(unsigned slices = 4, unsigned rowsPerBank = 8) {
  Machine m;
  m.memory.slices = slices;
  m.memory.slicesPerRegister = 1;
  m.memory.banks = 2;
  m.memory.rowsPerBank = rowsPerBank;
  return m;
}

using Rows = std::set<std::pair<unsigned, unsigned>>; ///< (slice, row)

void add(Rows &rows, const Span &span) {
  for (unsigned slice : span.slices)
    for (unsigned r = 0; r < span.rows; ++r)
      EXPECT_TRUE(rows.insert({slice, span.address + r}).second)
          << "row " << span.address + r << " of slice " << slice << " is taken twice";
}

TEST(Allocator, TakesAcrossBanksOnlySlicesThatNothingHasUsed) {
  const Machine m = machine();
  HemisphereAllocator a(m);
  Rows rows;
  add(rows, a.take(1, 1, 2, 3, {}));
  const std::vector<Span> spans = a.takeAcross(2, 13, 1, 4);
  ASSERT_EQ(spans.size(), 4u); // 8 and 5 rows of slices 1 and 3
  for (const Span &span : spans)
    add(rows, span);
  EXPECT_TRUE(rows.count({1, 12}) && rows.count({3, 12}) && !rows.count({2, 1}));
  EXPECT_TRUE(a.takeAcross(2, 13, 0, 4).empty()) << "only slice 0 is left";
  EXPECT_TRUE(a.takeAcross(1, 17, 0, 1).empty()) << "a slice has 16 rows";
  EXPECT_EQ(a.freeRows(0, 4), 4 * 16 - 1 - 26u);
  for (const Span &span : spans)
    a.give(span, true);
  EXPECT_EQ(a.takeAcross(2, 16, 1, 4).size(), 4u);
}

TEST(Allocator, TakesTheLongestRunsThatSlicesHaveAtDifferentAddresses) {
  const Machine m = machine(2);
  HemisphereAllocator a(m);
  Rows rows;
  // Of 8 rows in each bank, slice 0 keeps the first 3 and slice 1 the last 5 of the last bank.
  add(rows, a.take(1, 8, 0, 1, {}));
  const Span lower = a.take(1, 3, 0, 1, {}), upper = a.take(1, 5, 0, 1, {});
  add(rows, upper);
  a.give(lower);
  add(rows, a.take(1, 8, 1, 2, {}));
  add(rows, a.take(1, 3, 1, 2, {}));
  ASSERT_TRUE(a.take(2, 2, 0, 2, {}).slices.empty()) << "no address is free in both";
  const std::vector<Span> spans = a.takeLongest(2, 8, 0, 2, {}, false);
  ASSERT_EQ(spans.size(), 2u);
  for (const Span &span : spans) {
    add(rows, span);
    EXPECT_EQ(span.rows, 3u);
  }
  EXPECT_TRUE(a.takeLongest(2, 1, 0, 2, {}, false).empty()) << "slice 0 is full";
  EXPECT_EQ(a.freeRows(0, 2), 2u);
}

TEST(Allocator, TakesEverySliceApartWhereItHasRoom) {
  const Machine m = machine();
  HemisphereAllocator a(m);
  Rows rows;
  const Span torn = a.take(1, 6, 2, 3, {}); // slice 2 begins elsewhere
  add(rows, torn);
  for (int k = 0; k < 2; ++k) {
    const std::vector<Span> spans = a.takeApart(4, 4, 0, 4);
    ASSERT_EQ(spans.size(), 4u);
    for (const Span &span : spans)
      add(rows, span);
  }
  EXPECT_TRUE(a.takeApart(4, 8, 0, 4).empty()) << "slice 2 has no 8 rows in one bank";
  EXPECT_EQ(a.freeRows(0, 4), 64u - 6 - 32) << "a failed take takes nothing";
}

TEST(Allocator, FindsSlicesThatAreFreeAtTheSameAddresses) {
  Machine m = machine();
  m.memory.banks = 1;
  HemisphereAllocator a(m);
  const unsigned half = m.memory.rowsPerBank / 2;
  for (unsigned slice = 0; slice < 3; ++slice) { // slices 0 and 2 keep their first half, 1 its last
    const Span first = a.take(1, half, slice, slice + 1, {});
    const Span last = a.take(1, half, slice, slice + 1, {});
    ASSERT_EQ(last.rows, half);
    a.give(slice == 1 ? last : first, true);
  }
  std::vector<unsigned> avoid(m.memory.slices, 0);
  avoid[2] = 5; // the two cheapest slices do not meet
  const Span span = a.take(2, half, 0, 3, avoid);
  ASSERT_EQ(span.slices.size(), 2u);
  EXPECT_EQ(span.slices[0] + span.slices[1], 2u) << "slices 0 and 2";
  EXPECT_EQ(span.rows, half);
}

TEST(Allocator, LoadsOnlyRowsThatNothingUsedBefore) {
  const Machine m = machine(1);
  HemisphereAllocator a(m);
  Span span = a.take(1, 8, 0, 1, {});
  a.give(span);
  span = a.take(1, 8, 0, 1, {}); // the other bank or the same, both now used or given back
  a.give(span);
  const unsigned before = unsigned(a.takeApart(1, 8, 0, 1).size());
  EXPECT_TRUE(a.takeApart(1, 8, 0, 1).empty());
  EXPECT_LE(before, 1u);
  EXPECT_GE(a.freeRows(0, 1), 8u) << "what was given back is free, only not for loading";
}

/// Rows that lie together and became free one after the other are free together once the last one is.
TEST(Allocator, NeighboursThatBecameFreeAtOtherTimesAreOneRunWhereNoneIsLongEnough) {
  Machine m = machine();
  m.memory.banks = 1;
  HemisphereAllocator a(m);
  const unsigned rows = m.memory.rowsPerBank;
  Span first = a.take(1, 3, 0, 1, {}), last = a.take(1, rows - 3, 0, 1, {});
  ASSERT_EQ(first.rows + last.rows, rows);
  first.notBefore = 70;
  last.notBefore = 20;
  a.give(first);
  a.give(last);
  EXPECT_EQ(a.longestRun(0), rows);
  EXPECT_TRUE(a.takeApart(1, rows, 0, 1, {}, true).empty()) << "none of it is fresh";
  const std::vector<Span> enough = a.takeApart(1, rows - 3, 0, 1, {}, false);
  ASSERT_EQ(enough.size(), 1u);
  EXPECT_EQ(enough[0].notBefore, 20) << "one is long enough";
  a.give(enough[0]);
  const std::vector<Span> all = a.takeApart(1, rows, 0, 1, {}, false);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].notBefore, 70);
  EXPECT_EQ(all[0].rows, rows);
  EXPECT_EQ(a.freeRows(0, 1), 0u);
}

TEST(Allocator, AvoidsTheDearerSlices) {
  const Machine m = machine();
  HemisphereAllocator a(m);
  std::vector<unsigned> cost(8, 0);
  cost[0] = cost[1] = 10; // slice 0
  cost[2] = 5;            // bank 0 of slice 1
  const std::vector<Span> spans = a.takeApart(3, 8, 0, 4, cost);
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].slices[0], 1u);
  EXPECT_EQ(spans[0].address, 8u) << "the cheaper bank";
  cost.assign(8, HemisphereAllocator::kForbidden);
  EXPECT_TRUE(a.takeApart(1, 1, 0, 4, cost).empty());
}

TEST(Allocator, NeverGivesARowTwice) {
  std::mt19937 random(3);
  auto below = [&](unsigned n) { return unsigned(random() % n); };
  const Machine m = machine(6, 32);
  for (int round = 0; round < 200; ++round) {
    HemisphereAllocator a(m);
    std::vector<Span> held;
    for (int step = 0; step < 60; ++step) {
      if (below(3) == 0 && !held.empty()) {
        const size_t which = below(unsigned(held.size()));
        a.give(held[which]);
        held.erase(held.begin() + which);
      } else if (below(2)) {
        if (Span s = a.take(1 + below(3), 1 + below(20), 0, 6, {}); !s.slices.empty())
          held.push_back(s);
      } else {
        for (const Span &s : a.takeApart(1 + below(4), 1 + below(10), 0, 6))
          held.push_back(s);
      }
      Rows rows;
      for (const Span &s : held)
        add(rows, s);
      EXPECT_EQ(a.freeRows(0, 6) + rows.size(), 6u * 64);
    }
  }
}

} // namespace
