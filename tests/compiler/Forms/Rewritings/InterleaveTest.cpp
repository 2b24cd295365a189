// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Are the steps of a running reduction dealt to several accumulators with the same values, and does
// that come out sooner?
#include "compiler/Codegen/Grid/Fit.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/InterleaveRunning.h"
#include "compiler/Forms/Rewritings/UnrollRunning.h"

#include "tests/compiler/Forms/Rewritings/Outputs.h"
#include "tests/compiler/Forms/Rewritings/Tsp.h"

#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::forms;

namespace {

/// y[h, i] = (op over j of k[h, j] . q[h, i]) * 0.5 + b[i]: what scores are compared with.
KernelGraph extremes(int64_t heads, int64_t queries, int64_t keys, AluOp op) {
  KernelGraph graph;
  graph.name = "extremes";
  constexpr int64_t kDepth = 32;
  const ElementType fp16 = ElementType::Fp16;
  const unsigned k = addTensor(graph, "k", {heads, keys, kDepth}, fp16, 2, TensorRole::Input),
                 q = addTensor(graph, "q", {heads, queries, kDepth}, fp16, 2, TensorRole::Input),
                 b = addTensor(graph, "b", {queries}, fp16, 0, TensorRole::Input),
                 y = addTensor(graph, "y", {heads, queries}, ElementType::Fp32, 1,
                               TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned h = build.loop(heads), i = build.loop(queries),
                 j = build.loop(keys, LoopKind::Running),
                 c = build.loop(kDepth, LoopKind::Contracted);
  build.term({k, {at(h), at(j), at(c)}}, {q, {at(h), at(i), at(c)}}, 0);
  const unsigned extreme = build.reduce(op, build.accumulator());
  build.store(build.op(AluOp::AddF32, {build.op(AluOp::MulF32, {extreme, build.constant(0.5f)}),
                                       build.load({b, {at(i)}})}),
              {y, {at(h), at(i)}});
  build.finish("extremes");
  return graph;
}

TEST(InterleaveRunning, DealsStepsThatAccumulatorsDivideUnevenly) {
  // 197 = 3 blocks of 67, 65 apart; of 64 keys two blocks, as 3 would overlap in sums.
  for (const auto &[keys, op] : {std::pair(197, AluOp::MaxF32), std::pair(198, AluOp::MinF32),
                                 std::pair(256, AluOp::MaxF32), std::pair(64, AluOp::AddF32)}) {
    KernelGraph graph = extremes(12, 196, keys, op);
    const std::map<unsigned, TensorBytes> inputs = randomInputs(graph);
    const auto before = outputsOf(graph, inputs);
    ASSERT_EQ(interleaveRunning(graph, tsp()), 1u) << keys;
    ASSERT_EQ(graph.kernels.size(), 2u);
    const auto after = outputsOf(graph, inputs);
    if (op != AluOp::AddF32) {
      EXPECT_EQ(before, after) << keys;
      continue;
    }
    const TensorBytes &x = before.at("y"), &y = after.at("y");
    for (size_t n = 0; n < x.size(); n += 4) {
      float a = 0, b = 0;
      std::memcpy(&a, &x[n], 4);
      std::memcpy(&b, &y[n], 4);
      EXPECT_NEAR(a, b, 1e-4);
    }
  }
}

TEST(InterleaveRunning, LeavesWhatASecondKernelWouldNotPayFor) {
  KernelGraph few = extremes(1, 16, 12, AluOp::MaxF32);
  EXPECT_EQ(interleaveRunning(few, tsp()), 0u);
  Machine one = tsp(); // accumulator
  one.vxm.runningAccumulators = 1;
  KernelGraph many = extremes(12, 196, 197, AluOp::MaxF32);
  EXPECT_EQ(interleaveRunning(many, one), 0u);
}

TEST(InterleaveRunning, BlocksFitTheAccumulators) {
  Machine machine = tsp();
  machine.mxm.accumulatorRows = 200; // 3 x 67 are more, 2 x 99 not
  KernelGraph graph = extremes(12, 196, 197, AluOp::MaxF32);
  ASSERT_EQ(interleaveRunning(graph, machine), 1u);
  EXPECT_EQ(graph.kernels[0].loops.back().extent, 2);
}

uint64_t cyclesOf(KernelGraph graph, const Machine &machine) {
  grid::CompileReport report;
  const Expected<Image> image = grid::compileToFit(graph, machine, {}, report);
  EXPECT_TRUE(image) << (image ? "" : image.error());
  return report.predictedCycles;
}

TEST(InterleaveRunning, TakesFewerCycles) {
  KernelGraph before = extremes(12, 196, 197, AluOp::MaxF32), after = before;
  ASSERT_EQ(interleaveRunning(after, tsp()), 1u);
  EXPECT_LT(2 * cyclesOf(after, tsp()), cyclesOf(before, tsp()));
}

TEST(RunningReductions, RowsGoThroughAccumulatorsSideBySide) {
  // Means of 40 rows each over 16 steps: a step of a row waits for the one before it.
  KernelGraph graph;
  graph.name = "sums";
  const unsigned x = addTensor(graph, "x", {40, 16, 320}, ElementType::Fp16, 2, TensorRole::Input),
                 y = addTensor(graph, "y", {40, 320}, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned r = build.loop(40), l = build.loop(320), s = build.loop(16, LoopKind::Running);
  build.store(build.reduce(AluOp::AddF32, build.load({x, {at(r), at(s), at(l)}})),
              {y, {at(r), at(l)}});
  build.finish("sums");
  Machine one = tsp();
  one.vxm.runningAccumulators = 1;
  const uint64_t alone = cyclesOf(graph, one), beside = cyclesOf(graph, tsp());
  EXPECT_LT(beside + 40 * 16 / 2, alone) << "two hemispheres, a third of the cycles";
  EXPECT_EQ(stepCycles(graph, graph.kernels[0], graph.kernels[0].nodes.back(), one), 3);
  EXPECT_EQ(stepCycles(graph, graph.kernels[0], graph.kernels[0].nodes.back(), tsp()), 1);
}

TEST(RunningReductions, RowsBesideEachOtherFitTheAccumulators) {
  // y[h, i] = the greatest over 512 keys of k[h, j] . q[i]: three rows at once would take 1,536.
  KernelGraph graph;
  graph.name = "shared";
  const ElementType fp16 = ElementType::Fp16;
  const unsigned k = addTensor(graph, "k", {6, 512, 32}, fp16, 2, TensorRole::Input),
                 q = addTensor(graph, "q", {64, 32}, fp16, 1, TensorRole::Input),
                 y = addTensor(graph, "y", {6, 64}, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned h = build.loop(6), i = build.loop(64), j = build.loop(512, LoopKind::Running),
                 c = build.loop(32, LoopKind::Contracted);
  build.term({k, {at(h), at(j), at(c)}}, {q, {at(i), at(c)}}, 0);
  build.store(build.reduce(AluOp::MaxF32, build.accumulator()), {y, {at(h), at(i)}});
  build.finish("shared");
  EXPECT_GT(cyclesOf(graph, tsp()), 512u);
}

} // namespace
