// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does the simulator arrive at the compiler's cycles and at the reference's values, on every small
// graph and machine?
#include "tests/contract/GridRun.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/SplitTables.h"

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
