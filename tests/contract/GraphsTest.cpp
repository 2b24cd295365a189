// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does the simulator arrive at the compiler's cycles and at the reference's values, on every small
// graph and machine?
#include "tests/contract/GridRun.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Rewritings/PadOperands.h"
#include "compiler/Forms/Rewritings/SplitRunning.h"
#include "compiler/Forms/Rewritings/SplitTables.h"

#include <gtest/gtest.h>

using namespace millrace;

namespace {

struct Target {
  const char *machine, *partition;
};

class Contract : public testing::TestWithParam<Target> {
protected:
  void holds(const forms::KernelGraph &graph) {
    Expected<Machine> machine = loadMachine(GetParam().machine);
    ASSERT_TRUE(machine) << machine.error();
    const auto inputs = forms::randomInputs(graph);
    grid::CompileOptions options;
    options.partition = GetParam().partition;
    test::GridRun run = test::runOnGrid(graph, *machine, inputs, true, options);
    ASSERT_EQ(run.error, "");
    if (run.simulated.violation)
      FAIL() << run.simulated.violation->describe();
    EXPECT_EQ(run.simulated.measuredCycles, run.report.predictedCycles);
    const double distance = test::distanceFromReference(graph, run, inputs);
    EXPECT_EQ(distance, 0) << "not bit for bit what the graph's evaluation gives";
  }
};

TEST_P(Contract, Matmul) { holds(forms::buildMatmul({.m = 100, .k = 500, .n = 700})); }
TEST_P(Contract, MatmulOfOneRow) { holds(forms::buildMatmul({.m = 1, .k = 1000, .n = 300})); }
TEST_P(Contract, Int8Matmul) {
  holds(forms::buildMatmul({.m = 50, .k = 100, .n = 70, .type = ElementType::Int8}));
}
TEST_P(Contract, Convolution) { holds(forms::buildConv({})); }
TEST_P(Contract, StridedConvolutionWithResidual) {
  holds(forms::buildConv(
      {.channels = 40, .height = 15, .width = 13, .filters = 50, .stride = 2, .residual = true}));
}
TEST_P(Contract, GroupedConvolution) {
  holds(forms::buildConv({.channels = 32, .height = 9, .width = 9, .filters = 64, .groups = 4}));
}
TEST_P(Contract, DepthwiseConvolution) {
  holds(forms::buildConv({.channels = 48, .height = 9, .width = 9, .filters = 48, .groups = 48}));
}
TEST_P(Contract, Int8Convolution) {
  holds(forms::buildConv(
      {.channels = 40, .height = 14, .width = 14, .filters = 64, .type = ElementType::Int8}));
}
TEST_P(Contract, MaxPool) { holds(forms::buildMaxPool(64, 12, 12, 2, 2, 0, ElementType::Fp16)); }
TEST_P(Contract, LayerNorm) { holds(forms::buildLayerNorm(20, 100)); }
TEST_P(Contract, AttentionHead) { holds(forms::buildAttention(20, 32, 16, true)); }
TEST_P(Contract, AttentionOfOneTokenMoreThanATileOfTheSmallMachineHasColumns) {
  holds(forms::buildAttention(33, 1, 16, true));
}
TEST_P(Contract, AttentionWithHeadsLongerThanATile) {
  holds(forms::buildAttention(15, 63, 33, false));
}
TEST_P(Contract, Embedding) {
  holds(forms::buildEmbedding(
      {.tokens = 50, .rows = 999, .width = 700, .segments = 2, .positions = true}));
}
TEST_P(Contract, EmbeddingOfOneToken) {
  holds(forms::buildEmbedding({.tokens = 1, .rows = 3, .width = 20}));
}
/// The host refuses such an index; a program that is given it all the same stops.
TEST_P(Contract, AnIndexBeyondItsTableIsAViolationOfS10) {
  const forms::KernelGraph graph = forms::buildEmbedding({.tokens = 6, .rows = 9, .width = 40});
  Expected<Machine> machine = loadMachine(GetParam().machine);
  ASSERT_TRUE(machine) << machine.error();
  auto inputs = forms::randomInputs(graph);
  const int32_t beyond = 9;
  std::memcpy(&inputs.begin()->second[4 * 2], &beyond, sizeof beyond);
  grid::CompileOptions options;
  options.partition = GetParam().partition;
  const test::GridRun run = test::runOnGrid(graph, *machine, inputs, true, options);
  ASSERT_EQ(run.error, "");
  ASSERT_TRUE(run.simulated.violation);
  EXPECT_EQ(run.simulated.violation->invariant, sim::Invariant::S10);
  EXPECT_NE(run.simulated.violation->describe().find("gathers row"), std::string::npos)
      << run.simulated.violation->describe();
}
TEST_P(Contract, EmbeddingFromATableInParts) {
  forms::KernelGraph graph =
      forms::buildEmbedding({.tokens = 40, .rows = 500, .width = 70, .segments = 5});
  EXPECT_EQ(forms::splitTables(graph, 200), 1u); // 199, 199 and 102 rows
  EXPECT_EQ(graph.verify(), "");
  holds(graph);
}
TEST_P(Contract, EmbeddingFromATableInWholeSlices) {
  Expected<Machine> machine = loadMachine(GetParam().machine);
  ASSERT_TRUE(machine) << machine.error();
  const int64_t rows = 2 * int64_t(machine->rowsPerSlice()) + 5;
  forms::KernelGraph graph = forms::buildEmbedding({.tokens = 30, .rows = rows, .width = 40});
  EXPECT_EQ(forms::splitTables(graph, int64_t(machine->rowsPerSlice())), 1u);
  holds(graph);
}
TEST_P(Contract, Perceptron) { holds(forms::buildPerceptron(30, 64, 4, ElementType::Fp16)); }

using forms::at;

/// y[p, n] = the sum of x[r, p size + k] w[n, k, r] over all rows and the lanes of a part. Stored
/// in fp32, which hides no rounding.
forms::KernelGraph buildPartSums(int64_t rows, int64_t parts, int64_t size) {
  forms::KernelGraph graph;
  const auto fp16 = ElementType::Fp16;
  const unsigned x =
      forms::addTensor(graph, "x", {rows, parts * size}, fp16, 1, forms::TensorRole::Input);
  const unsigned w = forms::addConstant(graph, "w", {7, size, rows}, fp16, 1,
                                        forms::randomValues(size_t(7 * size * rows), 1));
  const unsigned y =
      forms::addTensor(graph, "y", {parts, 7}, ElementType::Fp32, 1, forms::TensorRole::Output);
  forms::KernelBuilder build(graph);
  const unsigned p = build.loop(parts), n = build.loop(7),
                 k = build.loop(size, forms::LoopKind::Contracted),
                 r = build.loop(rows, forms::LoopKind::Contracted);
  build.term({x, {at(r), {0, {{p, size}, {k, 1}}}}, 0}, {w, {at(n), at(k), at(r)}, 0}, 0);
  build.storeBits(build.accumulator(), {y, {at(p), at(n)}, 0});
  build.finish("sums");
  return graph;
}
TEST_P(Contract, SumsOfPartsThatLieInTwoPassesOfTheMxm) { holds(buildPartSums(9, 3, 10)); }
TEST_P(Contract, SumsOfPartsThatLieInTwoTiles) { holds(buildPartSums(40, 5, 90)); }

/// y[b, f, x] = the sum of x[b, c, ky - 1, x] w[f, c, ky] for one image row: two taps see padding.
forms::KernelGraph buildConvOfOneRow() {
  forms::KernelGraph graph;
  const auto fp16 = ElementType::Fp16;
  const unsigned x = forms::addTensor(graph, "x", {5, 8, 1, 13}, fp16, 1, forms::TensorRole::Input);
  const unsigned w =
      forms::addConstant(graph, "w", {3, 8, 3}, fp16, 1, forms::randomValues(size_t(3 * 8 * 3), 1));
  const unsigned y = forms::addTensor(graph, "y", {5, 3, 13}, fp16, 1, forms::TensorRole::Output);
  forms::KernelBuilder build(graph);
  const unsigned b = build.loop(5), f = build.loop(3), column = build.loop(13),
                 c = build.loop(8, forms::LoopKind::Contracted),
                 tap = build.loop(3, forms::LoopKind::Contracted);
  build.term({x, {at(b), at(c), at(tap, 1, -1), at(column)}, 0}, {w, {at(f), at(c), at(tap)}, 0},
             5 * 3 * 13 * 8 * 3);
  build.store(build.accumulator(), {y, {at(b), at(f), at(column)}, 0});
  build.finish("convolution");
  return graph;
}
TEST_P(Contract, ConvolutionOfImagesOfOneRow) { holds(buildConvOfOneRow()); }

/// y[t, m, n] = the sum over taps and k of x[m, tap, k] v[t + tap - 1, n, k], both made at run
/// time.
TEST_P(Contract, AWindowOfInstalledRowsThatReachesBeyondThem) {
  forms::KernelGraph graph;
  const auto fp16 = ElementType::Fp16;
  const unsigned x = forms::addTensor(graph, "x", {5, 3, 9}, fp16, 2, forms::TensorRole::Input);
  const unsigned v = forms::addTensor(graph, "v", {4, 20, 9}, fp16, 2, forms::TensorRole::Input);
  const unsigned y = forms::addTensor(graph, "y", {4, 5, 20}, fp16, 2, forms::TensorRole::Output);
  forms::KernelBuilder build(graph);
  const unsigned t = build.loop(4), m = build.loop(5), n = build.loop(20),
                 tap = build.loop(3, forms::LoopKind::Contracted),
                 k = build.loop(9, forms::LoopKind::Contracted);
  build.term({x, {at(m), at(tap), at(k)}, 0},
             {v, {forms::window(t, 1, tap, 1, -1), at(n), at(k)}, 0}, 4 * 5 * 20 * 3 * 9);
  build.store(build.accumulator(), {y, {at(t), at(m), at(n)}, 0});
  build.finish("window");
  EXPECT_EQ(forms::padOperands(graph), 1u);
  EXPECT_EQ(graph.verify(), "");
  holds(graph);
}

/// y[r, x, f] = the sum of v[r, 2 x + tap - 2] w[f, tap] of 11 columns along the lanes, beside
/// which all values are `pad`.
forms::KernelGraph buildWindowAlongLanes(float pad, bool sums) {
  forms::KernelGraph graph;
  const auto fp16 = ElementType::Fp16;
  const unsigned v = forms::addTensor(graph, "v", {3, 11}, fp16, 1, forms::TensorRole::Input);
  const unsigned w =
      forms::addConstant(graph, "w", {6, 4}, fp16, 1, forms::randomValues(size_t(6 * 4), 1));
  const unsigned y = forms::addTensor(graph, "y", {3, sums ? 1 : 7, 6}, ElementType::Fp32, 2,
                                      forms::TensorRole::Output);
  forms::KernelBuilder build(graph);
  const unsigned r = build.loop(3), f = build.loop(6),
                 x = build.loop(7, sums ? forms::LoopKind::Running : forms::LoopKind::Parallel),
                 tap = build.loop(4, forms::LoopKind::Contracted);
  build.term({v, {at(r), forms::window(x, 2, tap, 1, -2)}, forms::encode(fp16, pad)},
             {w, {at(f), at(tap)}, 0}, 3 * 7 * 6 * 4);
  const unsigned sum = build.accumulator();
  build.store(sums ? build.reduce(AluOp::AddF32, sum) : sum,
              {y, {at(r), sums ? forms::fixed(0) : at(x), at(f)}, 0});
  build.finish("window");
  return graph;
}
TEST_P(Contract, AWindowAlongTheLanesThatReachesBeyondThem) {
  for (float pad : {0.0f, 1.5f}) {
    forms::KernelGraph graph = buildWindowAlongLanes(pad, false);
    EXPECT_EQ(forms::padOperands(graph), 1u);
    EXPECT_EQ(graph.verify(), "");
    holds(graph);
  }
}
TEST_P(Contract, ASumOverAWindowThatMovesAlongTheLanes) {
  forms::KernelGraph graph = buildWindowAlongLanes(0, true);
  EXPECT_EQ(forms::splitRunning(graph), 1u);
  EXPECT_EQ(forms::padOperands(graph), 1u);
  EXPECT_EQ(graph.verify(), "");
  holds(graph);
}

/// y[b, r, l] = x[3 b + r - 2, l], and 1.5 outside: rows in blocks, the first and last in part.
TEST_P(Contract, BlocksOfRowsThatReachBeyondATensor) {
  forms::KernelGraph graph;
  const auto fp16 = ElementType::Fp16;
  const unsigned x = forms::addTensor(graph, "x", {10, 20}, fp16, 1, forms::TensorRole::Input);
  const unsigned y = forms::addTensor(graph, "y", {5, 3, 20}, fp16, 2, forms::TensorRole::Output);
  forms::KernelBuilder build(graph);
  const unsigned b = build.loop(5), r = build.loop(3), l = build.loop(20);
  build.store(build.load({x, {{-2, {{b, 3}, {r, 1}}}, at(l)}, forms::encode(fp16, 1.5f)}),
              {y, {at(b), at(r), at(l)}, 0});
  build.finish("blocks");
  holds(graph);
}

/// y[r, f] = the sum of x[r, 70 - k] w[f, k]: lanes of more than one tile, read backwards.
TEST_P(Contract, AProductOverLanesReadBackwards) {
  forms::KernelGraph graph;
  const auto fp16 = ElementType::Fp16;
  const unsigned x = forms::addTensor(graph, "x", {40, 80}, fp16, 1, forms::TensorRole::Input);
  const unsigned z = forms::addTensor(graph, "z", {40, 80}, fp16, 1);
  const unsigned w =
      forms::addConstant(graph, "w", {20, 60}, fp16, 1, forms::randomValues(size_t(20 * 60), 1));
  const unsigned y = forms::addTensor(graph, "y", {40, 20}, fp16, 1, forms::TensorRole::Output);
  {
    forms::KernelBuilder build(graph);
    const unsigned r = build.loop(40), l = build.loop(80);
    build.store(build.op(AluOp::AbsF32, {build.load({x, {at(r), at(l)}, 0})}),
                {z, {at(r), at(l)}, 0});
    build.finish("absolute");
  }
  forms::KernelBuilder build(graph);
  const unsigned r = build.loop(40), f = build.loop(20),
                 k = build.loop(60, forms::LoopKind::Contracted);
  build.term({z, {at(r), at(k, -1, 70)}, 0}, {w, {at(f), at(k)}, 0}, 40 * 20 * 60);
  build.store(build.accumulator(), {y, {at(r), at(f)}, 0});
  build.finish("product");
  holds(graph);
}

/// y[r, f] = the sum of x[r - 1, k] w[f, k], where rows of x outside are all 1.5: some PE of many
/// sees nothing else.
TEST_P(Contract, AProductOfPaddingAlone) {
  forms::KernelGraph graph;
  const auto fp16 = ElementType::Fp16;
  const unsigned x = forms::addTensor(graph, "x", {2, 9}, fp16, 1, forms::TensorRole::Input);
  const unsigned w =
      forms::addConstant(graph, "w", {20, 9}, fp16, 1, forms::randomValues(size_t(20 * 9), 1));
  const unsigned y = forms::addTensor(graph, "y", {40, 20}, fp16, 1, forms::TensorRole::Output);
  forms::KernelBuilder build(graph);
  const unsigned r = build.loop(40), f = build.loop(20),
                 k = build.loop(9, forms::LoopKind::Contracted);
  build.term({x, {at(r, 1, -1), at(k)}, forms::encode(fp16, 1.5f)}, {w, {at(f), at(k)}, 0},
             40 * 20 * 9);
  build.store(build.accumulator(), {y, {at(r), at(f)}, 0});
  build.finish("product");
  holds(graph);
}

/// y[r, g * filters + f] = the sum of x[r, g, k] w[g, f, k]: lanes that see rows of their own.
forms::KernelGraph buildRowsThatBecomeLanes(int64_t groups, int64_t filters) {
  forms::KernelGraph graph;
  const auto fp16 = ElementType::Fp16;
  const unsigned x =
      forms::addTensor(graph, "x", {6, groups, 9}, fp16, 2, forms::TensorRole::Input);
  const unsigned w = forms::addConstant(graph, "w", {groups, filters, 9}, fp16, 2,
                                        forms::randomValues(size_t(groups * filters * 9), 1));
  const unsigned y =
      forms::addTensor(graph, "y", {6, groups * filters}, fp16, 1, forms::TensorRole::Output);
  forms::KernelBuilder build(graph);
  const unsigned r = build.loop(6), g = build.loop(groups), f = build.loop(filters),
                 k = build.loop(9, forms::LoopKind::Contracted);
  build.term({x, {at(r), at(g), at(k)}, 0}, {w, {at(g), at(f), at(k)}, 0},
             6 * groups * filters * 9);
  build.store(build.accumulator(), {y, {at(r), {0, {{g, filters}, {f, 1}}}}, 0});
  build.finish("groups");
  return graph;
}
TEST_P(Contract, GroupsOfFiltersOfWhichEachSeesRowsOfItsOwn) {
  holds(buildRowsThatBecomeLanes(5, 3));
}
TEST_P(Contract, LanesOfWhichEachSeesRowsOfItsOwn) { holds(buildRowsThatBecomeLanes(7, 1)); }

/// y[r, l] = x[r, l] and z[8 r + l] = x[r, l]: what are rows of the one are lanes of the other.
TEST_P(Contract, ALoopAlongTheLanesOfTheSecondResultAlone) {
  forms::KernelGraph graph;
  const auto fp16 = ElementType::Fp16;
  const unsigned x = forms::addTensor(graph, "x", {6, 8}, fp16, 1, forms::TensorRole::Input);
  const unsigned y = forms::addTensor(graph, "y", {6, 8}, fp16, 1, forms::TensorRole::Output);
  const unsigned z = forms::addTensor(graph, "z", {1, 48}, fp16, 1, forms::TensorRole::Output);
  forms::KernelBuilder build(graph);
  const unsigned r = build.loop(6), l = build.loop(8);
  const unsigned value = build.load({x, {at(r), at(l)}, 0});
  build.store(value, {y, {at(r), at(l)}, 0});
  build.store(value, {z, {forms::fixed(0), {0, {{r, 8}, {l, 1}}}}, 0});
  build.finish("reshape");
  holds(graph);
}

/// y = x > 0 ? 2 : 3
TEST_P(Contract, AnOperationOnTwoImmediates) {
  forms::KernelGraph graph;
  const auto fp16 = ElementType::Fp16;
  const unsigned x = forms::addTensor(graph, "x", {9, 20}, fp16, 1, forms::TensorRole::Input);
  const unsigned y = forms::addTensor(graph, "y", {9, 20}, fp16, 1, forms::TensorRole::Output);
  forms::KernelBuilder build(graph);
  const unsigned r = build.loop(9), l = build.loop(20);
  const unsigned above =
      build.op(AluOp::GtF32, {build.load({x, {at(r), at(l)}, 0}), build.constant(0)});
  build.store(build.op(AluOp::SelectF32, {above, build.constant(2), build.constant(3)}),
              {y, {at(r), at(l)}, 0});
  build.finish("select");
  holds(graph);
}

INSTANTIATE_TEST_SUITE_P(Machines, Contract,
                         testing::Values(Target{"tsp-v1", "auto"}, Target{"tsp-small", "auto"},
                                         Target{"lp30", "auto"}, Target{"mesh-4x4", "spread"},
                                         Target{"mesh-4x4", "pipeline"}),
                         [](const auto &info) {
                           std::string name =
                               std::string(info.param.machine) + "_" + info.param.partition;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace
