// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Do tiles break where lanes of different tensors meet, and do column copies have neighbours where the lane loop runs?
#include "compiler/Codegen/Memory/Layout.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/KernelBuilder.h"

#include <gmock/gmock.h>

using namespace millrace;
using namespace millrace::forms;
using testing::ElementsAre;
using testing::Pair;

namespace {

std::vector<std::pair<int64_t, int64_t>> tilesOf(const grid::TensorLayout &layout) {
  std::vector<std::pair<int64_t, int64_t>> tiles;
  for (const grid::LaneTile &tile : layout.tiles)
    tiles.push_back({tile.start, tile.count});
  return tiles;
}

std::vector<grid::TensorLayout> layoutsOf(const KernelGraph &graph) {
  return grid::inferLayouts(graph, *loadMachine("tsp-small"));
}

/// `to`, lanes [first, first + count), from the same rows of `from` and its lanes 0 .. count - 1.
void addCopy(KernelGraph &graph, unsigned from, unsigned to, int64_t rows, int64_t first, int64_t count) {
  KernelBuilder build(graph);
  const unsigned row = build.loop(rows), lane = build.loop(count);
  build.store(build.load({from, {at(row), at(lane)}, 0}), {to, {at(row), at(lane, 1, first)}, 0});
  build.finish("copy");
}

} // namespace

TEST(Layout, ABreakWhereAWriterEndsIsCarriedToAllThatMeetsTheTensor) {
  KernelGraph graph;
  const unsigned a = addTensor(graph, "a", {4, 20}, ElementType::Fp16, 1, TensorRole::Input),
                 b = addTensor(graph, "b", {4, 10}, ElementType::Fp16, 1, TensorRole::Input),
                 x = addTensor(graph, "x", {4, 30}, ElementType::Fp16, 1, TensorRole::Input),
                 y = addTensor(graph, "y", {4, 30}, ElementType::Fp16, 1),
                 z = addTensor(graph, "z", {4, 30}, ElementType::Fp16, 1, TensorRole::Output);
  addCopy(graph, a, y, 4, 0, 20);
  addCopy(graph, b, y, 4, 20, 10);
  KernelBuilder build(graph);
  const unsigned row = build.loop(4), lane = build.loop(30);
  const unsigned sum = build.op(AluOp::AddF32, {build.load({x, {at(row), at(lane)}, 0}),
                                                build.load({y, {at(row), at(lane)}, 0})});
  build.store(sum, {z, {at(row), at(lane)}, 0});
  build.finish("sum");
  ASSERT_EQ(graph.verify(), "");
  const auto layouts = layoutsOf(graph);
  for (unsigned t : {x, y, z})
    EXPECT_THAT(tilesOf(layouts[t]), ElementsAre(Pair(0, 20), Pair(20, 10))) << graph.tensors[t].name;
  EXPECT_THAT(tilesOf(layouts[a]), ElementsAre(Pair(0, 20)));
}

/// A plane takes 32 lanes: in 40 there are two vectors, wherever the 80 that two of them make would break by themselves.
TEST(Layout, PartsOfALongRowBreakAllAlike) {
  KernelGraph graph;
  const unsigned a = addTensor(graph, "a", {4, 40}, ElementType::Fp16, 1, TensorRole::Input),
                 b = addTensor(graph, "b", {4, 40}, ElementType::Fp16, 1, TensorRole::Input),
                 y = addTensor(graph, "y", {4, 80}, ElementType::Fp16, 1),
                 z = addTensor(graph, "z", {4, 80}, ElementType::Fp16, 1, TensorRole::Output);
  addCopy(graph, a, y, 4, 0, 40);
  addCopy(graph, b, y, 4, 40, 40);
  addCopy(graph, y, z, 4, 0, 80);
  ASSERT_EQ(graph.verify(), "");
  const auto layouts = layoutsOf(graph);
  for (unsigned t : {a, b})
    EXPECT_THAT(tilesOf(layouts[t]), ElementsAre(Pair(0, 32), Pair(32, 8))) << graph.tensors[t].name;
  for (unsigned t : {y, z})
    EXPECT_THAT(tilesOf(layouts[t]), ElementsAre(Pair(0, 32), Pair(32, 8), Pair(40, 32), Pair(72, 8))) << graph.tensors[t].name;
}

