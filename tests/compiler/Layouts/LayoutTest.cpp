// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layouts as values: every index has its places, and every place its index.
#include "compiler/Layouts/Layout.h"

#include <gtest/gtest.h>

#include <random>

using namespace millrace;
using namespace millrace::layouts;

namespace {

forms::Tensor image(int64_t channels, int64_t height, int64_t width) {
  forms::Tensor tensor;
  tensor.name = "x";
  tensor.shape = {1, channels, height, width};
  tensor.laneDim = 1;
  return tensor;
}

TEST(Layout, PlainHasARowForEachIndexBesideTheLanes) {
  const forms::Tensor x = image(5, 3, 4);
  const Layout plain = Layout::plain(x);
  EXPECT_TRUE(plain.isPlain(x));
  EXPECT_EQ(plain.verify(x), "");
  EXPECT_EQ(plain.rowShape(), (std::vector<int64_t>{1, 3, 4, 5}));
  EXPECT_FALSE(plain.hasOutside(x));
  EXPECT_EQ(plain.placesOf(2, 2), (std::vector<Place>{{2, 0}}));
}

TEST(Layout, BlocksOfTwoByTwoPixelsFromOneBefore) {
  const forms::Tensor x = image(5, 3, 4);
  Layout layout = Layout::plain(x);
  layout.dims[2] = blocksOf(3, 2, 1, 10);
  layout.dims[3] = blocksOf(4, 2, 0, 5);
  layout.lanes = 20;
  EXPECT_EQ(layout.verify(x), "");
  EXPECT_EQ(layout.rowShape(), (std::vector<int64_t>{1, 2, 2, 20}));
  EXPECT_TRUE(layout.hasOutside(x)); // pixel -1
  EXPECT_EQ(layout.placesOf(2, 0), (std::vector<Place>{{0, 1}}));
  EXPECT_EQ(layout.placesOf(2, 1), (std::vector<Place>{{1, 0}}));
  EXPECT_EQ(layout.placesOf(2, -2), (std::vector<Place>{{-1, 1}})); // of a window
  EXPECT_EQ(*layout.slotsAt(13), (std::vector<int64_t>{0, 3, 1, 0}));
  EXPECT_EQ(layout.text(), "2 x 2 a row in 20 lanes: dim 2 from -1 dim 3");
}

TEST(Layout, GapsHoldNothing) {
  const forms::Tensor x = image(5, 3, 4);
  Layout layout = Layout::plain(x);
  layout.dims[3] = blocksOf(4, 2, 0, 8);
  layout.lanes = 13;
  EXPECT_EQ(layout.verify(x), "");
  EXPECT_TRUE(layout.slotsAt(4));
  EXPECT_FALSE(layout.slotsAt(5));
  EXPECT_TRUE(layout.slotsAt(8));
}

TEST(Layout, RunsOfWholeGroupsLeaveGaps) {
  const forms::Tensor x = image(14, 3, 4);
  Layout layout = Layout::plain(x);
  layout.runs = {6, 8};
  layout.lanes = 18;
  EXPECT_EQ(layout.verify(x), "");
  EXPECT_FALSE(layout.isPlain(x));
  std::vector<int64_t> lanes;
  for (int64_t lane = 0; lane < layout.lanes; ++lane)
    if (const auto slots = layout.slotsAt(lane)) {
      EXPECT_EQ(layout.laneOf(*slots), lane);
      EXPECT_EQ((*slots)[1], int64_t(lanes.size()));
      lanes.push_back(lane);
    }
  EXPECT_EQ(lanes, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 16, 17}));
  EXPECT_EQ(layout.text(), "1 a row, runs of 6 lanes every 8");
  layout.lanes = 17;
  EXPECT_EQ(layout.verify(x), "layout of 'x' needs 18 lanes, not 17");
  layout.runs = {6, 5};
  EXPECT_EQ(layout.verify(x), "layout of 'x' has runs of 6 lanes every 5");
}

TEST(Layout, RowsThatOverlapHoldAnIndexTwice) {
  const forms::Tensor x = image(1, 1, 8);
  Layout layout = Layout::plain(x);
  layout.dims[3] = {4, 2, 3, 1, 0, 1}; // rows 0 1 2, 2 3 4, 4 5 6, 6 7 8
  layout.lanes = 3;
  EXPECT_EQ(layout.verify(x), "");
  EXPECT_EQ(layout.placesOf(3, 4), (std::vector<Place>{{1, 2}, {2, 0}}));
  EXPECT_EQ(layout.placesOf(3, 3), (std::vector<Place>{{1, 1}}));
}

TEST(Layout, OneIndexInEverySlot) {
  const forms::Tensor x = image(4, 1, 1);
  Layout layout = Layout::plain(x);
  layout.dims[2] = {1, 1, 3, 0, 0, 4};
  layout.lanes = 12;
  EXPECT_EQ(layout.verify(x), "");
  EXPECT_EQ(layout.placesOf(2, 0), (std::vector<Place>{{0, 0}}));
}

TEST(Layout, SaysWhatIsWrong) {
  const forms::Tensor x = image(5, 3, 4);
  Layout layout = Layout::plain(x);
  layout.dims[3] = blocksOf(4, 2, 0, 4);
  layout.lanes = 10;
  EXPECT_EQ(layout.verify(x), "layout of 'x': slots of dimension 3 overlap");
  layout.dims[3] = blocksOf(4, 2, 0, 5);
  layout.lanes = 9;
  EXPECT_EQ(layout.verify(x), "layout of 'x' needs 10 lanes, not 9");
  layout.lanes = 10;
  layout.dims[3].rows = 1;
  EXPECT_EQ(layout.verify(x), "layout of 'x': index 2 of dimension 3 has no place");
  layout.dims[3].rowStep = 0;
  EXPECT_EQ(layout.verify(x), "layout of 'x': dimension 3 has no rows, slots or steps");
  layout.dims.pop_back();
  EXPECT_EQ(layout.verify(x), "layout of 'x' has other dimensions than the tensor");
}

TEST(Layout, PlacesAndIndicesAreInverse) {
  std::mt19937 random(7);
  auto draw = [&](int64_t low, int64_t high) {
    return low + int64_t(random() % uint64_t(high - low + 1));
  };
  for (unsigned trial = 0; trial < 500; ++trial) {
    const forms::Tensor x = image(draw(1, 6), draw(1, 9), draw(1, 9));
    Layout layout = Layout::plain(x);
    const int64_t inner = draw(1, 4), outer = draw(1, 4), pitch = x.shape[1] + draw(0, 2);
    layout.dims[3] = blocksOf(x.shape[3], inner, draw(0, inner - 1), pitch);
    layout.dims[2] = blocksOf(x.shape[2], outer, draw(0, outer - 1), inner * pitch);
    layout.lanes = ((outer - 1) * inner + inner - 1) * pitch + x.shape[1];
    ASSERT_EQ(layout.verify(x), "") << layout.text();
    for (unsigned d : {2u, 3u})
      for (int64_t index = -5; index < 15; ++index) {
        const std::vector<Place> places = layout.placesOf(d, index);
        ASSERT_EQ(places.size(), 1u);
        EXPECT_EQ(layout.dims[d].indexAt(places[0].row, places[0].slot), index);
      }
    int64_t held = 0;
    for (int64_t lane = 0; lane < layout.lanes; ++lane)
      if (const auto slots = layout.slotsAt(lane)) {
        EXPECT_EQ(layout.laneOf(*slots), lane);
        ++held;
      }
    EXPECT_EQ(held, inner * outer * x.shape[1]);
  }
}

} // namespace
