// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Are sums of long rows, and reductions that run over many rows, shortened where that is worth a
// step, with values that differ by no more than the order of addition?
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/Rewritings/FoldTiles.h"
#include "compiler/Forms/Rewritings/PairRunning.h"
#include "compiler/Forms/ShareSums.h"

#include "tests/compiler/Forms/Rewritings/MeanAndVariance.h"
#include "tests/compiler/Forms/Rewritings/Tsp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

using namespace millrace;
using namespace millrace::forms;

namespace {

/// Relative L2 distance of all results.
double distance(const KernelGraph &before, const KernelGraph &after) {
  EXPECT_EQ(after.verify(), "");
  const auto inputs = randomInputs(before);
  const auto x = evaluate(before, inputs), y = evaluate(after, inputs);
  if (!x || !y)
    return INFINITY;
  double error = 0, norm = 0;
  for (unsigned t = 0; t < before.tensors.size(); ++t) {
    const Tensor &tensor = before.tensors[t];
    const unsigned width = byteWidth(tensor.type);
    for (size_t i = 0; tensor.role == TensorRole::Output && i < x->at(t).size(); i += width) {
      uint32_t bits[2] = {0, 0};
      std::memcpy(&bits[0], &x->at(t)[i], width);
      std::memcpy(&bits[1], &y->at(t)[i], width);
      const double a = decode(tensor.type, bits[0]), b = decode(tensor.type, bits[1]);
      error += (a - b) * (a - b);
      norm += a * a;
    }
  }
  return std::sqrt(error / norm);
}

/// Vectors that sums over lanes sweep: a row for each 160 lanes of each term.
int64_t sweepsOf(const KernelGraph &graph) {
  int64_t sweeps = 0;
  for (const Kernel &kernel : graph.kernels)
    for (const Term &term : kernel.terms) {
      const Tensor &a = graph.tensors[term.a.tensor];
      const auto loop = onlyLoop(kernel, term.a.index[a.laneDim]);
      int64_t rows = 1;
      for (unsigned d = 0; d < a.shape.size(); ++d)
        rows *= d == a.laneDim ? 1 : a.shape[d];
      sweeps += rows * ((kernel.loops[*loop].extent + 159) / 160);
    }
  return sweeps;
}

TEST(FoldTiles, AddsVectorsOfALongRowBeforeItsLanesAreSummed) {
  const KernelGraph before = buildLayerNorm(128, 768);
  KernelGraph after = before;
  EXPECT_EQ(sweepsOf(before), 128 * 3 * 5); // the mean, and two terms of the squares
  EXPECT_EQ(foldTiles(after, tsp()), 2u);
  EXPECT_EQ(sweepsOf(after), 128 * 3 * (2 + 1)); // two vectors as one, and 128 lanes beside them
  EXPECT_LT(distance(before, after), 1e-4);
}

TEST(FoldTiles, AddsAsManyVectorsAsTheVxmTakesAtOnce) {
  const KernelGraph before = buildLayerNorm(64, 2048);
  KernelGraph after = before;
  EXPECT_EQ(foldTiles(after, tsp()), 2u);
  EXPECT_EQ(sweepsOf(before), 64 * 3 * 13);
  EXPECT_LT(sweepsOf(after), sweepsOf(before) / 2);
  EXPECT_LT(distance(before, after), 1e-4);
}

TEST(FoldTiles, KeepsTheLowBitsOfASumThatIsSquared) {
  for (const ElementType type : {ElementType::Fp16, ElementType::Bf16})
    for (const auto &[width, folds] : {std::pair{768, 1u}, {2048, 2u}}) {
      const KernelGraph before = test::buildMeanAndVariance(128, width, type);
      KernelGraph after = before;
      EXPECT_EQ(foldTiles(after, tsp()), folds) << "of 768 lanes two parts save nothing";
      for (const Kernel &kernel : after.kernels)
        if (kernel.name == "mean" && !kernel.terms.empty() && folds == 2) {
          EXPECT_GT(kernel.terms.size(), 2u);
        }
      EXPECT_LT(distance(before, after), type == ElementType::Fp16 ? 1e-3 : 1e-2);
    }
}

TEST(FoldTiles, StaysWhereRowsAreShortOrFew) {
  for (const auto &[rows, width] : {std::pair{128, 320}, {128, 639}, {1, 2048}, {8, 768}}) {
    KernelGraph graph = buildLayerNorm(rows, width);
    const KernelGraph before = graph;
    EXPECT_EQ(foldTiles(graph, tsp()), 0u) << rows << " x " << width;
    EXPECT_EQ(graph, before);
  }
}

/// The same of rows that two kernels write side by side, the second one from lane `cut` on.
KernelGraph buildJoinedLayerNorm(int64_t rows, int64_t width, int64_t cut) {
  KernelGraph graph = buildLayerNorm(rows, width);
  const auto input =
      std::find_if(graph.tensors.begin(), graph.tensors.end(),
                   [](const Tensor &tensor) { return tensor.role == TensorRole::Input; });
  const auto joined = unsigned(input - graph.tensors.begin());
  const ElementType type = input->type;
  graph.tensors[joined] = {};
  const unsigned scratch =
      addTensor(graph, "joined", {rows, width}, type, 1, TensorRole::Intermediate);
  graph.tensors[joined] = graph.tensors[scratch];
  graph.tensors.pop_back();
  const std::vector<std::pair<bool, unsigned>> order = std::move(graph.order);
  graph.order.clear();
  for (auto [from, lanes] : {std::pair{int64_t(0), cut}, {cut, width - cut}}) {
    const unsigned part = addTensor(graph, "part", {rows, lanes}, type, 1, TensorRole::Input);
    KernelBuilder build(graph);
    const unsigned r = build.loop(rows), l = build.loop(lanes);
    build.store(build.load({part, {at(r), at(l)}, 0}), {joined, {at(r), {from, {{l, 1}}}}, 0});
    build.finish("join");
  }
  graph.order.insert(graph.order.end(), order.begin(), order.end());
  return graph;
}

/// Vectors added to each other would be cut where parts meet, and so would all that meet them.
TEST(FoldTiles, LeavesRowsWhosePartsEndWithinAVector) {
  for (const auto &[cut, folds] : {std::pair{320, 2u}, {640, 2u}, {384, 0u}, {100, 0u}}) {
    KernelGraph graph = buildJoinedLayerNorm(128, 768, cut);
    ASSERT_EQ(graph.verify(), "");
    EXPECT_EQ(foldTiles(graph, tsp()), folds) << "cut at " << cut;
  }
}

/// One sum of each row, wherever its parts meet: the tensor that holds it meets lanes that begin
/// anywhere in theirs.
TEST(ShareSums, MeetsRowsWhosePartsEndWithinAVector) {
  for (const int64_t cut : {320, 384, 100}) {
    const KernelGraph before = buildJoinedLayerNorm(128, 768, cut);
    KernelGraph after = before;
    EXPECT_EQ(shareSums(after, tsp()), 2u) << "cut at " << cut;
    EXPECT_EQ(sweepsOf(after), sweepsOf(before));
    EXPECT_EQ(distance(before, after), 0);
    for (const Kernel &kernel : after.kernels)
      for (const Result &result : kernel.results) {
        const Tensor &made = after.tensors[result.access.tensor];
        EXPECT_EQ(made.uniform, made.name.ends_with(".sum")) << made.name;
      }
  }
}

/// y[h, l] = the greatest, or the sum, of x[h, r, l] over r.
KernelGraph reduceRows(AluOp op, ElementType type, int64_t heads, int64_t rows, int64_t lanes) {
  KernelGraph graph;
  graph.name = "reduce";
  const unsigned x = addTensor(graph, "x", {heads, rows, lanes}, type, 2, TensorRole::Input);
  const unsigned z = addTensor(graph, "z", {heads, rows, lanes}, type, 2);
  const unsigned y =
      addTensor(graph, "y", {heads, lanes}, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder twice(graph);
  const std::vector<AffineIndex> all{at(twice.loop(heads)), at(twice.loop(rows)),
                                     at(twice.loop(lanes))};
  const unsigned value = twice.load({x, all, 0});
  twice.store(twice.op(AluOp::AddF32, {twice.op(AluOp::Pass, {value}), value}), {z, all, 0});
  twice.finish("twice");
  KernelBuilder build(graph);
  const unsigned h = build.loop(heads), l = build.loop(lanes),
                 r = build.loop(rows, LoopKind::Running);
  build.store(build.reduce(op, build.load({z, {at(h), at(r), at(l)}, 0})), {y, {at(h), at(l)}, 0});
  build.finish("reduce");
  return graph;
}

TEST(PairRunning, CombinesNeighboursWhereARunTakesLong) {
  for (const AluOp op : {AluOp::MaxF32, AluOp::AddF32})
    for (const ElementType type : {ElementType::Fp16, ElementType::Fp32}) {
      const KernelGraph before = reduceRows(op, type, 12, 128, 128);
      KernelGraph after = before;
      EXPECT_EQ(pairRunning(after, tsp()), 1u);
      ASSERT_EQ(after.kernels.size(), 3u);
      const Kernel &map = after.kernels[2];
      // 16 of 44 slices, or 20; not 32. The last sum of five adds zeros.
      const unsigned copies = type == ElementType::Fp16 ? 8 : op == AluOp::AddF32 ? 5 : 4;
      EXPECT_EQ(map.operands.size(), copies);
      EXPECT_EQ(after.kernels[1].loops[2].extent, (128 + copies - 1) / copies);
      EXPECT_LT(distance(before, after), op == AluOp::MaxF32 ? 1e-30 : 1e-6);
    }
}

TEST(PairRunning, LeavesShortRunsAndWhatHasNoRoomForCopies) {
  for (const auto &[heads, rows] : {std::pair{1, 64}, {4, 16}, {3, 127}, {4096, 128}}) {
    KernelGraph graph = reduceRows(AluOp::MaxF32, ElementType::Fp32, heads, rows, 64);
    const KernelGraph before = graph;
    EXPECT_EQ(pairRunning(graph, tsp()), 0u) << heads << " x " << rows;
    EXPECT_EQ(graph, before);
  }
}

/// Copies for speed have what constants and values leave of the memory. What was combined is
/// combined again.
TEST(PairRunning, TakesFewerCopiesWhereConstantsFillTheMemory) {
  for (const auto &[type, tables, operands] : {std::tuple{ElementType::Fp16, 1, 8},
                                               {ElementType::Fp32, 1, 4},
                                               {ElementType::Fp16, 2650, 4},
                                               {ElementType::Fp32, 2650, 2}}) {
    KernelGraph graph = reduceRows(AluOp::MaxF32, type, 12, 128, 128);
    const unsigned table =
        addTensor(graph, "table", {tables, 128, 128}, ElementType::Fp16, 2, TensorRole::Constant);
    graph.kernels[0].operands.push_back({table, {AffineIndex{}, at(1), at(2)}, 0});
    Machine machine = tsp();
    machine.vxm.runningAccumulators = 1; // a step every three cycles: the most to gain
    const unsigned maps = pairRunning(graph, machine);
    EXPECT_GE(maps, 2u) << tables << " tables";
    ASSERT_EQ(graph.kernels.size(), 2u + maps);
    EXPECT_EQ(graph.kernels[2].operands.size(), size_t(operands)) << tables << " tables";
  }
}

enum class Of { Elements, Squares, SquaresOfOneMore };

/// The sum over an image.
KernelGraph sumOfImage(int64_t side, Of what) {
  KernelGraph graph;
  graph.name = "mean";
  const std::vector<int64_t> image{side, side, 640};
  const unsigned x = addTensor(graph, "x", image, ElementType::Fp16, 2, TensorRole::Input);
  const unsigned z = addTensor(graph, "z", image, ElementType::Fp16, 2);
  const unsigned y = addTensor(graph, "y", {640}, ElementType::Fp32, 0, TensorRole::Output);
  KernelBuilder twice(graph);
  const std::vector<AffineIndex> all{at(twice.loop(side)), at(twice.loop(side)),
                                     at(twice.loop(640))};
  const unsigned once = twice.load({x, all, 0});
  twice.store(twice.op(AluOp::AddF32, {once, once}), {z, all, 0});
  twice.finish("twice");
  KernelBuilder build(graph);
  const unsigned lane = build.loop(640), r1 = build.loop(side, LoopKind::Running),
                 r2 = build.loop(side, LoopKind::Running);
  unsigned value = build.load({z, {at(r1), at(r2), at(lane)}, 0});
  if (what == Of::SquaresOfOneMore)
    value = build.op(AluOp::AddF32, {value, build.constant(1)});
  if (what != Of::Elements)
    value = build.op(AluOp::MulF32, {value, value});
  build.store(build.reduce(AluOp::AddF32, value), {y, {at(lane)}, 0});
  build.finish("reduce");
  return graph;
}

/// 14 neighbours have no power of two but 2, 17 have no divisor at all: the last step adds zeros
/// beyond the end. The outer loop of a global mean goes on after them.
TEST(PairRunning, CombinesAnyNumberOfNeighboursAlongOneLoopAndThenTheOther) {
  for (const auto &[side, operands] : {std::pair{14, 7u}, {17, 6u}}) {
    const KernelGraph before = sumOfImage(side, Of::Elements);
    KernelGraph graph = before;
    EXPECT_GE(pairRunning(graph, tsp()), 1u);
    EXPECT_EQ(graph.kernels[2].operands.size(), operands);
    EXPECT_LE(graph.kernels[1].loops[1].extent * graph.kernels[1].loops[2].extent, 3 * side);
    EXPECT_LT(distance(before, graph), 1e-6);
  }
}

/// What is made of each step, too; that of zeros beyond the end need not be zero.
TEST(PairRunning, MakesAndCombinesNeighboursAtOnce) {
  for (const auto &[side, what, operands] : {std::tuple{15, Of::Squares, 5u},
                                             {17, Of::Squares, 5u},
                                             {15, Of::SquaresOfOneMore, 3u},
                                             {17, Of::SquaresOfOneMore, 0u}}) {
    const KernelGraph before = sumOfImage(side, what);
    KernelGraph graph = before;
    ASSERT_EQ(pairRunning(graph, tsp()) > 0, operands > 0) << side;
    if (operands) {
      EXPECT_EQ(graph.kernels[2].operands.size(), operands) << side;
    }
    EXPECT_LT(distance(before, graph), 1e-6);
  }
}

} // namespace