/// y[h, m, n] = x[h, m, k + first] w[h, n, k]: weights made at run time.
static KernelGraph productOfTwo(int64_t first) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {3, 6, 24}, ElementType::Fp16, 2, TensorRole::Input),
                 w = addTensor(graph, "w", {3, 5, 16}, ElementType::Fp16, 2, TensorRole::Input),
                 y = addTensor(graph, "y", {3, 6, 5}, ElementType::Fp16, 2, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned h = build.loop(3), m = build.loop(6), n = build.loop(5),
                 k = build.loop(16, LoopKind::Contracted);
  build.term({x, {at(h), at(m), at(k, 1, first)}, 0}, {w, {at(h), at(n), at(k)}, 0}, 3 * 6 * 5 * 16);
  build.store(build.accumulator(), {y, {at(h), at(m), at(n)}, 0});
  build.finish("product");
  return graph;
}

TEST(Layout, OfTwoOperandsWhoseContractedLanesBeginElsewhereTilesBreakThere) {
  EXPECT_THAT(tilesOf(layoutsOf(productOfTwo(0))[0]), ElementsAre(Pair(0, 24)));
  const auto layouts = layoutsOf(productOfTwo(8));
  EXPECT_THAT(tilesOf(layouts[0]), ElementsAre(Pair(0, 8), Pair(8, 16)));
  EXPECT_THAT(tilesOf(layouts[1]), ElementsAre(Pair(0, 16)));
}

TEST(Layout, LanesThatMeetLieAtOnePlaceInTheirTiles) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {6, 24}, ElementType::Fp16, 1, TensorRole::Input),
                 w = addTensor(graph, "w", {5, 24}, ElementType::Fp16, 1, TensorRole::Intermediate),
                 y = addTensor(graph, "y", {6, 5}, ElementType::Fp16, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned m = build.loop(6), n = build.loop(5), k = build.loop(8, LoopKind::Contracted);
  build.term({x, {at(m), at(k, 1, 16)}, 0}, {w, {at(n), at(k, 1, 16)}, 0}, 6 * 5 * 8);
  build.store(build.accumulator(), {y, {at(m), at(n)}, 0});
  build.finish("product");
  KernelBuilder slice(graph); // its tile begins before what the product reads
  const unsigned row = slice.loop(5), lane = slice.loop(8);
  const unsigned z = addTensor(graph, "z", {5, 8}, ElementType::Fp16, 1, TensorRole::Output);
  slice.store(slice.load({w, {at(row), at(lane, 1, 8)}, 0}), {z, {at(row), at(lane)}, 0});
  slice.finish("slice");
  const auto layouts = layoutsOf(graph);
  EXPECT_THAT(tilesOf(layouts[w]), ElementsAre(Pair(0, 8), Pair(8, 16)));
  EXPECT_THAT(tilesOf(layouts[x]), ElementsAre(Pair(0, 8), Pair(8, 16)));
}

TEST(Layout, NeighbouringColumnsAreStepsOfTheLaneLoopAndTheOutermostDimensionIsSteppedToo) {
  const grid::TensorLayout w = layoutsOf(productOfTwo(0))[1];
  EXPECT_THAT(w.pitch, ElementsAre(5, 1, 0));
  EXPECT_THAT(w.columnPitch, ElementsAre(5, 1, 0));
  EXPECT_EQ(w.columnOf(7), 7);
}

/// y[m, h * perHead + n] = x[h, m + row, k] w[h, n, k].
static bool areHeads(int64_t row, int64_t perHead = 16) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {3, 6, 24}, ElementType::Fp16, 2, TensorRole::Input),
                 w = addTensor(graph, "w", {3, perHead, 24}, ElementType::Fp16, 2, TensorRole::Input),
                 y = addTensor(graph, "y", {6, 3 * perHead}, ElementType::Fp16, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned h = build.loop(3), m = build.loop(6), n = build.loop(perHead),
                 k = build.loop(24, LoopKind::Contracted);
  build.term({x, {at(h), at(m, 1, row), at(k)}, 0}, {w, {at(h), at(n), at(k)}, 0}, 3 * 6 * perHead * 24);
  build.store(build.accumulator(), {y, {at(m), {0, {{h, perHead}, {n, 1}}}}, 0});
  build.finish("heads");
  return grid::rolesOf(graph, graph.kernels[0], *loadMachine("tsp-small")).heads;
}

