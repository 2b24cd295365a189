// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lanes that two loops step through, chains of kernels that are done part by part, constants of
// half the bytes: the same values, and what is meant to be less is less.
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/JoinLanes.h"
#include "compiler/Forms/Rewritings/NarrowConstants.h"
#include "compiler/Forms/Rewritings/SplitBatches.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"
#include "compiler/Forms/Rewritings/SplitRunning.h"

#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"

#include "tests/compiler/Forms/Rewritings/Tsp.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace millrace;
using namespace millrace::forms;

namespace {

std::vector<float> numbers(size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(float(int(i * 37 % 64) - 32) / 16);
  return values;
}

std::vector<float> outputOf(const KernelGraph &graph) {
  EXPECT_EQ(graph.verify(), "");
  const auto values = evaluate(graph, randomInputs(graph));
  EXPECT_TRUE(values);
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (graph.tensors[t].role == TensorRole::Output) {
      std::vector<float> output;
      const ElementType type = graph.tensors[t].type;
      const unsigned bytes = byteWidth(type);
      for (size_t i = 0; i + bytes <= values->at(t).size(); i += bytes) {
        uint32_t bits = 0;
        std::memcpy(&bits, &values->at(t)[i], bytes);
        output.push_back(decode(type, bits));
      }
      return output;
    }
  return {};
}

/// y[p, h, w] = sum over c of v[p, c] x[h, w, c], installed from an image's rows; the lanes are
/// pixels, of both dimensions or of the last, which a map then brings together.
KernelGraph tokens(int64_t high, int64_t wide, bool isApart) {
  constexpr int64_t kRows = 5, kChannels = 32;
  KernelGraph graph;
  const unsigned x =
      addTensor(graph, "x", {high, wide, kChannels}, ElementType::Fp16, 2, TensorRole::Input);
  const unsigned image = addTensor(graph, "image", {high, wide, kChannels}, ElementType::Fp16, 2);
  const unsigned v =
      addConstant(graph, "v", {kRows, kChannels}, ElementType::Fp16, 1, numbers(kRows * kChannels));
  const unsigned y =
      addTensor(graph, "y", {kRows, high * wide}, ElementType::Fp16, 1, TensorRole::Output);
  const unsigned turned =
      isApart ? addTensor(graph, "turned", {kRows, high, wide}, ElementType::Fp16, 2) : 0;
  KernelBuilder copy(graph);
  const unsigned i = copy.loop(high), j = copy.loop(wide), c = copy.loop(kChannels);
  copy.storeBits(copy.operand({x, {at(i), at(j), at(c)}}), {image, {at(i), at(j), at(c)}});
  copy.finish("image");
  KernelBuilder build(graph);
  const unsigned p = build.loop(kRows), h = build.loop(high), w = build.loop(wide),
                 k = build.loop(kChannels, LoopKind::Contracted);
  build.term({v, {at(p), at(k)}}, {image, {at(h), at(w), at(k)}}, kRows * kChannels * high * wide);
  const AffineIndex pixel{0, {{h, wide}, {w, 1}}};
  const unsigned bias = addConstant(graph, "bias", {kRows, wide}, ElementType::Fp32, 1,
                                    numbers(kRows * wide)); // that only one of the loops moves
  const unsigned sum =
      build.op(AluOp::AddF32, {build.accumulator(), build.load({bias, {at(p), at(w)}})});
  if (isApart)
    build.store(sum, {turned, {at(p), at(h), at(w)}});
  else
    build.store(sum, {y, {at(p), pixel}});
  build.finish("sum");
  if (isApart) {
    KernelBuilder map(graph);
    const unsigned q = map.loop(kRows), a = map.loop(high), b = map.loop(wide);
    map.store(map.op(AluOp::AddF32, {map.load({turned, {at(q), at(a), at(b)}}), map.constant(1)}),
              {y, {at(q), AffineIndex{0, {{a, wide}, {b, 1}}}}});
    map.finish("map");
  }
  return graph;
}

TEST(JoinLanes, PixelsOfAnImageBecomeOneRowOfLanes) {
  for (const bool isApart : {false, true}) {
    KernelGraph graph = tokens(6, 7, isApart);
    const std::vector<float> before = outputOf(graph);
    EXPECT_EQ(joinLanes(graph, tsp()), isApart ? 2u : 1u);
    EXPECT_EQ(outputOf(graph), before);
    for (const Kernel &kernel : graph.kernels)
      for (const Result &r : kernel.results) {
        const Tensor &tensor = graph.tensors[r.access.tensor];
        const AffineIndex &lanes = r.access.index[tensor.laneDim];
        EXPECT_TRUE(onlyLoop(kernel, lanes)) << kernel.name;
      }
    EXPECT_EQ(graph.macs(), 5 * 32 * 42);
    KernelGraph again = graph;
    EXPECT_EQ(joinLanes(again, tsp()), 0u);
  }
}

TEST(JoinLanes, LeavesLoopsThatFillRowsAlone) {
  KernelGraph graph = tokens(2, 200, false); // two tiles anyway
  const KernelGraph before = graph;
  EXPECT_EQ(joinLanes(graph, tsp()), 0u);
  EXPECT_EQ(graph, before);
}

/// Attention of `batch` windows: queries and keys of one input, scores, exponentials, sums.
KernelGraph windows(int64_t batch, int64_t count) {
  constexpr int64_t kWidth = 32;
  KernelGraph graph;
  const auto three = [&](const char *name, int64_t lanes, TensorRole role) {
    return addTensor(graph, name, {batch, count, lanes}, ElementType::Fp16, 2, role);
  };
  const unsigned x = three("x", kWidth, TensorRole::Input),
                 q = three("q", kWidth, TensorRole::Intermediate),
                 s = three("s", count, TensorRole::Intermediate),
                 e = three("e", count, TensorRole::Intermediate),
                 y = three("y", count, TensorRole::Output);
  auto map = [&](unsigned from, unsigned to, int64_t lanes, float scale, const char *name) {
    KernelBuilder build(graph);
    const unsigned b = build.loop(batch), r = build.loop(count), l = build.loop(lanes);
    build.store(
        build.op(AluOp::MulF32, {build.load({from, {at(b), at(r), at(l)}}), build.constant(scale)}),
        {to, {at(b), at(r), at(l)}});
    build.finish(name);
  };
  map(x, q, kWidth, 0.25f, "queries");
  KernelBuilder build(graph);
  const unsigned b = build.loop(batch), r = build.loop(count), l = build.loop(count),
                 k = build.loop(kWidth, LoopKind::Contracted);
  build.term({q, {at(b), at(r), at(k)}}, {q, {at(b), at(l), at(k)}},
             batch * count * count * kWidth);
  build.store(build.accumulator(), {s, {at(b), at(r), at(l)}});
  build.finish("scores");
  map(s, e, count, 0.5f, "halves");
  map(e, y, count, 3, "result");
  return graph;
}

TEST(SplitBatches, AChainOfWindowsTakesTheRowsOfItsParts) {
  Machine machine = tsp();
  machine.memory.rowsPerBank = 64; // the windows are no small part of it
  KernelGraph graph = windows(8, 40);
  const std::vector<float> before = outputOf(graph);
  const int64_t peak = peakRows(graph, machine), macs = graph.macs();
  const size_t kernels = graph.kernels.size();
  EXPECT_GT(splitBatches(graph, machine, peak / 2), 0u);
  EXPECT_EQ(outputOf(graph), before);
  // The result is whole at the end.
  EXPECT_LT(peakRows(graph, machine), peak);
  EXPECT_GT(graph.kernels.size(), kernels);
  EXPECT_EQ(graph.macs(), macs);
}

TEST(SplitBatches, NothingIsDoneWhereThereIsRoom) {
  KernelGraph graph = windows(8, 40);
  const KernelGraph before = graph;
  EXPECT_EQ(splitBatches(graph, tsp(), peakRows(graph, tsp())), 0u);
  EXPECT_EQ(graph, before);
}

TEST(NarrowConstants, PositionsAndFactorsStay) {
  for (const bool isPosition : {true, false}) {
    KernelGraph graph;
    const unsigned x = addTensor(graph, "x", {5, 8}, ElementType::Fp16, 1, TensorRole::Input);
    const unsigned y = addTensor(graph, "y", {5, 8}, ElementType::Fp32, 1, TensorRole::Output);
    std::vector<float> values = numbers(40);
    if (isPosition)
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = float(2039 + i); // 2049 is none of fp16
    const unsigned table = addConstant(graph, "table", {5, 8}, ElementType::Fp32, 1, values);
    KernelBuilder build(graph);
    const unsigned r = build.loop(5), l = build.loop(8);
    build.store(build.op(isPosition ? AluOp::AddF32 : AluOp::MulF32,
                         {build.load({x, {at(r), at(l)}}), build.load({table, {at(r), at(l)}})}),
                {y, {at(r), at(l)}});
    build.finish("map");
    EXPECT_TRUE(narrowConstants(graph, ElementType::Fp16).empty());
  }
}

TEST(NarrowConstants, RowsOfABiasTakeHalfTheBytesAndMasksOfTheLowestNumberStay) {
  for (const float largest : {1.f, -3.4e38f}) {
    KernelGraph graph;
    const unsigned x = addTensor(graph, "x", {5, 8}, ElementType::Fp16, 1, TensorRole::Input);
    const unsigned y = addTensor(graph, "y", {5, 8}, ElementType::Fp32, 1, TensorRole::Output);
    std::vector<float> values = numbers(40);
    for (float &value : values)
      value = value / 3 + 1;
    values[17] = largest;
    const unsigned bias = addConstant(graph, "bias", {5, 8}, ElementType::Fp32, 1, values);
    const unsigned one = addConstant(graph, "one", {8}, ElementType::Fp32, 0, numbers(8));
    KernelBuilder build(graph);
    const unsigned r = build.loop(5), l = build.loop(8);
    const unsigned sum = build.op(
        AluOp::AddF32, {build.load({x, {at(r), at(l)}}), build.load({bias, {at(r), at(l)}})});
    build.store(build.op(AluOp::MulF32, {sum, build.load({one, {at(l)}})}), {y, {at(r), at(l)}});
    build.finish("add");
    const std::vector<float> before = outputOf(graph);
    const std::vector<std::string> names = narrowConstants(graph, ElementType::Fp16);
    const std::vector<float> after = outputOf(graph);
    if (largest < 0) {
      EXPECT_TRUE(names.empty());
      EXPECT_EQ(after, before);
      continue;
    }
    EXPECT_EQ(names, std::vector<std::string>{"bias"});
    EXPECT_EQ(graph.tensors[bias].type, ElementType::Fp16);
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < after.size(); ++i)
      EXPECT_NEAR(after[i], before[i], 4e-3f);
  }
}

