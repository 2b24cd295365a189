// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many bursts do rows need that land in a column copy, and do all of them arrive?
#include "compiler/Codegen/Grid/Bursts.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

using namespace millrace;
using schedule::Piece;

namespace {

/// A tensor of kOuter x kInner rows, whose columns are neighbours along the outer dimension.
class Bursts : public testing::Test {
protected:
  static constexpr unsigned kOuter = 32, kInner = 7;
  Machine machine = *loadMachine("tsp-small");
  const unsigned width = machine.mxm.columnsPerInstall;
  forms::KernelGraph graph = forms::buildMatmul({});
  schedule::Program program{machine};
  grid::Context c{machine, graph, program};
  Piece piece{program};
  grid::TensorLayout layout;
  grid::Copy copy;

  Bursts() {
    layout.pitch = {kInner, 1, 0};
    layout.columnPitch = {1, kOuter, 0};
    layout.rows = kOuter * kInner;
    grid::Columns columns;
    columns.rows = layout.rows;
    for (unsigned place = 0; place < width; ++place) {
      columns.slices.push_back(place);
      columns.addresses.push_back(100);
      columns.regions.push_back(program.addRegion({}));
    }
    copy.columns = true;
    copy.columnTiles.push_back(columns);
  }
  /// (slice, address) of each row's write, by the cycle that its stream passes position 0.
  std::map<Cycle, std::pair<unsigned, unsigned>> writes(const grid::RowPattern &rows, const grid::Flow &flow) {
    const Piece::StreamVar stream = piece.stream(0, Hemisphere::West, Direction::Outward, 1);
    grid::writeRows(c, piece, layout, copy, 0, rows, flow, stream, 0, 0);
    std::map<Cycle, std::pair<unsigned, unsigned>> all;
    for (bursts = 0; bursts < piece.size(); ++bursts) {
      const Instruction &i = piece.proto(bursts);
      const unsigned slice = piece.unitOf(bursts).index;
      const Cycle from = piece.at(bursts) - program.timing.hops(0, machine.position(slice));
      schedule::forEachElement(i, [&](unsigned i0, unsigned i1) {
        all[from + schedule::elementCycle(i, i0, i1)] = {slice, schedule::elementAddress(i, i0, i1)};
      });
    }
    return all;
  }
  unsigned bursts = 0;
};

TEST_F(Bursts, RowsThatStepEvenlyThroughASliceAreOneBurstWhateverTheStep) {
  const auto all = writes({0, 1, kInner}, grid::dense(kInner, kOuter));
  EXPECT_EQ(bursts, kOuter); // the rows of one column each
  ASSERT_EQ(all.size(), kOuter * kInner);
  for (unsigned row = 0; row < kOuter * kInner; ++row) {
    const unsigned column = row / kInner + row % kInner * kOuter;
    EXPECT_EQ(all.at(row), std::pair(column % width, 100 + column / width));
  }
}

TEST_F(Bursts, NeighbouringColumnsTakeABurstForEachSlice) {
  const auto all = writes({0, kInner, 0}, grid::dense(kOuter, 1));
  EXPECT_EQ(bursts, width);
  ASSERT_EQ(all.size(), kOuter);
  for (unsigned column = 0; column < kOuter; ++column)
    EXPECT_EQ(all.at(column), std::pair(column % width, 100 + column / width));
}

TEST_F(Bursts, TwoRowsThatAreNoNeighboursAreABurstEach) {
  const auto all = writes({0, 1, kInner}, grid::dense(2, kOuter)); // two rows of each column
  EXPECT_EQ(bursts, 2 * kOuter);
  ASSERT_EQ(all.size(), 2 * kOuter);
  for (unsigned n = 0; n < 2 * kOuter; ++n) {
    const unsigned column = n / 2 + n % 2 * kOuter;
    EXPECT_EQ(all.at(n), std::pair(column % width, 100 + column / width));
  }
}

/// Rows 10 to 19 and 40 to 49 in slice 3, from addresses 7 and 200 on.
grid::Copy partOf(schedule::Program &program) {
  grid::Copy part;
  part.isPart = true;
  part.tiles = {{{10, 10, {3}, {7}, {program.addRegion({})}},
                 {40, 10, {3}, {200}, {program.addRegion({})}}}};
  return part;
}

TEST_F(Bursts, RowsThatAPartDoesNotHoldAreNotWrittenToIt) {
  copy = partOf(program);
  // Rows 0, 2, 4 ... 62, of which 10 to 18 and 40 to 48 are held.
  const grid::RowPattern rows{0, 2, 16};
  const grid::Flow flow = grid::dense(8, 4);
  EXPECT_EQ(grid::elementsHeld(copy, 0, rows, flow), 10u);
  const auto all = writes(rows, flow);
  ASSERT_EQ(all.size(), 10u);
  for (const unsigned row : {10, 12, 14, 16, 18, 40, 42, 44, 46, 48})
    EXPECT_EQ(all.at(row / 2), std::pair(3u, row < 20 ? row - 10 + 7 : row - 40 + 200));
  EXPECT_FALSE(piece.conflict());
}

TEST_F(Bursts, NothingIsWrittenToAPartThatHoldsNoRowOfAFlow) {
  copy = partOf(program);
  EXPECT_EQ(grid::elementsHeld(copy, 0, {20, 1, 0}, grid::dense(20, 1)), 0u);
  EXPECT_TRUE(writes({20, 1, 0}, grid::dense(20, 1)).empty());
}

} // namespace