TEST(Roles, HeadsHaveWholeGroupsOfColumnsAndRowsThatAllExist) {
  EXPECT_TRUE(areHeads(0));
  EXPECT_FALSE(areHeads(0, 24)) << "a group and a half";
  EXPECT_FALSE(areHeads(-1)) << "a row before the first";
  EXPECT_FALSE(areHeads(1)) << "a row behind the last";
}

/// `y[2 i + t] = x[i] + t` for both t, each by a kernel, read by `z[i, t] = y[2 i + t + shift]` (the pad outside).
static KernelGraph everySecondRow(int64_t rows, int64_t shift = 0, int64_t readStep = 2) {
  KernelGraph graph;
  const int64_t steps = (rows + 1) / 2;
  const unsigned x = addTensor(graph, "x", {steps, 8}, ElementType::Fp16, 1, TensorRole::Input),
                 y = addTensor(graph, "y", {rows, 8}, ElementType::Fp16, 1),
                 z = addTensor(graph, "z", {steps, 2, 8}, ElementType::Fp16, 2, TensorRole::Output);
  for (int64_t t : {0, 1}) {
    KernelBuilder build(graph);
    const unsigned i = build.loop((rows + 1 - t) / 2), lane = build.loop(8);
    build.store(build.op(AluOp::AddF32, {build.load({x, {at(i), at(lane)}, 0}), build.constant(float(t))}),
                {y, {at(i, 2, t), at(lane)}, 0});
    build.finish("write");
  }
  KernelBuilder build(graph);
  const unsigned i = build.loop(steps), t = build.loop(2), lane = build.loop(8);
  build.store(build.load({y, {window(i, readStep, t, 1, shift), at(lane)}, 0}), {z, {at(i), at(t), at(lane)}, 0});
  build.finish("read");
  EXPECT_EQ(graph.verify(), "");
  return graph;
}

TEST(Layout, RowsThatAllStepOverLieByPhase) {
  const KernelGraph graph = everySecondRow(6);
  const grid::TensorLayout y = layoutsOf(graph)[1];
  EXPECT_THAT(y.phases, ElementsAre(2, 1));
  EXPECT_EQ(y.rows, 6);
  const Access &write = graph.kernels[1].results[0].access, &read = graph.kernels[2].operands[0];
  EXPECT_EQ(grid::rowOf(y, write, {1, 0}), 4) << "index 3 is the second of the odd ones";
  EXPECT_EQ(grid::rowCoefficient(y, write, 0), 1);
  EXPECT_EQ(grid::rowOf(y, read, {2, 1, 0}), 5);
  EXPECT_EQ(grid::rowCoefficient(y, read, 0), 1);
  EXPECT_EQ(grid::rowCoefficient(y, read, 1), 3);
}

TEST(Layout, AnOddNumberOfRowsLeavesOneOfTheLastPhaseEmpty) {
  const grid::TensorLayout y = layoutsOf(everySecondRow(7))[1];
  EXPECT_THAT(y.phases, ElementsAre(2, 1));
  EXPECT_EQ(y.rows, 8);
}

TEST(Layout, IndicesBelowZeroAreOfThePhaseThatTheyWouldHave) {
  const KernelGraph graph = everySecondRow(6, -2);
  const grid::TensorLayout y = layoutsOf(graph)[1];
  EXPECT_THAT(y.phases, ElementsAre(2, 1));
  EXPECT_EQ(grid::rowOf(y, graph.kernels[2].operands[0], {0, 1, 0}), -1 + 3) << "index -1";
}

TEST(Layout, WhereAReaderCrossesAStepRowsLieInTheirOrder) {
  EXPECT_THAT(layoutsOf(everySecondRow(6, 1))[1].phases, ElementsAre(1, 1)) << "2 i + t + 1 is 1, 2, 3, 4 ...";
  EXPECT_THAT(layoutsOf(everySecondRow(6, 0, 1))[1].phases, ElementsAre(1, 1)) << "i + t";
}