/// A pooling beside a sum of products: the sum cannot wait for the window's end, and is stored; the
/// window is reduced by who adds both.
TEST(SplitEpilogues, AWindowBesideASumStaysWithWhoReducesIt) {
  constexpr int64_t kSide = 40, kChannels = 42;
  KernelGraph graph;
  graph.name = "beside";
  const std::vector<int64_t> image{kSide, kSide, kChannels};
  const unsigned x = addTensor(graph, "x", image, ElementType::Fp16, 2, TensorRole::Input);
  const unsigned y = addTensor(graph, "y", image, ElementType::Fp32, 2, TensorRole::Output);
  const unsigned w = addConstant(graph, "w", {kChannels, kChannels}, ElementType::Fp16, 1,
                                 numbers(kChannels * kChannels));
  KernelBuilder build(graph);
  const unsigned r = build.loop(kSide), c = build.loop(kSide), l = build.loop(kChannels),
                 i = build.loop(3, LoopKind::Running), j = build.loop(3, LoopKind::Running),
                 k = build.loop(kChannels, LoopKind::Contracted);
  const unsigned pooled = build.reduce(
      AluOp::AddF32, build.load({x, {window(r, 1, i, 1, -1), window(c, 1, j, 1, -1), at(l)}, 0}));
  build.term({x, {at(r), at(c), at(k)}, 0}, {w, {at(l), at(k)}, 0}, 0);
  const unsigned both = build.op(
      AluOp::AddF32, {build.op(AluOp::MulF32, {pooled, build.constant(1.0f / 9)}),
                      build.accumulator()});
  build.store(build.op(AluOp::MaxF32, {both, build.constant(0)}), {y, {at(r), at(c), at(l)}, 0});
  build.finish("pool");
  const std::vector<float> before = outputOf(graph);
  EXPECT_EQ(splitEpilogues(graph, 12, tsp()), 1u);
  const Kernel &first = graph.kernels[0], &second = graph.kernels[1];
  EXPECT_EQ(first.terms.size(), 1u);
  EXPECT_TRUE(second.terms.empty());
  for (const Loop &loop : first.loops)
    EXPECT_NE(loop.kind, LoopKind::Running);
  EXPECT_EQ(outputOf(graph), before);
  EXPECT_EQ(splitRunning(graph, 1024), 1u) << "a padded window, one dimension after the other";
  const std::vector<float> after = outputOf(graph);
  for (size_t n = 0; n < after.size(); ++n)
    EXPECT_NEAR(after[n], before[n], 1e-3f);
}

} // namespace
