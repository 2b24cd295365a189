// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Are sums that all lanes share made once, where that is worth a step, with the same values?
#include "compiler/Forms/Rewritings/ShareSums.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"

#include "arch/spec/MachineFile.h"

#include "tests/compiler/Forms/Rewritings/MeanAndVariance.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace millrace;
using namespace millrace::forms;

namespace {

Machine machineOf(const std::string &name) {
  Expected<Machine> machine = loadMachine(name);
  EXPECT_TRUE(machine);
  return *machine;
}

void expectSameValues(const KernelGraph &before, const KernelGraph &after) {
  ASSERT_EQ(after.verify(), "");
  const auto inputs = randomInputs(before);
  const auto x = evaluate(before, inputs), y = evaluate(after, inputs);
  ASSERT_TRUE(x && y);
  for (unsigned t = 0; t < before.tensors.size(); ++t)
    for (unsigned u = 0; u < after.tensors.size(); ++u)
      if (before.tensors[t].role == TensorRole::Output &&
          after.tensors[u].name == before.tensors[t].name) {
        EXPECT_EQ(x->at(t), y->at(u)) << before.tensors[t].name;
      }
}

TEST(ShareSums, OfALongNormalisationAreMadeOnceAndReadByEachLaneTile) {
  const KernelGraph before = buildLayerNorm(128, 768);
  KernelGraph after = before;
  EXPECT_EQ(shareSums(after, machineOf("tsp-v1")), 2u); // the mean and the variance
  EXPECT_EQ(after.kernels.size(), before.kernels.size() + 2 * 3);
  const auto sums = [](const KernelGraph &graph) {
    return std::count_if(graph.kernels.begin(), graph.kernels.end(),
                         [](const Kernel &k) { return !k.terms.empty(); });
  };
  EXPECT_EQ(sums(after), sums(before));
  for (const Kernel &kernel : after.kernels)
    if (!kernel.terms.empty()) {
      EXPECT_EQ(kernel.loops[kernel.results.front().access.index.back().terms[0].first].extent,
                320);
    }
  expectSameValues(before, after);
}

TEST(ShareSums, ThatReadASharedSumTakeItFromWhereItIsMade) {
  const KernelGraph before = test::buildMeanAndVariance(128, 768);
  KernelGraph after = before;
  EXPECT_EQ(shareSums(after, machineOf("tsp-v1")), 2u);
  EXPECT_EQ(after.kernels.size(), 2u + 3u) << "the maps that only spread the mean are gone";
  for (const Tensor &tensor : after.tensors)
    EXPECT_NE(tensor.name, "mean");
  expectSameValues(before, after);
}

TEST(ShareSums, StayWhereAResultIsNoLongerThanAVectorOrRowsAreFew) {
  for (const auto &[rows, width] : {std::pair{128, 320}, {1, 330}}) {
    KernelGraph graph = buildLayerNorm(rows, width);
    const KernelGraph before = graph;
    EXPECT_EQ(shareSums(graph, machineOf("tsp-v1")), 0u) << rows << " x " << width;
    EXPECT_EQ(graph, before);
  }
}

/// Scores of windows, made a run of lanes at a time, and each divided by the sum of its row.
KernelGraph sumsOfRuns(int64_t rows, int64_t runs, int64_t lanes) {
  KernelGraph graph;
  const int64_t all = runs * lanes;
  const unsigned x = addTensor(graph, "x", {rows, runs, lanes}, ElementType::Fp16, 2,
                               TensorRole::Input),
                 scores = addTensor(graph, "scores", {rows, all}, ElementType::Fp16, 1),
                 y = addTensor(graph, "y", {rows, all}, ElementType::Fp16, 1, TensorRole::Output),
                 ones = addSplat(graph, "ones", {all, all}, ElementType::Fp16, 1, 1);
  KernelBuilder write(graph);
  {
    const unsigned m = write.loop(rows), run = write.loop(runs), lane = write.loop(lanes);
    const unsigned value = write.load({x, {at(m), at(run), at(lane)}, 0});
    write.store(write.op(AluOp::AbsF32, {value}),
                {scores, {at(m), {0, {{run, lanes}, {lane, 1}}}}, 0});
    write.finish("scores");
  }
  KernelBuilder divide(graph);
  const unsigned m = divide.loop(rows), n = divide.loop(all),
                 k = divide.loop(all, LoopKind::Contracted);
  divide.term({scores, {at(m), at(k)}, 0}, {ones, {at(n), at(k)}, 0}, 0);
  divide.store(
      divide.op(AluOp::DivF32, {divide.load({scores, {at(m), at(n)}, 0}), divide.accumulator()}),
      {y, {at(m), at(n)}, 0});
  divide.finish("y");
  return graph;
}

/// Each of a row's vectors would sum all of them.
TEST(ShareSums, OfARowThatLiesInShortVectorsAreMadeOnceForAllOfThem) {
  for (const auto &[runs, lanes] : {std::pair<int64_t, int64_t>{16, 16}, {4, 24}, {5, 100}}) {
    SCOPED_TRACE(std::to_string(runs) + " x " + std::to_string(lanes));
    const KernelGraph before = sumsOfRuns(256, runs, lanes);
    KernelGraph after = before;
    EXPECT_EQ(shareSums(after, machineOf("tsp-v1")), 1u);
    ASSERT_EQ(after.kernels.size(), 3u);
    const Kernel &sum = after.kernels[1], &map = after.kernels[2];
    ASSERT_EQ(sum.results.size(), 1u);
    const Tensor &made = after.tensors[sum.results.front().access.tensor];
    EXPECT_EQ(made.shape, (std::vector<int64_t>{256, lanes}));
    EXPECT_TRUE(map.terms.empty());
    expectSameValues(before, after);
  }
}

TEST(ShareSums, OfRowsThatLieInWholeVectorsStay) {
  const KernelGraph before = sumsOfRuns(64, 1, 256);
  KernelGraph after = before;
  EXPECT_EQ(shareSums(after, machineOf("tsp-v1")), 0u);
  EXPECT_EQ(after, before);
}

TEST(ShareSums, OfEveryLengthKeepTheirValues) {
  for (const int64_t width : {33, 64, 65, 90, 128, 161})
    for (const int64_t rows : {17, 60}) {
      const KernelGraph before = buildLayerNorm(rows, width);
      KernelGraph after = before;
      shareSums(after, machineOf("tsp-small"));
      expectSameValues(before, after);
    }
}

} // namespace
