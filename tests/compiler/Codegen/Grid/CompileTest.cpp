// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does every small graph become a schedule whose own statements agree with each other?
#include "TestMachine.h"

#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/KernelBuilder.h"

#include <gtest/gtest.h>
#include <set>

using namespace millrace;

namespace {

Image compiled(const forms::KernelGraph &graph, const Machine &machine) {
  grid::CompileReport report;
  Expected<Image> image = grid::compile(graph, machine, {}, report);
  EXPECT_TRUE(image) << (image ? "" : image.error());
  EXPECT_EQ(report.macsOnGrid, graph.macs());
  return image ? *image : Image{};
}

/// The last bank write slot of the program, from the instructions alone.
uint64_t lastWriteSlot(const Image &image, const Machine &machine) {
  uint64_t last = 0;
  for (const auto &pe : image.instructions)
    for (const Instruction &i : pe)
      if (i.opcode == Opcode::Write)
        last = std::max(last, i.lastCycle() + machine.latency.memWrite);
  return last;
}

class EveryMachine : public testing::TestWithParam<unsigned> {
protected:
  Machine machine = test::testMachine(GetParam());
  void check(const forms::KernelGraph &graph) {
    Image image = compiled(graph, machine);
    ASSERT_EQ(image.steps.size(), 1u);
    EXPECT_EQ(image.steps[0].predictedCycles, 1 + lastWriteSlot(image, machine) + 35 + 20);
    EXPECT_TRUE(std::is_sorted(image.instructions[0].begin(), image.instructions[0].end(),
                               [](const Instruction &x, const Instruction &y) {
                                 return std::pair(x.cycle, x.queue) < std::pair(y.cycle, y.queue);
                               }));
  }
};

TEST_P(EveryMachine, SchedulesAMatmul) {
  check(forms::buildMatmul({.m = 100, .k = 500, .n = 700}));
}
TEST_P(EveryMachine, SchedulesAMatmulOfOneRow) {
  check(forms::buildMatmul({.m = 1, .k = 2048, .n = 1000}));
}
TEST_P(EveryMachine, SchedulesAnInt8Matmul) {
  check(forms::buildMatmul({.m = 50, .k = 100, .n = 70, .type = ElementType::Int8}));
}
TEST_P(EveryMachine, SchedulesAConvolution) { check(forms::buildConv({})); }
TEST_P(EveryMachine, SchedulesAStridedConvolution) {
  check(forms::buildConv(
      {.channels = 40, .height = 15, .width = 13, .filters = 50, .stride = 2, .residual = true}));
}
TEST_P(EveryMachine, SchedulesAGroupedConvolution) {
  check(forms::buildConv({.channels = 32, .height = 9, .width = 9, .filters = 64, .groups = 4}));
}
TEST_P(EveryMachine, SchedulesADepthwiseConvolution) {
  check(forms::buildConv({.channels = 48, .height = 9, .width = 9, .filters = 48, .groups = 48}));
}
TEST_P(EveryMachine, SchedulesAMaxPool) {
  check(forms::buildMaxPool(64, 12, 12, 2, 2, 0, ElementType::Fp16));
}
TEST_P(EveryMachine, SchedulesALayerNorm) { check(forms::buildLayerNorm(20, 100)); }
TEST_P(EveryMachine, SchedulesAnAttentionHead) { check(forms::buildAttention(20, 32, 16, true)); }
TEST_P(EveryMachine, SchedulesAPerceptron) {
  check(forms::buildPerceptron(30, 64, 4, ElementType::Fp16));
}

INSTANTIATE_TEST_SUITE_P(Superlanes, EveryMachine, testing::Values(20u, 2u));

/// A chain of `count` maps; behind those of `hosts` a host step takes their result on.
forms::KernelGraph chainOf(unsigned count, const std::set<unsigned> &hosts = {}) {
  using namespace forms;
  KernelGraph graph;
  const std::vector<int64_t> shape = {200, 32};
  unsigned from = addTensor(graph, "x", shape, ElementType::Fp16, 1, TensorRole::Input);
  for (unsigned n = 0; n < count; ++n) {
    const bool last = n + 1 == count;
    const unsigned to = addTensor(graph, last ? "y" : "t" + std::to_string(n), shape, ElementType::Fp16, 1,
                                  last ? TensorRole::Output : TensorRole::Intermediate);
    KernelBuilder build(graph);
    const unsigned row = build.loop(shape[0]), lane = build.loop(shape[1]);
    build.store(build.op(AluOp::AddF32, {build.load({from, {at(row), at(lane)}, 0}), build.constant(1)}), {to, {at(row), at(lane)}, 0});
    build.finish("add");
    from = to;
    if (hosts.count(n)) {
      const unsigned back = addTensor(graph, "h" + std::to_string(n), shape, ElementType::Fp16, 1);
      graph.hostCalls.push_back({"host", "host", StepDevice::Host, {to}, {back}});
      graph.order.push_back({true, unsigned(graph.hostCalls.size() - 1)});
      from = back;
    }
  }
  return graph;
}

TEST(Compile, HostStepsStandBetweenTheGridStepsOfTheirKernels) {
  const Image image = compiled(chainOf(3, {0, 1}), test::testMachine(2));
  ASSERT_EQ(image.steps.size(), 5u);
  for (size_t s = 0; s < 5; ++s)
    EXPECT_EQ(image.steps[s].kind, s % 2 ? Step::Kind::Host : Step::Kind::Grid) << s;
  for (size_t s : {0, 2, 4})
    EXPECT_LT(image.steps[s].pes[0].begin, image.steps[s].pes[0].end) << s;
}

TEST(Compile, RowsAreUsedAgainWhenTheirTensorHasBeenReadForTheLastTime) {
  Machine machine = test::testMachine(2);
  machine.memory.rowsPerBank = 32; // 7,000 rows; each of the 30 tensors takes 400
  compiled(chainOf(30), machine);
}

TEST(Compile, AStepWaitsForNoUseOfItsRowsInAStepBefore) {
  Machine machine = test::testMachine(2);
  for (unsigned rows : {256u, 64u}) { // of six maps and a seventh behind a host step
    machine.memory.rowsPerBank = rows;
    const Image image = compiled(chainOf(7, {5}), machine);
    ASSERT_EQ(image.steps.size(), 3u);
    EXPECT_LT(image.steps[2].predictedCycles, image.steps[0].predictedCycles / 3) << rows;
  }
}

TEST(Compile, CountsTheSweepsOfAllKernelsTogether) {
  using namespace forms;
  KernelGraph graph;
  const int64_t taps = 600'000;
  const unsigned x = addTensor(graph, "x", {4, taps, 16}, ElementType::Fp16, 2, TensorRole::Input),
                 w = addSplat(graph, "w", {8, taps, 16}, ElementType::Fp16, 2, 0.5f);
  for (const char *name : {"y", "z"}) {
    const unsigned to = addTensor(graph, name, {4, 8}, ElementType::Fp16, 1, TensorRole::Output);
    KernelBuilder build(graph);
    const unsigned m = build.loop(4), n = build.loop(8), t = build.loop(taps, LoopKind::Contracted),
                   k = build.loop(16, LoopKind::Contracted);
    build.term({x, {at(m), at(t), at(k)}, 0}, {w, {at(n), at(t), at(k)}, 0}, 4 * 8 * taps * 16);
    build.store(build.accumulator(), {to, {at(m), at(n)}, 0});
    build.finish(name);
  }
  grid::CompileReport report;
  const Expected<Image> image = grid::compile(graph, test::testMachine(2), {}, report);
  ASSERT_FALSE(image);
  EXPECT_NE(image.error().find("kernel 'y' takes 600000 sweeps through the machine, the most of the 1200000 that the program takes or more; 1000000"),
            std::string::npos)
      << image.error();
}

} // namespace
