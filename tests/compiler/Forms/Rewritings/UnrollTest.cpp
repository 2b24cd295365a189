// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Do windows over single channels become maps of their taps, and operations on constants
// constants, with the same values?
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/AlignRanks.h"
#include "compiler/Forms/Rewritings/FoldOperands.h"
#include "compiler/Forms/Rewritings/HoistRows.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"
#include "compiler/Forms/Rewritings/SplitSums.h"
#include "compiler/Forms/Rewritings/UnrollRunning.h"

#include "tests/compiler/Forms/Rewritings/Tsp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

using namespace millrace;
using namespace millrace::forms;

namespace {

unsigned count(const Kernel &kernel, Node::Kind kind) {
  return unsigned(std::count_if(kernel.nodes.begin(), kernel.nodes.end(),
                                [&](const Node &n) { return n.kind == kind; }));
}

/// y[c, h, w] = sum over taps of x * w[c, tap] + b[c], weights and bias dequantised in the kernel.
KernelGraph depthwise(int64_t size, int64_t taps, int64_t stride, int64_t dilation) {
  KernelGraph graph;
  graph.name = "depthwise";
  const int64_t channels = 24, reach = dilation * (taps - 1), out = (size - 1) / stride + 1;
  const unsigned x =
      addTensor(graph, "x", {1, channels, size, size}, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned y =
      addTensor(graph, "y", {1, channels, out, out}, ElementType::Fp32, 1, TensorRole::Output);
  const unsigned w = addConstant(graph, "w", {channels, taps, taps}, ElementType::Int8, 0,
                                 randomValues(size_t(channels * taps * taps), 3, 100));
  const unsigned scale = addConstant(graph, "scale", {channels}, ElementType::Fp32, 0,
                                     randomValues(size_t(channels), 4, 0.02f));
  KernelBuilder build(graph);
  const unsigned c = build.loop(channels), h = build.loop(out), v = build.loop(out),
                 ky = build.loop(taps, LoopKind::Running), kx = build.loop(taps, LoopKind::Running);
  const unsigned value = build.load({x,
                                     {fixed(0), at(c), window(h, stride, ky, dilation, -reach / 2),
                                      window(v, stride, kx, dilation, -reach / 2)}});
  const unsigned weight = build.op(
      AluOp::CvtI32F32, {build.op(AluOp::CvtI8I32, {build.operand({w, {at(c), at(ky), at(kx)}})})});
  const unsigned scaled = build.op(AluOp::MulF32, {weight, build.operand({scale, {at(c)}})});
  build.store(build.op(AluOp::MaxF32,
                       {build.reduce(AluOp::AddF32, build.op(AluOp::MulF32, {value, scaled})),
                        build.constant(0)}),
              {y, {fixed(0), at(c), at(h), at(v)}});
  build.finish("depthwise");
  return graph;
}

std::vector<float> outputOf(const KernelGraph &graph) {
  EXPECT_EQ(graph.verify(), "");
  Expected<std::vector<TensorBytes>> all = evaluate(graph, randomInputs(graph));
  EXPECT_TRUE(all) << (all ? "" : all.error());
  const auto output = std::find_if(graph.tensors.begin(), graph.tensors.end(), [](const Tensor &t) {
    return t.role == TensorRole::Output; // of fp32
  });
  const TensorBytes &bytes = (*all)[size_t(output - graph.tensors.begin())];
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(FoldOperands, ComputesDequantisedWeightsOnce) {
  KernelGraph graph = depthwise(9, 3, 1, 1);
  const std::vector<float> before = outputOf(graph);
  EXPECT_EQ(foldOperands(graph), 1u);
  const Kernel &kernel = graph.kernels[0];
  ASSERT_EQ(kernel.operands.size(), 2u);
  const Tensor &weights = graph.tensors[kernel.operands[1].tensor];
  EXPECT_EQ(weights.type, ElementType::Fp32);
  EXPECT_EQ(weights.shape, (std::vector<int64_t>{3, 3, 24}));
  EXPECT_EQ(count(kernel, Node::Kind::Op), 3u); // widened, multiplied, clamped
  EXPECT_EQ(outputOf(graph), before);           // the same bits
}

TEST(SplitEpilogues, CutsWhatWritesRowsThatAReshapeMerged) {
  KernelGraph graph = depthwise(9, 3, 1, 1);
  const std::vector<float> before = outputOf(graph);
  Access &to = graph.kernels[0].results[0].access;
  graph.tensors[to.tensor].shape = {1, 24, 81};
  graph.tensors[to.tensor].hostShape.clear();
  AffineIndex row = to.index[2];
  row.terms = {{row.terms[0].first, 9}, {to.index[3].terms[0].first, 1}};
  to.index = {to.index[0], to.index[1], row};
  foldOperands(graph);
  EXPECT_EQ(unrollRunning(graph, tsp()), 1u);
  EXPECT_GT(splitEpilogues(graph, 12, tsp()), 0u);
  for (const Kernel &kernel : graph.kernels)
    EXPECT_TRUE(epilogueNeeds(kernel, graph, tsp()).fit(tsp())) << kernel.name;
  const std::vector<float> after = outputOf(graph);
  ASSERT_EQ(after.size(), before.size());
  for (size_t n = 0; n < after.size(); ++n)
    EXPECT_NEAR(after[n], before[n], 1e-4f * (1 + std::fabs(before[n])));
}

/// y = act(sum over 3 x 3 taps of x * w + b), in fp16.
KernelGraph biasedWindow(bool isGated) {
  KernelGraph graph;
  graph.name = "window";
  const unsigned x = addTensor(graph, "x", {18, 18, 320}, ElementType::Fp16, 2, TensorRole::Input),
                 y = addTensor(graph, "y", {16, 16, 320}, ElementType::Fp16, 2);
  KernelBuilder build(graph);
  const unsigned h = build.loop(16), v = build.loop(16), c = build.loop(320);
  std::optional<unsigned> sum;
  for (int64_t tap = 0; tap < 9; ++tap) {
    const unsigned w = addConstant(graph, "w" + std::to_string(tap), {320}, ElementType::Fp32, 0,
                                   randomValues(320, unsigned(tap), 1));
    const unsigned product =
        build.op(AluOp::MulF32, {build.load({x, {at(h, 1, tap / 3), at(v, 1, tap % 3), at(c)}, 0}),
                                 build.operand({w, {at(c)}, 0})});
    sum = sum ? build.op(AluOp::AddF32, {*sum, product}) : product;
  }
  const unsigned b = addConstant(graph, "b", {320}, ElementType::Fp32, 0, randomValues(320, 20, 1));
  sum = build.op(AluOp::AddF32, {*sum, build.operand({b, {at(c)}, 0})});
  sum = isGated ? build.op(AluOp::MulF32, {*sum, build.op(AluOp::SigmoidF32, {*sum})})
                : build.op(AluOp::ReluF32, {*sum});
  build.store(*sum, {y, {at(h), at(v), at(c)}, 0});
  build.finish("window");
  const unsigned out =
      addTensor(graph, "out", {16, 16, 320}, ElementType::Fp32, 2, TensorRole::Output);
  KernelBuilder copy(graph);
  const std::vector<AffineIndex> all{at(copy.loop(16)), at(copy.loop(16)), at(copy.loop(320))};
  copy.store(copy.load({y, all, 0}), {out, all, 0});
  copy.finish("copy");
  return graph;
}

TEST(SplitEpilogues, AddsABiasToTheFirstProductWhereThatLeavesFewerParts) {
  for (const bool isGated : {true, false}) { // 17 ALUs behind five taps, or 15
    KernelGraph graph = biasedWindow(isGated);
    const std::vector<float> before = outputOf(graph);
    EXPECT_EQ(splitEpilogues(graph, 12, tsp()), 1u) << isGated;
    const Kernel &first = graph.kernels[0];
    EXPECT_EQ(std::any_of(first.operands.begin(), first.operands.end(),
                          [&](const Access &a) { return graph.tensors[a.tensor].name == "b"; }),
              isGated);
    const std::vector<float> after = outputOf(graph);
    ASSERT_EQ(after.size(), before.size());
    for (size_t n = 0; n < after.size(); ++n)
      EXPECT_NEAR(after[n], before[n], 2e-3f * (1 + std::fabs(before[n])));
  }
}

TEST(FoldOperands, LeavesWhatDiffersFromRowToRow) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {5, 8}, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned y = addTensor(graph, "y", {5, 8}, ElementType::Fp32, 1, TensorRole::Output);
  const unsigned table =
      addConstant(graph, "table", {5, 8}, ElementType::Fp16, 1, randomValues(40, 1, 1));
  KernelBuilder build(graph);
  const unsigned r = build.loop(5), l = build.loop(8);
  build.store(build.op(AluOp::AddF32,
                       {build.load({x, {at(r), at(l)}}), build.load({table, {at(r), at(l)}})}),
              {y, {at(r), at(l)}});
  build.finish("add");
  EXPECT_EQ(foldOperands(graph), 0u);
}

TEST(FoldOperands, MakesAMaskOfRowsOnceInNoMoreBytes) {
  for (const bool isHalf : {true, false}) {
    KernelGraph graph;
    const unsigned x = addTensor(graph, "x", {5, 8}, ElementType::Fp32, 1, TensorRole::Input);
    const unsigned y = addTensor(graph, "y", {5, 8}, ElementType::Fp32, 1, TensorRole::Output);
    std::vector<float> regions;
    for (int i = 0; i < 40; ++i)
      regions.push_back(float(i * 7 % 3 - 1));
    const unsigned table = addConstant(graph, "regions", {5, 8}, ElementType::Fp32, 1, regions);
    KernelBuilder build(graph);
    const unsigned r = build.loop(5), l = build.loop(8);
    const unsigned region = build.load({table, {at(r), at(l)}});
    const unsigned mask =
        build.op(AluOp::SelectF32, {build.op(AluOp::EqF32, {region, build.constant(0)}),
                                    build.constant(isHalf ? -100 : -100.1f), region});
    build.store(build.op(AluOp::AddF32, {build.load({x, {at(r), at(l)}}), mask}),
                {y, {at(r), at(l)}});
    build.finish("add");
    const std::vector<float> before = outputOf(graph);
    EXPECT_EQ(foldOperands(graph), 1u);
    EXPECT_EQ(graph.tensors.back().role, TensorRole::Constant);
    EXPECT_EQ(graph.tensors.back().type, isHalf ? ElementType::Fp16 : ElementType::Fp32);
    EXPECT_EQ(outputOf(graph), before);
    EXPECT_EQ(foldOperands(graph), 0u);
  }
}

TEST(FoldOperands, KeepsOneImmediateToAnInstruction) {
  KernelGraph graph;
  const unsigned y = addTensor(graph, "y", {8}, ElementType::Fp32, 0, TensorRole::Output);
  const unsigned two = addSplat(graph, "two", {1}, ElementType::Fp32, 0, 2);
  KernelBuilder build(graph);
  const unsigned l = build.loop(8);
  const unsigned root = build.op(AluOp::SqrtF32, {build.operand({two, {fixed(0)}})});
  build.store(build.op(AluOp::AddF32, {root, build.constant(3)}), {y, {at(l)}});
  build.finish("root");
  // The sum is an immediate that would be stored as it is, its root one beside another.
  EXPECT_EQ(foldOperands(graph), 0u);
  EXPECT_EQ(graph.verify(), "");
}

TEST(UnrollRunning, ReadsEachTapOfADepthwiseConvolutionAsAnOperand) {
  for (auto [size, taps, stride, dilation] :
       {std::array<int64_t, 4>{16, 3, 1, 1}, {17, 3, 2, 1}, {16, 5, 1, 1}, {18, 3, 1, 2}}) {
    KernelGraph graph = depthwise(size, taps, stride, dilation);
    const std::vector<float> before = outputOf(graph);
    foldOperands(graph);
    EXPECT_EQ(unrollRunning(graph, tsp()), 1u);
    const Kernel &kernel = graph.kernels[0];
    EXPECT_EQ(count(kernel, Node::Kind::Reduce), 0u);
    EXPECT_EQ(kernel.operands.size(), size_t(2 * taps * taps));
    EXPECT_EQ(outputOf(graph), before); // sums in the order of the steps
    // What each bundle reads of a tensor needs copies: cut, no kernel reads more than five times.
    splitEpilogues(graph, 12, tsp());
    for (const Kernel &part : graph.kernels)
      EXPECT_LE(std::count_if(part.operands.begin(), part.operands.end(),
                              [&](const Access &a) { return a.tensor == 0; }),
                5)
          << part.name;
    EXPECT_EQ(outputOf(graph), before);
  }
}

TEST(UnrollRunning, LeavesAReductionToOneRow) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {1, 24, 7, 7}, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned y = addTensor(graph, "y", {1, 24}, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned c = build.loop(24), r = build.loop(7, LoopKind::Running),
                 s = build.loop(7, LoopKind::Running);
  build.store(build.reduce(AluOp::AddF32, build.load({x, {fixed(0), at(c), at(r), at(s)}})),
              {y, {fixed(0), at(c)}});
  build.finish("mean");
  EXPECT_EQ(unrollRunning(graph, tsp()), 0u);
}

/// y[c] = scale * sum over rows and columns of x, then y applied to x as a gate.
KernelGraph squeeze(int64_t channels, int64_t height, int64_t width) {
  KernelGraph graph;
  graph.name = "squeeze";
  const auto fp16 = ElementType::Fp16;
  const unsigned in =
      addTensor(graph, "in", {1, channels, height, width}, fp16, 1, TensorRole::Input);
  const unsigned out = addTensor(graph, "out", {1, channels, height, width}, ElementType::Fp32, 1,
                                 TensorRole::Output);
  const unsigned x = addTensor(graph, "x", {1, channels, height, width}, fp16, 1);
  const unsigned mean = addTensor(graph, "mean", {1, channels, 1, 1}, fp16, 1);
  {
    KernelBuilder build(graph);
    const unsigned c = build.loop(channels), h = build.loop(height), w = build.loop(width);
    const std::vector<AffineIndex> point{fixed(0), at(c), at(h), at(w)};
    build.store(build.op(AluOp::AbsF32, {build.load({in, point})}), {x, point});
    build.finish("x");
  }
  {
    KernelBuilder build(graph);
    const unsigned c = build.loop(channels), h = build.loop(height, LoopKind::Running),
                   w = build.loop(width, LoopKind::Running);
    const unsigned sum =
        build.reduce(AluOp::AddF32, build.load({x, {fixed(0), at(c), at(h), at(w)}}));
    build.store(build.op(AluOp::MulF32, {sum, build.constant(1 / float(height * width))}),
                {mean, {fixed(0), at(c), fixed(0), fixed(0)}});
    build.finish("mean");
  }
  KernelBuilder build(graph);
  const unsigned c = build.loop(channels), h = build.loop(height), w = build.loop(width);
  const unsigned gate =
      build.op(AluOp::RcpF32,
               {build.op(AluOp::AddF32,
                         {build.op(AluOp::ExpF32,
                                   {build.load({mean, {fixed(0), at(c), fixed(0), fixed(0)}})}),
                          build.constant(1)})});
  const std::vector<AffineIndex> point{fixed(0), at(c), at(h), at(w)};
  build.store(build.op(AluOp::MulF32, {build.load({x, point}), gate}), {out, point});
  build.finish("gate");
  return graph;
}

TEST(HoistRows, ComputesAGateOnce) {
  KernelGraph graph = squeeze(24, 60, 50);
  const std::vector<float> before = outputOf(graph);
  EXPECT_EQ(hoistRows(graph, tsp()), 1u);
  EXPECT_EQ(graph.kernels.back().name, "gate.fixed");
  EXPECT_EQ(count(graph.kernels.back(), Node::Kind::Op), 4u); // widened, exp, added, inverted
  EXPECT_EQ(count(graph.kernels[2], Node::Kind::Op), 2u);     // widened, multiplied
  EXPECT_EQ(outputOf(graph), before);
  KernelGraph few = squeeze(24, 5, 5); // a kernel of its own takes longer
  EXPECT_EQ(hoistRows(few, tsp()), 0u);
}

TEST(SplitSums, AddsNeighboursThenWhatIsLeftByAContraction) {
  for (auto [height, width] : {std::array<int64_t, 2>{60, 50}, {200, 3}, {16, 17}}) {
    KernelGraph graph = squeeze(24, height, width);
    const std::vector<float> before = outputOf(graph);
    EXPECT_EQ(splitSums(graph, tsp()), 1u);
    for (const Kernel &kernel : graph.kernels)
      EXPECT_EQ(count(kernel, Node::Kind::Reduce), 0u);
    EXPECT_EQ(graph.kernels[1].terms.size(), 1u);
    const std::vector<float> after = outputOf(graph);
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_NEAR(after[i], before[i], 2e-3f * std::abs(before[i]));
  }
  KernelGraph wide = squeeze(200, 60, 50); // a pixel a row in any case
  EXPECT_EQ(splitSums(wide, tsp()), 0u);
  KernelGraph small = squeeze(24, 7, 7);
  EXPECT_EQ(splitSums(small, tsp()), 0u);
}

/// out[c] = sum over rows and columns of (x - m)^2, m of one row and of fewer dimensions.
KernelGraph squares(int64_t channels, int64_t height, int64_t width) {
  KernelGraph graph = squeeze(channels, height, width);
  graph.kernels.resize(1);
  graph.order.resize(1);
  const unsigned in = addTensor(graph, "m.in", {1, channels}, ElementType::Fp32, 1,
                                TensorRole::Input),
                 m = addTensor(graph, "m", {1, channels}, ElementType::Fp32, 1),
                 out = addTensor(graph, "sums", {1, channels}, ElementType::Fp32, 1,
                                 TensorRole::Output);
  graph.tensors[1].role = TensorRole::Intermediate; // nobody makes it or reads it
  {
    KernelBuilder build(graph);
    const std::vector<AffineIndex> point{fixed(0), at(build.loop(channels))};
    build.store(build.op(AluOp::AbsF32, {build.load({in, point})}), {m, point});
    build.finish("m");
  }
  KernelBuilder build(graph);
  const unsigned c = build.loop(channels), h = build.loop(height, LoopKind::Running),
                 w = build.loop(width, LoopKind::Running);
  const unsigned centred =
      build.op(AluOp::SubF32, {build.load({2, {fixed(0), at(c), at(h), at(w)}}),
                               build.load({m, {fixed(0), at(c)}})});
  build.store(build.reduce(AluOp::AddF32, build.op(AluOp::MulF32, {centred, centred})),
              {out, {fixed(0), at(c)}});
  build.finish("squares");
  return graph;
}

TEST(SplitSums, SumsWhatMapsMakeOfWholeNeighboursOnly) {
  for (auto [channels, height, width] : // widths of which 4, 3 and 1 are neighbours; long rows
       {std::array<int64_t, 3>{24, 20, 40}, {24, 60, 9}, {40, 20, 17}, {200, 17, 20}}) {
    KernelGraph graph = squares(channels, height, width);
    const std::vector<float> before = outputOf(graph);
    EXPECT_EQ(splitSums(graph, tsp()), 1u);
    for (const Kernel &kernel : graph.kernels)
      EXPECT_EQ(count(kernel, Node::Kind::Reduce), 0u);
    EXPECT_EQ(graph.kernels[2].terms.size(), channels == 200 ? 0u : 2u); // in two parts
    const std::vector<float> after = outputOf(graph);
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_NEAR(after[i], before[i], 2e-5f * std::abs(before[i])) << width;
  }
  KernelGraph small = squares(24, 7, 7);
  EXPECT_EQ(splitSums(small, tsp()), 0u);
}

TEST(SplitSums, OfIntegersAreExact) {
  for (auto [channels, height, width] : // two parts, three, and none
       {std::array<int64_t, 3>{24, 32, 20}, {24, 40, 170}, {200, 17, 19}}) {
    KernelGraph graph = squeeze(channels, height, width);
    graph.kernels.resize(1);
    graph.order.resize(1);
    graph.tensors[1].role = TensorRole::Intermediate; // nobody makes it or reads it
    graph.tensors[2].type = ElementType::Int8;
    const unsigned out =
        addTensor(graph, "sums", {1, channels}, ElementType::Fp32, 1, TensorRole::Output);
    KernelBuilder bytes(graph);
    const unsigned i = bytes.loop(channels), j = bytes.loop(height), k = bytes.loop(width);
    const std::vector<AffineIndex> point{fixed(0), at(i), at(j), at(k)};
    bytes.store(bytes.op(AluOp::AddF32,
                         {bytes.op(AluOp::MulF32, {bytes.load({0, point}), bytes.constant(20)}),
                          bytes.constant(100)}),
                {2, point});
    bytes.finish("x");
    graph.kernels[0] = graph.kernels[1];
    graph.kernels.pop_back();
    graph.order = {{false, 0}};
    KernelBuilder build(graph);
    const unsigned c = build.loop(channels), h = build.loop(height, LoopKind::Running),
                   w = build.loop(width, LoopKind::Running);
    build.store(build.reduce(AluOp::AddF32, build.load({2, {fixed(0), at(c), at(h), at(w)}})),
                {out, {fixed(0), at(c)}});
    build.finish("sums");
    const std::vector<float> before = outputOf(graph);
    EXPECT_GT(*std::max_element(before.begin(), before.end()), 60.0f * float(height * width));
    EXPECT_EQ(splitSums(graph, tsp()), 1u);
    EXPECT_EQ(graph.kernels[1].terms.size(), channels == 200 ? 0u : width == 170 ? 3u : 2u);
    EXPECT_EQ(outputOf(graph), before);
  }
}

TEST(AlignRanks, GivesARowTheDimensionsOfWhatItMeets) {
  KernelGraph graph = squeeze(24, 20, 10);
  Tensor &mean = graph.tensors[3];
  mean.shape = {24};
  mean.laneDim = 0;
  for (Kernel &kernel : graph.kernels)
    for (Access *access : {kernel.operands.empty() ? nullptr : &kernel.operands.front(),
                           &kernel.results.front().access})
      if (access && access->tensor == 3)
        access->index = {access->index[1]};
  ASSERT_EQ(graph.verify(), "");
  const std::vector<float> before = outputOf(graph);
  EXPECT_EQ(alignRanks(graph), 1u);
  EXPECT_EQ(graph.verify(), "");
  EXPECT_EQ(graph.tensors[3].shape, (std::vector<int64_t>{1, 24, 1, 1}));
  EXPECT_EQ(graph.tensors[3].laneDim, 1u);
  EXPECT_EQ(outputOf(graph), before);
  EXPECT_EQ(alignRanks(graph), 0u);
}

TEST(AlignOrders, TurnsWhatAKernelWritesBesideItsFirstResult) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {24, 20, 10}, ElementType::Fp16, 0, TensorRole::Input),
                 twice = addTensor(graph, "twice", {24, 20, 10}, ElementType::Fp16, 0),
                 square = addTensor(graph, "square", {20, 10, 24}, ElementType::Fp32, 2),
                 out = addTensor(graph, "out", {20, 24, 10}, ElementType::Fp32, 1,
                                 TensorRole::Output);
  {
    KernelBuilder build(graph);
    const unsigned h = build.loop(20), w = build.loop(10), c = build.loop(24);
    const unsigned value = build.load({x, {at(c), at(h), at(w)}, 0});
    build.store(build.op(AluOp::AddF32, {value, value}), {twice, {at(c), at(h), at(w)}, 0});
    build.store(build.op(AluOp::MulF32, {value, value}), {square, {at(h), at(w), at(c)}, 0});
    build.finish("both");
  }
  {
    KernelBuilder build(graph);
    const unsigned h = build.loop(20), w = build.loop(10), c = build.loop(24);
    build.store(build.op(AluOp::AddF32, {build.load({square, {at(h), at(w), at(c)}, 0}),
                                         build.load({twice, {at(c), at(h), at(w)}, 0})}),
                {out, {at(h), at(c), at(w)}, 0});
    build.finish("sum");
  }
  ASSERT_EQ(graph.verify(), "");
  const KernelGraph before = graph;
  const std::vector<float> values = outputOf(graph);
  EXPECT_EQ(alignOrders(graph), 1u);
  EXPECT_EQ(graph.verify(), "");
  EXPECT_EQ(graph.tensors[square].shape, graph.tensors[twice].shape);
  EXPECT_EQ(graph.tensors[square].laneDim, 0u);
  EXPECT_EQ(outputOf(graph), values);
  EXPECT_EQ(alignOrders(graph), 0u);
  graph = before;
  graph.tensors[square].value = "square"; // it is compared with the model's
  EXPECT_EQ(alignOrders(graph), 0u);
}

} // namespace
