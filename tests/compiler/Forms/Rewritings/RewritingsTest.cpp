// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Do rewritings of kernel graphs keep values?
#include "tests/compiler/Forms/Rewritings/Outputs.h"

#include "compiler/Forms/Builders.h"
#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/RepeatedSums.h"
#include "compiler/Forms/Rewritings/ClipRunning.h"
#include "compiler/Forms/Rewritings/MergeHeads.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"
#include "compiler/Forms/Rewritings/SplitResults.h"
#include "compiler/Forms/Rewritings/SplitRunning.h"
#include "compiler/Forms/Rewritings/SplitTables.h"
#include "compiler/Forms/Rewritings/SplitWindows.h"
#include "compiler/Forms/Rewritings/StreamBias.h"
#include "compiler/Forms/Rewritings/UniformRows.h"

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace millrace;
using namespace millrace::forms;

namespace {

/// x[1, C, H, W] averaged or maximised over all of H x W by running loops; `pad` rows of the window
/// lie outside.
KernelGraph buildGlobalReduction(AluOp op, int64_t channels, int64_t height, int64_t width,
                                 int64_t pad) {
  KernelGraph graph;
  graph.name = "global";
  const unsigned x = addTensor(graph, "x", {1, channels, height, width + 1}, ElementType::Fp16, 1,
                               TensorRole::Input);
  const unsigned y = addTensor(graph, "y", {1, channels}, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned c = build.loop(channels), r = build.loop(height + pad, LoopKind::Running),
                 s = build.loop(width, LoopKind::Running);
  const unsigned value = build.load({x, {fixed(0), at(c), at(r), at(s)}, 0});
  build.store(build.reduce(op, value), {y, {fixed(0), at(c)}});
  build.finish("global");
  return graph;
}

/// y[t, n] = sum over heads h and d of (sum over s of p[h, t, s] v[s, h * lanes + d])
/// w[h * lanes + d, n].
KernelGraph buildHeads(int64_t heads, int64_t tokens, int64_t lanes, int64_t width) {
  KernelGraph graph;
  graph.name = "heads";
  const auto fp16 = ElementType::Fp16;
  const unsigned p = addTensor(graph, "p", {heads, tokens, tokens}, fp16, 2, TensorRole::Input);
  const unsigned v = addTensor(graph, "v", {tokens, heads * lanes}, fp16, 0, TensorRole::Input);
  const unsigned o = addTensor(graph, "o", {1, heads, tokens, lanes}, fp16, 3);
  std::vector<float> values(size_t(heads * lanes * width));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = float(int(i * 7 % 23) - 11) / 16;
  const unsigned w = addConstant(graph, "w", {heads * lanes, width}, fp16, 0, values);
  const unsigned y =
      addTensor(graph, "y", {tokens, width}, ElementType::Fp32, 1, TensorRole::Output);
  {
    KernelBuilder build(graph);
    const unsigned h = build.loop(heads), t = build.loop(tokens), d = build.loop(lanes),
                   s = build.loop(tokens, LoopKind::Contracted);
    build.term({p, {at(h), at(t), at(s)}, 0}, {v, {at(s), {0, {{h, lanes}, {d, 1}}}}, 0},
               heads * tokens * tokens * lanes);
    build.store(build.accumulator(), {o, {fixed(0), at(h), at(t), at(d)}});
    build.finish("values");
  }
  KernelBuilder build(graph);
  const unsigned t = build.loop(tokens), n = build.loop(width),
                 h = build.loop(heads, LoopKind::Contracted),
                 d = build.loop(lanes, LoopKind::Contracted);
  build.term({o, {fixed(0), at(h), at(t), at(d)}, 0}, {w, {{0, {{h, lanes}, {d, 1}}}, at(n)}, 0},
             tokens * heads * lanes * width);
  build.store(build.accumulator(), {y, {at(t), at(n)}});
  build.finish("projection");
  return graph;
}

TEST(MergeHeads, LetsHeadsOfWholeColumnGroupsLieInOneRow) {
  const Machine machine = *loadMachine("tsp-v1");
  KernelGraph graph = buildHeads(7, 5, 64, 9);
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  const int64_t macs = graph.macs();
  EXPECT_EQ(mergeHeads(graph, machine), 1u);
  EXPECT_EQ(graph.tensors[2].shape, (std::vector<int64_t>{1, 5, 7 * 64}));
  EXPECT_EQ(graph.tensors[2].laneDim, 2u);
  EXPECT_EQ(graph.kernels[1].loops.size(), 3u) << "heads and their lanes are one loop";
  EXPECT_EQ(graph.macs(), macs);
  EXPECT_EQ(outputsOf(graph, inputs), before);
  EXPECT_EQ(mergeHeads(graph, machine), 0u);
}

/// As exporters write attention in windows: y[w, t, n] = sum over h and d of (sum over s of
/// p[w * heads + h, t, s] v[w * heads + h, s, d]) weights[h * lanes + d, n].
KernelGraph buildWindows(int64_t windows, int64_t heads, int64_t tokens, int64_t lanes) {
  KernelGraph graph;
  graph.name = "windows";
  const auto fp16 = ElementType::Fp16;
  const int64_t width = 9, both = windows * heads;
  const unsigned p = addTensor(graph, "p", {both, tokens, tokens}, fp16, 2, TensorRole::Input),
                 v = addTensor(graph, "v", {both, tokens, lanes}, fp16, 1, TensorRole::Input),
                 o = addTensor(graph, "o", {both, tokens, lanes}, fp16, 2);
  std::vector<float> values(size_t(heads * lanes * width));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = float(int(i * 7 % 23) - 11) / 16;
  const unsigned w = addConstant(graph, "w", {heads * lanes, width}, fp16, 0, values),
                 y = addTensor(graph, "y", {windows, tokens, width}, ElementType::Fp32, 2,
                               TensorRole::Output);
  const auto member = [&](unsigned window, unsigned head) {
    return AffineIndex{0, {{window, heads}, {head, 1}}};
  };
  {
    KernelBuilder build(graph);
    const unsigned k = build.loop(windows), h = build.loop(heads), t = build.loop(tokens),
                   d = build.loop(lanes), s = build.loop(tokens, LoopKind::Contracted);
    build.term({p, {member(k, h), at(t), at(s)}, 0}, {v, {member(k, h), at(s), at(d)}, 0},
               both * tokens * tokens * lanes);
    build.store(build.accumulator(), {o, {member(k, h), at(t), at(d)}});
    build.finish("values");
  }
  KernelBuilder build(graph);
  const unsigned k = build.loop(windows), t = build.loop(tokens), n = build.loop(width),
                 h = build.loop(heads, LoopKind::Contracted),
                 d = build.loop(lanes, LoopKind::Contracted);
  build.term({o, {member(k, h), at(t), at(d)}, 0}, {w, {{0, {{h, lanes}, {d, 1}}}, at(n)}, 0},
             both * tokens * lanes * width);
  build.store(build.accumulator(), {y, {at(k), at(t), at(n)}});
  build.finish("projection");
  return graph;
}

TEST(MergeHeads, TakesWindowsAndHeadsApart) {
  const Machine machine = *loadMachine("tsp-v1");
  KernelGraph graph = buildWindows(4, 6, 5, 32);
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  EXPECT_EQ(mergeHeads(graph, machine), 1u);
  EXPECT_EQ(graph.tensors[2].shape, (std::vector<int64_t>{4, 5, 6 * 32}));
  EXPECT_EQ(graph.verify(), "");
  EXPECT_EQ(outputsOf(graph, inputs), before);
}

TEST(MergeHeads, PutsDimensionsTogetherAgainWhereHeadsStayApart) {
  const Machine machine = *loadMachine("tsp-v1");
  KernelGraph graph = buildWindows(4, 6, 5, 24); // a head is no whole column group
  const KernelGraph narrow = graph;
  EXPECT_EQ(mergeHeads(graph, machine), 0u);
  EXPECT_EQ(graph, narrow);
  graph = buildWindows(4, 6, 5, 32);
  graph.kernels[1].terms[0].w.index[0].terms[0].second = 16; // not in the order of the weights
  const KernelGraph other = graph;
  EXPECT_EQ(mergeHeads(graph, machine), 0u);
  EXPECT_EQ(graph, other);
}

TEST(MergeHeads, LeavesHeadsThatFillNoColumnGroupOrHalfAVector) {
  const Machine machine = *loadMachine("tsp-v1");
  for (int64_t lanes : {8, 24, 176}) {
    KernelGraph graph = buildHeads(2, 5, lanes, 9);
    EXPECT_EQ(mergeHeads(graph, machine), 0u) << lanes << " lanes a head";
  }
}

static void streamsBias(bool uniform) {
  Machine machine = *loadMachine("tsp-small");
  KernelGraph graph;
  graph.name = "bias";
  const unsigned x = addTensor(graph, "x", {4, 20}, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned w = addTensor(graph, "w", {6, 20}, ElementType::Fp16, 1, TensorRole::Input);
  std::vector<float> values; // row by row, the same along the lanes
  for (float row : {0.1f, -3.1415927f, 1.0e-3f, 1234.5678f})
    values.insert(values.end(), uniform ? 32 : 6, row);
  const unsigned b = addConstant(graph, "b", {4, uniform ? 32 : 6}, ElementType::Fp32, 1, values);
  graph.tensors[b].uniform = uniform;
  const unsigned y = addTensor(graph, "y", {4, 6}, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned r = build.loop(4), n = build.loop(6), k = build.loop(20, LoopKind::Contracted);
  build.term({x, {at(r), at(k)}, 0}, {w, {at(n), at(k)}, 0}, 480);
  const unsigned bias = build.load({b, {at(r), uniform ? fixed(0) : at(n)}, 0});
  build.store(build.op(AluOp::AddF32, {build.accumulator(), bias}), {y, {at(r), at(n)}});
  build.finish("bias");
  KernelGraph roomy = graph;
  EXPECT_EQ(streamBias(roomy, machine), 0u) << "22 MiB are plenty";
  machine.memory.slices = 1;
  machine.memory.banks = 1;
  machine.memory.rowsPerBank = 8; // 16 vectors in all, which the bias takes
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs).at("y");
  EXPECT_EQ(streamBias(graph, machine), 1u);
  EXPECT_TRUE(graph.kernels[0].operands.empty());
  EXPECT_EQ(graph.kernels[0].terms.size(), 2u);
  EXPECT_EQ(graph.macs(), 480) << "the helper's products are none of the model's";
  const auto after = outputsOf(graph, inputs).at("y");
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); i += 4) {
    float u, v;
    std::memcpy(&u, &before[i], 4);
    std::memcpy(&v, &after[i], 4);
    EXPECT_NEAR(u, v, 4e-7 * std::max(1.0f, std::fabs(u))) << "element " << i / 4;
  }
}

TEST(StreamBias, GivesTheSumOfThePartsWhereMemoryIsShort) {
  for (const bool uniform : {false, true}) {
    SCOPED_TRACE(uniform ? "one vector of each row" : "rows as long as the result's");
    streamsBias(uniform);
  }
}

TEST(UniformRows, LeavesOneVectorOfRowsThatAreTheSameInAllLanes) {
  const Machine machine = *loadMachine("tsp-small"); // vectors of 32 lanes
  KernelGraph graph;
  graph.name = "rows";
  const unsigned x = addTensor(graph, "x", {3, 100}, ElementType::Fp16, 1, TensorRole::Input);
  std::vector<float> rows, others;
  for (float row : {0.5f, -3.0f, 7.0f})
    rows.insert(rows.end(), 100, row);
  others = rows;
  others.back() = 8;
  const unsigned same = addConstant(graph, "same", {3, 100}, ElementType::Fp32, 1, rows);
  const unsigned differs = addConstant(graph, "differs", {3, 100}, ElementType::Fp32, 1, others);
  const auto read = [&](const char *name, unsigned constant, int64_t from) {
    const unsigned y = addTensor(graph, name, {3, 100}, ElementType::Fp32, 1, TensorRole::Output);
    KernelBuilder build(graph);
    const unsigned r = build.loop(3), n = build.loop(100);
    const unsigned a = build.load({x, {at(r), at(n)}, 0});
    AffineIndex row = at(r);
    row.offset = from;
    const unsigned c = build.load({constant, {row, at(n)}, 0});
    build.store(build.op(AluOp::MulF32, {build.op(AluOp::CvtF16F32, {a}), c}), {y, {at(r), at(n)}});
    build.finish(name);
  };
  read("inside", same, 0);
  read("one beyond", same, 1); // the last row is padding, which is no element of the tensor
  read("not the same", differs, 0);
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  EXPECT_EQ(shortenUniformRows(graph, machine), 1u);
  EXPECT_TRUE(graph.verify().empty()) << graph.verify();
  EXPECT_EQ(outputsOf(graph, inputs), before);
  const auto shapeOf = [&](unsigned kernel) {
    return graph.tensors[graph.kernels[kernel].operands[1].tensor].shape;
  };
  EXPECT_EQ(shapeOf(0), (std::vector<int64_t>{3, 32}));
  EXPECT_EQ(shapeOf(1), (std::vector<int64_t>{3, 100}));
  EXPECT_EQ(shapeOf(2), (std::vector<int64_t>{3, 100}));
}

TEST(SplitTables, KeepsTheRowsOfTablesThatAreCutAtAnyRow) {
  for (int64_t rows : {9, 10, 11, 18, 19, 20}) {
    KernelGraph graph = buildEmbedding({.tokens = 70, .rows = rows, .width = 5, .segments = 2});
    const auto inputs = randomInputs(graph);
    const auto before = outputsOf(graph, inputs);
    EXPECT_EQ(splitTables(graph, 10), rows > 10 ? 1u : 0u) << rows << " rows";
    size_t lookups = 0;
    for (const Access &operand : graph.kernels[0].operands) {
      lookups += operand.lookup.has_value();
      EXPECT_LE(graph.tensors[operand.tensor].shape[0], rows > 10 ? 9 : 10);
    }
    EXPECT_EQ(lookups,
              rows <= 10 ? 2u : 1 + size_t(rows + 8) / 9); // parts of 9 rows, and the other
    EXPECT_EQ(outputsOf(graph, inputs), before) << rows << " rows";
  }
}

TEST(SplitWindows, KeepsTheMaximaOfAPaddedPooling) {
  KernelGraph graph = buildMaxPool(24, 13, 11, 3, 2, 1, ElementType::Fp16);
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  const size_t kernels = graph.kernels.size();
  EXPECT_EQ(splitWindows(graph), 1u);
  EXPECT_EQ(graph.kernels.size(), kernels + 1);
  EXPECT_EQ(outputsOf(graph, inputs), before);
}

TEST(SplitWindows, LeavesOtherKernelsAlone) {
  KernelGraph graph = buildConv({});
  EXPECT_EQ(splitWindows(graph), 0u);
}

TEST(ClipRunning, CutsTheZerosThatASumReadsOutside) {
  KernelGraph graph = buildGlobalReduction(AluOp::AddF32, 20, 5, 7, 2);
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  EXPECT_EQ(clipRunning(graph), 1u);
  EXPECT_EQ(graph.kernels[0].loops[1].extent, 5);
  EXPECT_EQ(outputsOf(graph, inputs), before);
}

TEST(ClipRunning, KeepsWhatAMaximumReadsOutside) {
  KernelGraph graph =
      buildGlobalReduction(AluOp::MaxF32, 20, 5, 7, 2); // reads zeros, which may be the maximum
  EXPECT_EQ(clipRunning(graph), 0u);
}

TEST(SplitRunning, KeepsAMaximumOverRowsThatDoNotStepEvenly) {
  KernelGraph graph = buildGlobalReduction(AluOp::MaxF32, 20, 5, 7, 0); // 7 of 8 columns
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  EXPECT_EQ(splitRunning(graph), 1u);
  EXPECT_EQ(outputsOf(graph, inputs), before);
}

TEST(ClipRunning, TakesTheOnlyRowOfAReductionAsItIs) {
  KernelGraph graph = buildGlobalReduction(AluOp::MaxF32, 20, 1, 1, 0);
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  clipRunning(graph);
  for (const Node &node : graph.kernels[0].nodes)
    EXPECT_NE(node.kind, Node::Kind::Reduce);
  for (const Loop &loop : graph.kernels[0].loops)
    EXPECT_EQ(loop.kind, LoopKind::Parallel);
  EXPECT_EQ(outputsOf(graph, inputs), before);
}

/// y[f] = the sum over images, rows and columns of a padded 2 x 2 convolution.
KernelGraph buildSumOfConvolution() {
  KernelGraph graph;
  graph.name = "sum";
  const auto fp16 = ElementType::Fp16;
  const unsigned x = addTensor(graph, "x", {4, 3, 5, 7}, fp16, 1, TensorRole::Input);
  const unsigned w =
      addConstant(graph, "w", {2, 3, 2, 2}, fp16, 1, randomValues(2 * 3 * 2 * 2, 3, 0.1f));
  const unsigned y = addTensor(graph, "y", {2}, ElementType::Fp32, 0, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned f = build.loop(2), image = build.loop(4, LoopKind::Running),
                 r = build.loop(6, LoopKind::Running), s = build.loop(8, LoopKind::Running),
                 c = build.loop(3, LoopKind::Contracted), dy = build.loop(2, LoopKind::Contracted),
                 dx = build.loop(2, LoopKind::Contracted);
  build.term({x, {at(image), at(c), window(r, 1, dy, 1, -1), window(s, 1, dx, 1, -1)}, 0},
             {w, {at(f), at(c), at(dy), at(dx)}, 0}, 4 * 2 * 6 * 8 * 12);
  build.store(build.reduce(AluOp::AddF32, build.accumulator()), {y, {at(f)}});
  build.finish("sum");
  return graph;
}

/// y[f] = the reduction over `steps` rows of a product.
static KernelGraph buildReductionOfProduct(AluOp op, int64_t steps) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {steps, 3}, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned w =
      addConstant(graph, "w", {4, 3}, ElementType::Fp16, 1, randomValues(12, 3, 0.1f));
  const unsigned y = addTensor(graph, "y", {4}, ElementType::Fp32, 0, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned f = build.loop(4), r = build.loop(steps, LoopKind::Running),
                 c = build.loop(3, LoopKind::Contracted);
  build.term({x, {at(r), at(c)}, 0}, {w, {at(f), at(c)}, 0}, 4 * 3 * steps);
  build.store(build.reduce(op, build.accumulator()), {y, {at(f)}});
  build.finish("product");
  return graph;
}

/// The most steps of a running loop over a contraction's sums.
static int64_t mostSteps(const KernelGraph &graph) {
  int64_t most = 0;
  for (const Kernel &kernel : graph.kernels)
    for (const Loop &loop : kernel.loops)
      if (!kernel.terms.empty() && loop.kind == LoopKind::Running)
        most = std::max(most, loop.extent);
  return most;
}

TEST(SplitRunning, LeavesNoMoreSumsWaitingThanThereIsRoomFor) {
  for (const AluOp op : {AluOp::MaxF32, AluOp::AddF32})
    for (const int64_t steps :
         {16, 17, 20, 23, 33, 48, 64}) { // 23 has no divisors: a maximum's blocks overlap
      KernelGraph graph = buildReductionOfProduct(op, steps);
      const auto inputs = randomInputs(graph);
      const auto before = outputsOf(graph, inputs);
      EXPECT_EQ(splitRunning(graph, 16), steps > 16 ? 1u : 0u) << steps;
      EXPECT_LE(mostSteps(graph), 16) << steps;
      ASSERT_EQ(graph.verify(), "");
      const auto after = outputsOf(graph, inputs);
      float x[4], y[4];
      std::memcpy(x, before.at("y").data(), sizeof x);
      std::memcpy(y, after.at("y").data(), sizeof y);
      for (int i = 0; i < 4; ++i) // another order of additions
        EXPECT_NEAR(x[i], y[i], op == AluOp::MaxF32 ? 0 : 1e-5) << steps;
    }
}

TEST(SplitRunning, SumsWhatAContractionGivesOneLoopAfterTheOther) {
  KernelGraph graph = buildSumOfConvolution();
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  EXPECT_EQ(splitRunning(graph), 2u);
  for (const Kernel &kernel : graph.kernels)
    EXPECT_LE(std::count_if(kernel.loops.begin(), kernel.loops.end(),
                            [](const Loop &l) { return l.kind == LoopKind::Running; }),
              1);
  const auto after = outputsOf(graph, inputs);
  float x[2], y[2];
  std::memcpy(x, before.at("y").data(), sizeof x);
  std::memcpy(y, after.at("y").data(), sizeof y);
  for (int i : {0, 1}) // another order of additions
    EXPECT_NEAR(x[i], y[i], 1e-4f * std::abs(x[i]) + 1e-4f);
}

TEST(RepeatedSums, CountsAContractedLoopThatNoTermUses) {
  KernelGraph graph = buildMatmul({.m = 5, .k = 40, .n = 50, .bias = false});
  const auto inputs = randomInputs(graph);
  const auto once = outputsOf(graph, inputs);
  graph.kernels[0].loops.push_back({4, LoopKind::Contracted});
  EXPECT_EQ(multiplyRepeatedSums(graph), 1u);
  const auto repeated = outputsOf(graph, inputs);
  const TensorBytes &x = once.at("y"), &y = repeated.at("y");
  for (size_t i = 0; i < x.size(); i += 2)
    EXPECT_EQ(decode(ElementType::Fp16, y[i] | uint32_t(y[i + 1]) << 8),
              4 * decode(ElementType::Fp16, x[i] | uint32_t(x[i + 1]) << 8));
}

/// x tanh(log(1 + e^x)): eleven operations, of which the last takes x itself.
KernelGraph buildMish() {
  KernelGraph graph;
  graph.name = "mish";
  const unsigned x = addTensor(graph, "x", {50, 40}, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned y = addTensor(graph, "y", {50, 40}, ElementType::Fp16, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned r = build.loop(50), l = build.loop(40);
  const unsigned value = build.load({x, {at(r), at(l)}, 0});
  const unsigned power =
      build.op(AluOp::ExpF32, {build.op(AluOp::NegF32, {build.op(AluOp::AbsF32, {value})})});
  const unsigned log =
      build.op(AluOp::LogF32, {build.op(AluOp::AddF32, {power, build.constant(1)})});
  const unsigned soft =
      build.op(AluOp::AddF32, {build.op(AluOp::MaxF32, {value, build.constant(0)}), log});
  build.store(build.op(AluOp::MulF32, {value, build.op(AluOp::TanhF32, {soft})}),
              {y, {at(r), at(l)}});
  build.finish("mish");
  return graph;
}

/// So many multiplications, one after another.
KernelGraph buildChain(unsigned operations) {
  KernelGraph graph;
  graph.name = "chain";
  const unsigned x = addTensor(graph, "x", {500, 40}, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned y = addTensor(graph, "y", {500, 40}, ElementType::Fp16, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned r = build.loop(500), l = build.loop(40);
  unsigned value = build.load({x, {at(r), at(l)}, 0});
  while (build.kernel().nodes.size() < 2 * operations)
    value = build.op(AluOp::MulF32, {value, build.constant(float(build.kernel().nodes.size()))});
  build.store(value, {y, {at(r), at(l)}});
  build.finish("chain");
  return graph;
}

TEST(EpiloguePlan, BurstsAreShortWhereLongOnesLeaveAlusIdle) {
  const Machine machine = *loadMachine("tsp-v1");
  const auto rowsOf = [&](unsigned operations, int64_t step, double wanted) {
    const KernelGraph graph = buildChain(operations);
    return rowsOfBurst(graph.kernels[0], graph, machine, machine.vxm.alus, step, wanted);
  };
  unsigned some = 0;
  for (unsigned operations = 2; operations < 16; ++operations) {
    const KernelGraph graph = buildChain(operations);
    const unsigned alus = epilogueNeeds(graph.kernels[0], graph, machine).alus;
    const std::optional<int64_t> rows = rowsOf(operations, 1, 4);
    if (machine.vxm.alus % alus == 0) { // long bursts side by side take all
      EXPECT_FALSE(rows) << operations;
    }
    if (alus < 9 || alus > 13)
      continue;
    ++some;
    ASSERT_TRUE(rows) << operations;
    // A chain of all ALUs holds 48 rows; with a third more, bursts overlap little less.
    EXPECT_LE(*rows, 4 * int64_t(machine.vxm.alus)) << operations;
    EXPECT_GE(*rows, 16) << operations;
    EXPECT_EQ(rowsOf(operations, 7, 4).value_or(1) % 7, 0) << operations;
    EXPECT_FALSE(rowsOf(operations, 1, 1)) << operations; // a row a cycle is all that comes
  }
  EXPECT_GE(some, 4u);
}

TEST(SplitEpilogues, CutsWhereValuesThatWaitNeedMoreAlusThanThereAre) {
  const Machine machine = *loadMachine("tsp-v1");
  KernelGraph graph = buildMish();
  ASSERT_GT(epilogueNeeds(graph.kernels[0], graph, machine).alus, machine.vxm.alus);
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  EXPECT_EQ(splitEpilogues(graph, 12, machine), 1u);
  for (const Kernel &kernel : graph.kernels)
    EXPECT_TRUE(epilogueNeeds(kernel, graph, machine).fit(machine));
  EXPECT_EQ(outputsOf(graph, inputs), before);
}

TEST(SplitEpilogues, ScalesAnOperandAgainRatherThanLetItWaitForItsGate) {
  // A quantised hard swish, masked: x / 8 waits for a gate of seven operations. Of the first twelve
  // operations, whose last value alone goes on, the machine has not enough ALUs either.
  const Machine machine = *loadMachine("tsp-v1");
  KernelGraph graph;
  graph.name = "swish";
  const unsigned x = addTensor(graph, "x", {9, 64}, ElementType::Int8, 1, TensorRole::Input);
  const unsigned y = addTensor(graph, "y", {9, 64}, ElementType::Int8, 1, TensorRole::Output);
  const unsigned inside = addSplat(graph, "inside", {9, 64}, ElementType::UInt8, 1, 1);
  KernelBuilder build(graph);
  const unsigned row = build.loop(9), lane = build.loop(64);
  const std::vector<AffineIndex> point{at(row), at(lane)};
  const unsigned wide = build.load({x, point});
  const unsigned scaled = build.op(AluOp::MulF32, {wide, build.constant(0.125f)});
  unsigned gate = build.op(AluOp::MulF32, {wide, build.constant(2.5f)});
  gate = build.op(AluOp::AddF32, {gate, build.constant(63)});
  gate = build.op(AluOp::MaxF32, {gate, build.constant(0)});
  gate = build.op(AluOp::MinF32, {gate, build.constant(127)});
  gate = build.op(AluOp::CvtI8F32, {build.op(AluOp::CvtF32I8, {gate})});
  gate = build.op(AluOp::MulF32, {gate, build.constant(1.0f / 127)});
  unsigned value = build.op(AluOp::MulF32, {scaled, gate});
  value = build.op(AluOp::CvtF32I8, {build.op(AluOp::MulF32, {value, build.constant(9)})});
  value = build.op(AluOp::SelectF32, {build.operand({inside, point}), value, build.immediate(0)});
  build.storeBits(value, {y, point});
  build.finish("swish");
  ASSERT_GT(epilogueNeeds(graph.kernels[0], graph, machine).alus, machine.vxm.alus);
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  EXPECT_EQ(splitEpilogues(graph, 12, machine), 1u);
  for (const Kernel &kernel : graph.kernels)
    EXPECT_TRUE(epilogueNeeds(kernel, graph, machine).fit(machine)) << kernel.name;
  EXPECT_EQ(outputsOf(graph, inputs), before);
}

TEST(SplitEpilogues, KeepsValuesWhereOneValueCrosses) {
  KernelGraph graph = buildMatmul({.m = 5, .k = 40, .n = 50, .relu = true}); // add, max, cvt
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  EXPECT_EQ(splitEpilogues(graph, 2), 1u);
  EXPECT_EQ(outputsOf(graph, inputs), before);
}

TEST(SplitResults, GivesEachResultAKernelAndKeepsValues) {
  KernelGraph graph = buildMatmul({.m = 5, .k = 40, .n = 50, .relu = true});
  Kernel &kernel = graph.kernels.front();
  const Access &first = kernel.results.front().access;
  const unsigned sums =
      addTensor(graph, "sums", graph.tensors[first.tensor].shape, ElementType::Fp32,
                graph.tensors[first.tensor].laneDim, TensorRole::Output);
  graph.tensors[sums].hostName = "sums";
  graph.tensors[sums].hostType = "float";
  graph.tensors[sums].hostShape = graph.tensors[sums].shape;
  const auto accumulator =
      std::find_if(kernel.nodes.begin(), kernel.nodes.end(),
                   [](const Node &n) { return n.kind == Node::Kind::Accumulator; });
  ASSERT_NE(accumulator, kernel.nodes.end());
  kernel.results.push_back({unsigned(accumulator - kernel.nodes.begin()), {sums, first.index, 0}});
  ASSERT_EQ(graph.verify(), "");
  const int64_t macs = graph.macs();
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  KernelGraph few = graph; // ALUs
  Machine machine = tsp();
  EXPECT_EQ(splitResults(few, machine), 0u);
  machine.vxm.alus = 1;
  EXPECT_EQ(splitResults(few, machine), 1u);
  EXPECT_EQ(outputsOf(few, inputs), before);
  EXPECT_EQ(splitResults(graph), 1u);
  EXPECT_EQ(graph.verify(), "");
  for (const Kernel &one : graph.kernels)
    EXPECT_EQ(one.results.size(), 1u);
  EXPECT_LT(graph.kernels.back().nodes.size(), graph.kernels.front().nodes.size());
  EXPECT_EQ(graph.macs(), macs);
  EXPECT_EQ(outputsOf(graph, inputs), before);
  EXPECT_EQ(splitResults(graph), 0u);
}

} // namespace
