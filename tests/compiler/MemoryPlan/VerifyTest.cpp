// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does the check of a memory plan see every overlap, and nothing else?
#include "compiler/MemoryPlan/Verify.h"

#include <gtest/gtest.h>

#include <random>

using namespace millrace;

namespace {

Region region(uint32_t row, uint32_t rows, uint64_t from, uint64_t to, uint16_t step0 = 0,
              uint16_t step1 = 0) {
  Region r;
  r.row = row;
  r.rows = rows;
  r.from = from;
  r.to = to;
  r.step0 = step0;
  r.step1 = step1;
  return r;
}

Status check(const std::vector<Region> &regions) {
  Machine m;
  return memory::verify(m, regions, {"a"});
}

TEST(MemoryPlan, TakesRowsOneAfterTheOther) {
  EXPECT_TRUE(check({region(0, 10, 0, 5), region(0, 10, 6, 9), region(10, 5, 0, 9)}));
}
TEST(MemoryPlan, TakesPartsOfRowsThatAreFreeAgain) {
  EXPECT_TRUE(check({region(0, 10, 0, 5), region(4, 2, 6, 9), region(0, 4, 7, 8)}));
}
TEST(MemoryPlan, RefusesOneCycleTooEarly) {
  Status s = check({region(0, 10, 0, 5), region(9, 10, 5, 9)});
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().find("live at one time in slice 0"), std::string::npos) << s.error();
}
TEST(MemoryPlan, StepsComeBeforeCycles) {
  EXPECT_TRUE(check({region(0, 1, 90, 100), region(0, 1, 0, 1, 1, 1)}));
  EXPECT_FALSE(check({region(0, 1, 90, 0, 0, 1), region(0, 1, 0, 1, 1, 1)}));
}
TEST(MemoryPlan, KnowsWhatIsLeftOfARegionBesideALaterOne) {
  // The long region is partly gone under the middle one, its ends still live: not seen as free.
  EXPECT_FALSE(check({region(0, 2, 0, 3), region(2, 8, 0, 20), region(0, 4, 4, 9)}));
  EXPECT_FALSE(check({region(0, 10, 0, 20), region(8, 4, 19, 30)}));
}

TEST(MemoryPlan, AgreesWithEveryPairChecked) {
  std::mt19937 random(7);
  auto below = [&](unsigned n) { return unsigned(random() % n); };
  unsigned refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Region> regions;
    for (unsigned k = 0; k < 6; ++k) {
      Region r = region(below(12), 1 + below(5), below(30), 0, uint16_t(below(2)));
      r.step1 = uint16_t(r.step0 + below(2));
      r.to = r.step1 == r.step0 ? r.from + below(10) : below(30);
      r.slice = uint16_t(below(2));
      regions.push_back(r);
    }
    bool overlap = false;
    for (size_t a = 0; a < regions.size(); ++a)
      for (size_t b = a + 1; b < regions.size(); ++b) {
        const Region &x = regions[a], &y = regions[b];
        auto before = [](const Region &p, const Region &q) {
          return std::pair(p.step1, p.to) < std::pair(q.step0, q.from);
        };
        overlap |= x.slice == y.slice && x.row < y.row + y.rows && y.row < x.row + x.rows &&
                   !before(x, y) && !before(y, x);
      }
    EXPECT_EQ(bool(check(regions)), !overlap) << "round " << round;
    refused += overlap;
  }
  EXPECT_GT(refused, 300u);
  EXPECT_LT(refused, 2900u);
}

} // namespace
