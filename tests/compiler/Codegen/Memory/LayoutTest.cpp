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
