// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small graphs on machines whose memory and accumulators are cut down until nothing fits: rows are used again and again.
#include "tests/contract/GridRun.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"

#include <gtest/gtest.h>

using namespace millrace;

namespace {

class ShortMemory : public testing::Test {
protected:
  unsigned fitted = 0;

  /// True if the graph fits; then it is legal, as long as predicted, and right.
  bool holds(const forms::KernelGraph &graph, const std::vector<std::string> &set) {
    const Expected<Machine> machine = loadMachine("tsp-small", set);
    EXPECT_TRUE(machine) << machine.error();
    const auto inputs = forms::randomInputs(graph);
    const test::GridRun run = test::runOnGrid(graph, *machine, inputs);
    if (!run.error.empty())
      return false;
    ++fitted;
    SCOPED_TRACE(graph.name + " with " + set[0]);
    EXPECT_FALSE(run.simulated.violation) << run.simulated.violation->describe();
    EXPECT_EQ(run.simulated.measuredCycles, run.report.predictedCycles);
    EXPECT_EQ(test::distanceFromReference(graph, run, inputs), 0);
    return true;
  }
  void shrink(const forms::KernelGraph &graph) {
    for (unsigned rows : {256u, 96u, 64u, 48u, 40u, 32u, 26u, 22u, 18u, 15u, 12u, 10u, 8u, 6u, 5u, 4u, 3u, 2u})
      if (!holds(graph, {"memory.rows_per_bank=" + std::to_string(rows)}))
        return;
    ADD_FAILURE() << graph.name << " fits everywhere: it is too small to reuse a row";
  }
};

TEST_F(ShortMemory, LayersUseTheRowsOfThoseBeforeThem) {
  shrink(forms::buildPerceptron(30, 64, 6, ElementType::Fp16));
  EXPECT_GE(fitted, 3u);
}
TEST_F(ShortMemory, SoDoLayersOfIntegers) {
  shrink(forms::buildPerceptron(30, 64, 6, ElementType::Int8));
  EXPECT_GE(fitted, 3u);
}
TEST_F(ShortMemory, WeightsMadeAtRunTimeEndInZeroColumns) {
  for (int64_t tokens : {16, 31, 32, 33, 47, 49}) {
    fitted = 0;
    shrink(forms::buildAttention(tokens, 24, 16, true));
    EXPECT_GE(fitted, 2u) << tokens;
  }
}
/// `count` products, one after the other, with weights that are made at run time: 33 columns, which zeros fill up.
forms::KernelGraph productsInTurn(unsigned count) {
  using namespace forms;
  const ElementType type = ElementType::Fp16;
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {9, 24}, type, 1, TensorRole::Input),
                 w = addTensor(graph, "w", {33, 24}, type, 1, TensorRole::Input);
  unsigned sum = addTensor(graph, "s", {9, 33}, type, 1, TensorRole::Input);
  for (unsigned i = 0; i < count; ++i) {
    const std::string number = std::to_string(i);
    const unsigned made = addTensor(graph, "made" + number, {33, 24}, type, 1);
    KernelBuilder map(graph);
    const unsigned row = map.loop(33), lane = map.loop(24);
    map.store(map.op(AluOp::MulF32, {map.load({w, {at(row), at(lane)}, 0}), map.constant(0.25f * float(i))}),
              {made, {at(row), at(lane)}, 0});
    map.finish("make" + number);
    const unsigned next = addTensor(graph, "y" + number, {9, 33}, type, 1,
                                    i + 1 == count ? TensorRole::Output : TensorRole::Intermediate);
    KernelBuilder build(graph);
    const unsigned m = build.loop(9), n = build.loop(33), k = build.loop(24, LoopKind::Contracted);
    build.term({x, {at(m), at(k)}, 0}, {made, {at(n), at(k)}, 0}, 9 * 33 * 24);
    build.store(build.op(AluOp::AddF32, {build.accumulator(), build.load({sum, {at(m), at(n)}, 0})}),
                {next, {at(m), at(n)}, 0});
    build.finish("product" + number);
    sum = next;
  }
  return graph;
}

TEST_F(ShortMemory, ZeroColumnsServeOneTensorAfterTheOther) {
  // 8 rows of 16 slices each: 40 at once would take 5,120 rows of the 2,816 of a hemisphere.
  EXPECT_TRUE(holds(productsInTurn(40), {"memory.rows_per_bank=32"}));
}

TEST_F(ShortMemory, WeightsThatDoNotFitTwiceAreStoredOnce) {
  // 3 lane tiles of 12 rows of 16 slices a layer: with two of them in either hemisphere, 2,304 rows and 540 of values of 2,816.
  EXPECT_TRUE(holds(forms::buildPerceptron(30, 96, 6, ElementType::Fp16), {"memory.rows_per_bank=32"}));
  EXPECT_TRUE(holds(forms::buildPerceptron(30, 96, 6, ElementType::Fp16), {"memory.rows_per_bank=28"}));
}

TEST_F(ShortMemory, NormalisationsKeepTheirRowsUntilTheLastUse) {
  shrink(forms::buildLayerNorm(40, 100));
  EXPECT_GE(fitted, 2u);
}
TEST_F(ShortMemory, ConvolutionsKeepEveryWindow) {
  shrink(forms::buildConv({.channels = 20, .height = 9, .width = 9, .filters = 30, .residual = true}));
  EXPECT_GE(fitted, 2u);
}
TEST_F(ShortMemory, TablesLieWhereTheirIndicesReach) {
  shrink(forms::buildEmbedding({.tokens = 20, .rows = 90, .width = 40, .segments = 2, .positions = true}));
  EXPECT_GE(fitted, 2u);
}

TEST_F(ShortMemory, AccumulatorRowsEndWhereThePlaneDoes) {
  const forms::KernelGraph graph = forms::buildMatmul({.m = 90, .k = 70, .n = 80});
  for (unsigned rows = 16; rows < 100; rows += rows < 64 ? 1 : 7)
    holds(graph, {"mxm.accumulator_rows=" + std::to_string(rows)});
  EXPECT_GE(fitted, 10u);
}

} // namespace
