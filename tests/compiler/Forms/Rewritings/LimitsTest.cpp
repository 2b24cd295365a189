// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where a rewriting must leave a kernel alone: padding that counts, values out of range, values
// that something else takes, windows that leave their tensor.
#include "tests/compiler/Forms/Rewritings/Outputs.h"
#include "tests/compiler/Forms/Rewritings/Tsp.h"

#include "compiler/Forms/Builders.h"
#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/RepeatedSums.h"
#include "compiler/Forms/Rewritings/ClipRunning.h"
#include "compiler/Forms/Rewritings/MergeHeads.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"
#include "compiler/Forms/Rewritings/SplitRunning.h"
#include "compiler/Forms/Rewritings/SplitTables.h"
#include "compiler/Forms/Rewritings/StreamBias.h"
#include "compiler/Forms/Simplify.h"

#include "arch/spec/MachineFile.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::forms;

namespace {

constexpr ElementType kFp16 = ElementType::Fp16;
constexpr uint32_t kOne = 0x3c00; ///< in fp16

/// y[c] = op over rows and columns of x[c, rows, columns], of which `above` rows before the first
/// and `below` behind the last are read as `pad`.
KernelGraph buildReduction(AluOp op, int64_t rows, int64_t columns, int64_t above, int64_t below,
                           uint32_t pad) {
  KernelGraph graph;
  graph.name = "reduction";
  const unsigned x = addTensor(graph, "x", {20, rows, columns}, kFp16, 0, TensorRole::Input);
  const unsigned y = addTensor(graph, "y", {20}, ElementType::Fp32, 0, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned c = build.loop(20), r = build.loop(rows + above + below, LoopKind::Running),
                 s = build.loop(columns, LoopKind::Running);
  const unsigned value = build.load({x, {at(c), {-above, {{r, 1}}}, at(s)}, pad});
  build.store(build.reduce(op, value), {y, {at(c)}});
  build.finish("reduction");
  return graph;
}

TEST(ClipRunning, KeepsPaddingThatIsNotZeroInASum) {
  KernelGraph graph = buildReduction(AluOp::AddF32, 5, 7, 1, 2, kOne);
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  EXPECT_EQ(clipRunning(graph), 0u);
  EXPECT_EQ(outputsOf(graph, inputs), before);
}

TEST(SplitRunning, CutsWindowsThatLeaveTheirTensorOnEitherSide) {
  for (auto [above, below] : {std::pair(0, 0), std::pair(1, 0), std::pair(0, 1), std::pair(2, 3)}) {
    KernelGraph graph = buildReduction(AluOp::MaxF32, 5, 7, above, below, kOne);
    const auto inputs = randomInputs(graph);
    const auto before = outputsOf(graph, inputs);
    EXPECT_EQ(splitRunning(graph), above + below ? 1u : 0u) << above << ", " << below;
    EXPECT_EQ(outputsOf(graph, inputs), before) << above << ", " << below;
  }
}

TEST(SplitTables, LeavesTablesWhosePaddingIsNotZero) {
  KernelGraph graph = buildEmbedding({.tokens = 70, .rows = 20, .width = 5, .segments = 2});
  for (Access &access : graph.kernels[0].operands)
    if (access.lookup)
      access.pad = kOne;
  EXPECT_EQ(splitTables(graph, 10), 0u);
}

TEST(RepeatedSums, MultiplyByAllLoopsThatNoTermUses) {
  KernelGraph graph = buildMatmul({.m = 5, .k = 40, .n = 50, .bias = false});
  const auto inputs = randomInputs(graph);
  const auto once = outputsOf(graph, inputs).at("y");
  graph.kernels[0].loops.push_back({4, LoopKind::Contracted});
  graph.kernels[0].loops.push_back({2, LoopKind::Contracted});
  EXPECT_EQ(multiplyRepeatedSums(graph), 2u);
  const auto repeated = outputsOf(graph, inputs).at("y");
  for (size_t i = 0; i < once.size(); i += 2) {
    const auto value = [&](const TensorBytes &y) {
      return decode(kFp16, y[i] | uint32_t(y[i + 1]) << 8);
    };
    EXPECT_EQ(value(repeated), 8 * value(once));
  }
}

/// y = x w + b, with memory so short that the bias would be streamed; b goes to z, too, if asked
/// for.
unsigned streamed(float largest, bool usedTwice) {
  Machine machine = *loadMachine("tsp-small");
  machine.memory.slices = machine.memory.banks = 1, machine.memory.rowsPerBank = 8;
  KernelGraph graph;
  graph.name = "bias";
  const unsigned x = addTensor(graph, "x", {4, 20}, kFp16, 1, TensorRole::Input);
  const unsigned w = addTensor(graph, "w", {6, 20}, kFp16, 1, TensorRole::Input);
  std::vector<float> values;
  for (float row : {0.1f, -3.0f, largest, 1234.5678f})
    values.insert(values.end(), 6, row);
  const unsigned b = addConstant(graph, "b", {4, 6}, ElementType::Fp32, 1, values);
  const unsigned y = addTensor(graph, "y", {4, 6}, ElementType::Fp32, 1, TensorRole::Output);
  const unsigned z = addTensor(graph, "z", {4, 6}, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned r = build.loop(4), n = build.loop(6), k = build.loop(20, LoopKind::Contracted);
  build.term({x, {at(r), at(k)}, 0}, {w, {at(n), at(k)}, 0}, 480);
  const unsigned bias = build.load({b, {at(r), at(n)}, 0});
  const unsigned sum = build.op(AluOp::AddF32, {build.accumulator(), bias});
  build.store(sum, {y, {at(r), at(n)}});
  build.store(usedTwice ? bias : build.op(AluOp::NegF32, {sum}), {z, {at(r), at(n)}});
  build.finish("bias");
  return streamBias(graph, machine);
}

TEST(StreamBias, LeavesValuesThatPartsInFp16CannotGive) {
  EXPECT_EQ(streamed(32000, false), 1u);
  for (float large : {32768.0f, -40000.0f, 1e6f, INFINITY})
    EXPECT_EQ(streamed(large, false), 0u) << large;
}

TEST(StreamBias, LeavesABiasThatSomethingElseTakes) { EXPECT_EQ(streamed(1, true), 0u); }

TEST(Simplify, DoesNotMergeAReaderThatIsShifted) {
  for (int64_t shift : {0, 1}) {
    KernelGraph graph;
    graph.name = "shift";
    const unsigned x = addTensor(graph, "x", {6, 10}, kFp16, 1, TensorRole::Input);
    const unsigned t = addTensor(graph, "t", {6, 10}, kFp16, 1);
    const unsigned y = addTensor(graph, "y", {6, 10}, kFp16, 1, TensorRole::Output);
    for (auto [from, to, offset] : {std::tuple(x, t, int64_t(0)), std::tuple(t, y, shift)}) {
      KernelBuilder build(graph);
      const unsigned r = build.loop(6), l = build.loop(10);
      const unsigned value = build.load({from, {{offset, {{r, 1}}}, at(l)}, 0});
      build.store(build.op(AluOp::MulF32, {value, build.constant(2)}), {to, {at(r), at(l)}});
      build.finish(from == x ? "first" : "second");
    }
    const auto inputs = randomInputs(graph);
    const auto before = outputsOf(graph, inputs);
    simplify(graph, 16);
    EXPECT_EQ(graph.kernels.size(), shift ? 2u : 1u);
    EXPECT_EQ(outputsOf(graph, inputs), before) << shift;
  }
}

TEST(SplitRunning, LeavesRowsThatStepEvenlyFromEndToEnd) {
  KernelGraph graph = buildReduction(AluOp::MaxF32, 5, 7, 0, 0, 0);
  EXPECT_EQ(splitRunning(graph), 0u);
}

/// o[h, t, d] = p[h, t, s] v[s, d, h], whose heads and lanes y[t, n] sums over; tensor 2 is o.
KernelGraph buildHeads() {
  KernelGraph graph;
  const unsigned p = addTensor(graph, "p", {3, 5, 5}, kFp16, 2, TensorRole::Input),
                 v = addTensor(graph, "v", {5, 3 * 16}, kFp16, 0, TensorRole::Input),
                 o = addTensor(graph, "o", {3, 5, 16}, kFp16, 2),
                 y = addTensor(graph, "y", {5, 4}, ElementType::Fp32, 1, TensorRole::Output),
                 w = addConstant(graph, "w", {3 * 16, 4}, kFp16, 0, randomValues(3 * 16 * 4, 3));
  {
    KernelBuilder build(graph);
    const unsigned h = build.loop(3), t = build.loop(5), d = build.loop(16),
                   s = build.loop(5, LoopKind::Contracted);
    build.term({p, {at(h), at(t), at(s)}, 0}, {v, {at(s), {0, {{h, 16}, {d, 1}}}}, 0},
               3 * 5 * 5 * 16);
    build.store(build.accumulator(), {o, {at(h), at(t), at(d)}});
    build.finish("values");
  }
  KernelBuilder build(graph);
  const unsigned t = build.loop(5), n = build.loop(4), h = build.loop(3, LoopKind::Contracted),
                 d = build.loop(16, LoopKind::Contracted);
  build.term({o, {at(h), at(t), at(d)}, 0}, {w, {{0, {{h, 16}, {d, 1}}}, at(n)}, 0},
             5 * 3 * 16 * 4);
  build.store(build.accumulator(), {y, {at(t), at(n)}});
  build.finish("projection");
  return graph;
}

TEST(MergeHeads, LeavesHeadsThatSomethingElseTakesToo) {
  const Machine machine = *loadMachine("tsp-v1");
  KernelGraph graph = buildHeads();
  EXPECT_EQ(mergeHeads(graph, machine), 1u);
  for (bool asInput : {true, false}) {
    graph = buildHeads();
    HostCall call;
    (asInput ? call.inputs : call.outputs) = {2};
    graph.hostCalls.push_back(call);
    graph.order.push_back({true, 0});
    EXPECT_EQ(mergeHeads(graph, machine), 0u) << "a host step";
  }
  graph = buildHeads();
  const unsigned z = addTensor(graph, "z", {3, 5, 16}, kFp16, 2, TensorRole::Output);
  {
    KernelBuilder build(graph);
    const std::vector<AffineIndex> point = {at(build.loop(3)), at(build.loop(5)),
                                            at(build.loop(16))};
    build.store(build.load({2, point, 0}), {z, point});
    build.finish("copy");
  }
  EXPECT_EQ(mergeHeads(graph, machine), 0u) << "a map";
  graph = buildHeads();
  const unsigned q = addTensor(graph, "q", {3, 4, 5}, kFp16, 2, TensorRole::Output),
                 u = addTensor(graph, "u", {3, 4, 16}, kFp16, 2, TensorRole::Input);
  {
    KernelBuilder build(graph);
    const unsigned h = build.loop(3), m = build.loop(4), n = build.loop(5),
                   k = build.loop(16, LoopKind::Contracted);
    build.term({u, {at(h), at(m), at(k)}, 0}, {2, {at(h), at(n), at(k)}, 0}, 3 * 4 * 5 * 16);
    build.store(build.accumulator(), {q, {at(h), at(m), at(n)}});
    build.finish("weights");
  }
  EXPECT_EQ(mergeHeads(graph, machine), 0u) << "a product that installs them";
}

TEST(SplitEpilogues, DoesNotCutBeforeTheSumComesIn) {
  // y = max(x w, exp(tanh(b))): the first three operations need no sum, but the kernel's second
  // part would have none.
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {4, 8}, kFp16, 1, TensorRole::Input),
                 b = addTensor(graph, "b", {4, 6}, kFp16, 1, TensorRole::Input),
                 w = addConstant(graph, "w", {6, 8}, kFp16, 1, randomValues(48, 3)),
                 y = addTensor(graph, "y", {4, 6}, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned m = build.loop(4), n = build.loop(6), k = build.loop(8, LoopKind::Contracted);
  build.term({x, {at(m), at(k)}, 0}, {w, {at(n), at(k)}, 0}, 4 * 6 * 8);
  const unsigned curved =
      build.op(AluOp::ExpF32, {build.op(AluOp::TanhF32, {build.load({b, {at(m), at(n)}, 0})})});
  build.store(build.op(AluOp::MaxF32, {build.accumulator(), curved}), {y, {at(m), at(n)}});
  build.finish("late");
  KernelGraph whole = graph;
  EXPECT_EQ(splitEpilogues(graph, 3), 0u);
  EXPECT_EQ(graph.kernels.size(), 1u);
  EXPECT_EQ(splitEpilogues(whole, 4), 0u) << "four operations are no more than four";
}

/// y = s * tanh(polynomial of s), s = x w: the sum waits for all of it.
KernelGraph buildGate(int64_t rows) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {rows, 8}, kFp16, 1, TensorRole::Input),
                 w = addConstant(graph, "w", {6, 8}, kFp16, 1, randomValues(48, 3)),
                 y = addTensor(graph, "y", {rows, 6}, kFp16, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned m = build.loop(rows), n = build.loop(6), k = build.loop(8, LoopKind::Contracted);
  build.term({x, {at(m), at(k)}, 0}, {w, {at(n), at(k)}, 0}, rows * 6 * 8);
  const unsigned sum = build.accumulator();
  unsigned value = sum;
  for (const float factor : {0.1f, 0.2f, 0.3f, 0.4f})
    value =
        build.op(AluOp::AddF32, {build.op(AluOp::MulF32, {value, sum}), build.constant(factor)});
  build.store(build.op(AluOp::MulF32, {sum, build.op(AluOp::TanhF32, {value})}),
              {y, {at(m), at(n)}});
  build.finish("gate");
  return graph;
}

TEST(SplitEpilogues, StoresTheSumItselfWhereNothingElseCrossesAlone) {
  const Machine machine = tsp();
  KernelGraph graph = buildGate(64);
  ASSERT_FALSE(epilogueNeedsOfRows(graph.kernels[0], graph, machine).fit(machine));
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  EXPECT_EQ(splitEpilogues(graph, 12, machine), 2u) << "the sum; then a map that reads it again";
  for (const Kernel &kernel : graph.kernels)
    EXPECT_TRUE(epilogueNeeds(kernel, graph, machine).fit(machine)) << kernel.name;
  EXPECT_EQ(outputsOf(graph, inputs), before);
}

TEST(SplitEpilogues, LeavesAFewRowsThatFitWhole) {
  const Machine machine = tsp();
  KernelGraph graph = buildGate(4);
  ASSERT_FALSE(epilogueNeeds(graph.kernels[0], graph, machine).fit(machine));
  ASSERT_TRUE(epilogueNeedsOfRows(graph.kernels[0], graph, machine).fit(machine));
  EXPECT_EQ(splitEpilogues(graph, 12, machine), 0u);
}

TEST(SplitEpilogues, CallsTheFirstPartAPart) {
  KernelGraph graph = buildMatmul({.m = 5, .k = 40, .n = 50, .relu = true}); // add, max, cvt
  ASSERT_EQ(splitEpilogues(graph, 2), 1u);
  EXPECT_EQ(graph.kernels[0].name, "matmul.part");
  EXPECT_EQ(graph.kernels[1].name, "matmul");
}

} // namespace
