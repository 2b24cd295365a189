// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Are quotients and remainders of indices affine where they can be, and does a loop that has to be cut say how?
#include "compiler/Forms/Former/Index.h"

#include <gmock/gmock.h>

using namespace millrace;
using namespace millrace::forms;

namespace {

struct Space {
  std::vector<Loop> loops;
  Splits splits;
  LoopSpace space{loops, splits};

  explicit Space(Splits given = {}) : splits(std::move(given)) {}
  Linear dimension(unsigned dim, int64_t extent) { return space.dimension({nullptr, dim}, extent, LoopKind::Parallel); }
};

Linear linear(int64_t offset, std::map<unsigned, int64_t> terms) { return {offset, std::move(terms)}; }

} // namespace

TEST(Linear, TermsThatCancelAreGone) {
  Linear x = linear(3, {{0, 2}, {1, 5}});
  x.add(linear(1, {{0, 1}, {2, 4}}), -2);
  EXPECT_EQ(x, linear(1, {{1, 5}, {2, -8}}));
}

TEST(LoopSpace, ADimensionIsALoopThatIsMadeOnceAndOneOfExtentOneIsNone) {
  Space s;
  EXPECT_EQ(s.dimension(0, 6), linear(0, {{0, 1}}));
  EXPECT_EQ(s.dimension(1, 1), linear(0, {}));
  EXPECT_EQ(s.dimension(2, 5), linear(0, {{1, 1}}));
  EXPECT_EQ(s.dimension(0, 6), linear(0, {{0, 1}}));
  ASSERT_EQ(s.loops.size(), 2u);
  EXPECT_EQ(s.loops[1].extent, 5);
  EXPECT_EQ(s.space.range(linear(4, {{0, 2}, {1, -3}})), (std::pair<int64_t, int64_t>(4 - 12, 4 + 10)));
}

TEST(LoopSpace, AQuotientThatIsNotAffineSaysHowTheLoopIsCut) {
  Space s;
  s.dimension(7, 3);
  const Linear i = s.dimension(0, 12);
  EXPECT_FALSE(s.space.divide(i, 4));
  ASSERT_TRUE(s.space.wanted);
  EXPECT_EQ(s.space.wanted->at({nullptr, 0}), (std::vector<int64_t>{3, 4}));
  Space cut(*s.space.wanted);
  const Linear j = cut.dimension(0, 12);
  EXPECT_EQ(j, linear(0, {{0, 4}, {1, 1}}));
  EXPECT_EQ(cut.space.divide(j, 4), linear(0, {{0, 1}}));
  EXPECT_EQ(cut.space.modulo(j, 4), linear(0, {{1, 1}}));
  EXPECT_FALSE(cut.space.wanted);
  EXPECT_FALSE(cut.space.divide(j, 2));
  EXPECT_EQ(cut.space.wanted->at({nullptr, 0}), (std::vector<int64_t>{3, 2, 2})) << "the inner part once more";
}

TEST(LoopSpace, ALoopIsNotCutUnevenlyNorTwice) {
  Space s;
  const Linear i = s.dimension(0, 6);
  EXPECT_FALSE(s.space.divide(i, 4));
  EXPECT_FALSE(s.space.wanted) << "6 is not divisible by 4";
  const Linear k = s.dimension(1, 8), l = s.dimension(2, 8);
  EXPECT_FALSE(s.space.divide(k, 4));
  EXPECT_FALSE(s.space.divide(l, 2));
  EXPECT_EQ(s.space.wanted->size(), 1u) << "one cut at a time";
}

TEST(LoopSpace, OffsetsAreDividedDownwards) {
  Space s({{{nullptr, 0}, {3, 4}}});
  const Linear i = s.dimension(0, 12);
  for (int64_t offset : {-12, -8, -4, 0, 4, 8}) {
    Linear moved = i;
    moved.offset = offset;
    EXPECT_EQ(s.space.divide(moved, 4), linear(offset / 4, {{0, 1}})) << offset;
    EXPECT_EQ(s.space.modulo(moved, 4), linear(0, {{1, 1}})) << offset;
  }
  EXPECT_EQ(s.space.divide(linear(-3, {{0, 4}}), 4), linear(-1, {{0, 1}}));
  EXPECT_EQ(s.space.modulo(linear(-3, {{0, 4}}), 4), linear(1, {}));
  EXPECT_FALSE(s.space.divide(linear(9, {{0, 4}, {1, 1}}), 4)) << "the remainder reaches 4";
}

TEST(LoopSpace, AnIndexIsTakenApartIntoTheDimensionsOfAShape) {
  Space s({{{nullptr, 0}, {2, 3, 4}}});
  const Linear i = s.dimension(0, 24);
  llvm::SmallVector<Linear> parts;
  ASSERT_TRUE(s.space.delinearize(i, {2, 1, 3, 4}, parts));
  EXPECT_THAT(std::vector<Linear>(parts.begin(), parts.end()),
              testing::ElementsAre(linear(0, {{0, 1}}), linear(0, {}), linear(0, {{1, 1}}), linear(0, {{2, 1}})));
  parts.clear();
  EXPECT_FALSE(s.space.delinearize(i, {8, 3}, parts));
}