TEST(Layout, WhatAReductionRunsThroughLiesInItsOrder) {
  KernelGraph graph = everySecondRow(6);
  const unsigned sums = addTensor(graph, "sums", {8}, ElementType::Fp32, 0, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned lane = build.loop(8), i = build.loop(3, LoopKind::Running);
  build.store(build.reduce(AluOp::AddF32, build.load({1, {at(i, 2), at(lane)}, 0})), {sums, {at(lane)}, 0});
  build.finish("sum");
  ASSERT_EQ(graph.verify(), "");
  EXPECT_THAT(layoutsOf(graph)[1].phases, ElementsAre(1, 1));
}

TEST(Layout, WhatTheHostTouchesOrAProductInstallsLiesInItsOrder) {
  KernelGraph graph = everySecondRow(6);
  graph.tensors[1].role = TensorRole::Output;
  EXPECT_THAT(layoutsOf(graph)[1].phases, ElementsAre(1, 1));
  graph = everySecondRow(6);
  const unsigned a = addTensor(graph, "a", {4, 8}, ElementType::Fp16, 1, TensorRole::Input),
                 product = addTensor(graph, "product", {4, 3}, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned m = build.loop(4), n = build.loop(3), k = build.loop(8, LoopKind::Contracted);
  build.term({a, {at(m), at(k)}, 0}, {1, {at(n, 2), at(k)}, 0}, 4 * 3 * 8);
  build.store(build.accumulator(), {product, {at(m), at(n)}, 0});
  build.finish("product");
  ASSERT_EQ(graph.verify(), "");
  EXPECT_THAT(layoutsOf(graph)[1].phases, ElementsAre(1, 1));
}

TEST(Layout, ABreakIsCarriedFromEachRangeToTheOneThatItMeets) {
  // Lanes of blocks of 16 times an identity of 32 lanes: range p1 * 32 + p4 * 16 of y meets range p4 * 16 of the identity.
  KernelGraph graph;
  const unsigned eye = addTensor(graph, "eye", {32, 32}, ElementType::Fp16, 1, TensorRole::Constant),
                 y = addTensor(graph, "y", {4, 64}, ElementType::Fp16, 1, TensorRole::Input),
                 turned = addTensor(graph, "turned", {64, 4}, ElementType::Fp16, 1, TensorRole::Output),
                 end = addTensor(graph, "end", {4, 12}, ElementType::Fp16, 1, TensorRole::Output);
  graph.tensors[eye].data.resize(size_t(32) * 32 * 2);
  KernelBuilder turn(graph);
  const unsigned row = turn.loop(4), p1 = turn.loop(2), p4 = turn.loop(2), m = turn.loop(16),
                 k = turn.loop(16, LoopKind::Contracted);
  const auto lanesOf = [&](unsigned inner) { return AffineIndex{0, {{p1, 32}, {p4, 16}, {inner, 1}}}; };
  turn.term({eye, {{0, {{p4, 16}, {m, 1}}}, {0, {{p4, 16}, {k, 1}}}}, 0}, {y, {at(row), lanesOf(k)}, 0}, 0);
  turn.store(turn.op(AluOp::CvtF32F16Fin, {turn.accumulator()}), {turned, {lanesOf(m), at(row)}, 0});
  turn.finish("turn");
  KernelBuilder cut(graph); // lanes 52 to 63 alone, which begin a vector
  const unsigned its = cut.loop(4), lane = cut.loop(12);
  cut.store(cut.load({y, {at(its), at(lane, 1, 52)}, 0}), {end, {at(its), at(lane)}, 0});
  cut.finish("cut");
  ASSERT_EQ(graph.verify(), "");
  const auto layouts = layoutsOf(graph);
  EXPECT_THAT(tilesOf(layouts[y]), ElementsAre(Pair(0, 20), Pair(20, 12), Pair(32, 20), Pair(52, 12)));
  EXPECT_THAT(tilesOf(layouts[eye]), ElementsAre(Pair(0, 20), Pair(20, 12)));
}

TEST(Layout, ARowOfOneValueIsCutNowhereAndCutsNothing) {
  for (const bool uniform : {false, true}) {
    KernelGraph graph;
    const unsigned mean = addTensor(graph, "mean", {4, 32}, ElementType::Fp32, 1, TensorRole::Input),
                   x = addTensor(graph, "x", {4, 42}, ElementType::Fp32, 1),
                   y = addTensor(graph, "y", {4, 42}, ElementType::Fp32, 1, TensorRole::Output);
    graph.tensors[mean].uniform = uniform;
    addCopy(graph, mean, x, 4, 0, 10); // of three lengths
    addCopy(graph, mean, x, 4, 10, 20);
    addCopy(graph, mean, x, 4, 30, 12);
    addCopy(graph, x, y, 4, 0, 42);
    ASSERT_EQ(graph.verify(), "");
    const auto layouts = layoutsOf(graph);
    if (uniform) {
      EXPECT_THAT(tilesOf(layouts[mean]), ElementsAre(Pair(0, 32)));
      EXPECT_THAT(tilesOf(layouts[y]), ElementsAre(Pair(0, 10), Pair(10, 20), Pair(30, 12)));
    } else {
      EXPECT_GT(layouts[mean].tiles.size(), 1u);
      EXPECT_GT(layouts[y].tiles.size(), 3u);
    }
  }
}

/// Rows of `x`, 32 lanes written in parts of `part`, times a constant of as many rows.
void addScaled(KernelGraph &graph, unsigned factors, int64_t part) {
  const std::string name = "by" + std::to_string(part);
  const unsigned a = addTensor(graph, name + ".a", {4, part}, ElementType::Fp32, 1, TensorRole::Input),
                 x = addTensor(graph, name + ".x", {4, 32}, ElementType::Fp32, 1),
                 y = addTensor(graph, name + ".y", {4, 32}, ElementType::Fp32, 1, TensorRole::Output);
  for (int64_t first = 0; first < 32; first += part)
    addCopy(graph, a, x, 4, first, part);
  KernelBuilder build(graph);
  const unsigned row = build.loop(4), lane = build.loop(32);
  const Access at0{x, {at(row), at(lane)}, 0};
  build.store(build.op(AluOp::MulF32, {build.load(at0), build.load({factors, {at(row), at(lane)}, 0})}),
              {y, {at(row), at(lane)}, 0});
  build.finish(name);
}

TEST(Layout, ReadersOfAConstantInOtherTilesHaveCopiesOfTheirOwn) {
  KernelGraph graph;
  const unsigned factors = addConstant(graph, "factors", {4, 32}, ElementType::Fp32, 1, std::vector<float>(4 * 32, 2));
  for (const int64_t part : {16, 32, 16}) // the second is as wide as the constant
    addScaled(graph, factors, part);
  ASSERT_EQ(graph.verify(), "");
  const auto together = layoutsOf(graph); // the tiles of all are those of the parts
  for (size_t t = 0; t < graph.tensors.size(); ++t)
    EXPECT_EQ(together[t].tiles.size(), size_t(graph.tensors[t].shape[1] / 16)) << graph.tensors[t].name;
  const auto apart = grid::withOwnConstants(graph, *loadMachine("tsp-small"));
  ASSERT_TRUE(apart);
  EXPECT_EQ(apart->verify(), "");
  EXPECT_EQ(apart->tensors.size(), graph.tensors.size() + 1);
  std::vector<unsigned> read;
  for (const Kernel &kernel : apart->kernels)
    if (kernel.operands.size() == 2)
      read.push_back(kernel.operands[1].tensor);
  EXPECT_THAT(read, ElementsAre(factors, graph.tensors.size(), factors));
  const auto layouts = layoutsOf(*apart);
  EXPECT_THAT(tilesOf(layouts[factors]), ElementsAre(Pair(0, 16), Pair(16, 16)));
  EXPECT_THAT(tilesOf(layouts.back()), ElementsAre(Pair(0, 32)));
  EXPECT_EQ(apart->tensors.back().data, graph.tensors[factors].data);
  EXPECT_FALSE(grid::withOwnConstants(*apart, *loadMachine("tsp-small"))); // which agree with all their readers
}
