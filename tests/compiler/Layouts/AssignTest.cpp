// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does a graph keep its values in other layouts, whichever they are, and does the choice save the
// vectors that it is made for?
#include "compiler/Layouts/Assign.h"
#include "compiler/Layouts/LayoutProblem.h"
#include "compiler/Layouts/SplitParts.h"
#include "compiler/Layouts/SplitTaps.h"

#include "tests/compiler/Codegen/Grid/TestMachine.h"
#include "tests/compiler/Layouts/Compared.h"

#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Rewritings/SplitSums.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace millrace;
using namespace millrace::forms;
using namespace millrace::layouts;

namespace {

struct Bottleneck {
  ElementType type = ElementType::Fp16;
  int64_t wide = 256, narrow = 64, height = 12, width = 12, stride = 1;
  uint32_t pad = 0; ///< around the image
};

KernelGraph bottleneck(const Bottleneck &s) {
  KernelGraph graph;
  graph.name = "bottleneck";
  const int64_t h = s.height / s.stride, w = s.width / s.stride;
  const unsigned x =
      addTensor(graph, "x", {1, s.wide, s.height, s.width}, s.type, 1, TensorRole::Input);
  const unsigned a = addTensor(graph, "a", {1, s.narrow, s.height, s.width}, s.type, 1);
  const unsigned b = addTensor(graph, "b", {1, s.narrow, h, w}, s.type, 1);
  const unsigned y = addTensor(graph, "y", {1, s.wide, h, w}, s.type, 1, TensorRole::Output);
  convolve(graph, s.type, x, a, 1, 1, 1);
  convolve(graph, s.type, a, b, 3, s.stride, 2);
  convolve(graph, s.type, b, y, 1, 1, 3, s.stride == 1 ? std::optional(x) : std::nullopt);
  for (Kernel &kernel : graph.kernels)
    for (Term &term : kernel.terms)
      term.a.pad = s.pad;
  return graph;
}

/// Assigns layouts, holds values and MACs, and compares what is compiled.
void check(const Bottleneck &spec, int64_t mostVectors) {
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = bottleneck(spec);
  KernelGraph packed = plain;
  const auto lines = assignLayouts(packed, machine, "exact");
  ASSERT_TRUE(lines) << lines.error();
  EXPECT_EQ(lines->size(), 2u);
  expectClose(plain, packed, "exact");
  const Compiled before = compiled(plain, machine), after = compiled(packed, machine);
  EXPECT_EQ(after.macs, before.macs);
  EXPECT_LE(after.vectors, mostVectors);
  EXPECT_LT(2 * after.vectors, before.vectors);
}

TEST(Assign, TwoByTwoPixelsOf64ChannelsTakeEightSweepsForFour) {
  // 256 -> 64: two sweeps a pixel; 3 x 3: eight for four pixels; 64 -> 256: one a pixel.
  check({.height = 28, .width = 28}, 784 * 2 + 15 * 15 * 8 + 784);
}

TEST(Assign, TwoByTwoPixelsOf64ChannelsTakeFourSweepsForFourInInt8) {
  check({.type = ElementType::Int8, .height = 28, .width = 28}, 784 + 15 * 15 * 4 + 784);
}

TEST(Assign, ImagesPaddedWithAZeroPointThatIsNotZeroKeepIt) {
  const Bottleneck spec{.type = ElementType::Int8, .height = 13, .width = 11, .pad = uint8_t(-128)};
  const KernelGraph plain = bottleneck(spec);
  KernelGraph packed = plain;
  const auto lines = assignLayouts(packed, test::testMachine(20), "exact");
  ASSERT_TRUE(lines) << lines.error();
  EXPECT_EQ(lines->size(), 2u);
  expectClose(plain, packed, "zero point");
}

/// Any choice is right, not only the best: also with strides, sizes that no block divides, and the
/// short vectors of a small machine.
class AnyLayout : public testing::TestWithParam<unsigned> {};

TEST_P(AnyLayout, KeepsTheValues) {
  const unsigned seed = GetParam();
  Bottleneck spec;
  spec.type = seed % 3 == 0   ? ElementType::Int8
              : seed % 3 == 1 ? ElementType::Fp16
                              : ElementType::Bf16;
  spec.wide = seed % 2 ? 40 : 12;
  spec.narrow = 3 + int64_t(seed * 7 % 30);
  spec.stride = 1 + int64_t(seed / 2 % 2);
  spec.height = spec.stride * (3 + int64_t(seed % 5));
  spec.width = spec.stride * (4 + int64_t(seed % 7));
  const Machine machine = test::testMachine(seed % 4 ? 20 : 4);
  const KernelGraph plain = bottleneck(spec);
  KernelGraph other = plain;
  const auto lines = assignLayouts(other, machine, "random", seed + 1);
  ASSERT_TRUE(lines) << lines.error();
  EXPECT_EQ(other.verify(), "");
  EXPECT_EQ(other.macs(), plain.macs());
  const double most = spec.type == ElementType::Int8   ? 0
                      : spec.type == ElementType::Fp16 ? 2e-3
                                                       : 1.5e-2;
  EXPECT_LE(distance(plain, other), most);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyLayout, testing::Range(0u, 60u));

/// Two convolutions, and between them a division of each channel by a constant of its own.
KernelGraph normalised(int64_t channels) {
  KernelGraph graph;
  const ElementType type = ElementType::Fp16;
  const unsigned x = addTensor(graph, "x", {1, 20, 12, 12}, type, 1, TensorRole::Input);
  const unsigned y = addTensor(graph, "y", {1, 20, 12, 12}, type, 1, TensorRole::Output);
  const unsigned a = addTensor(graph, "a", {1, channels, 12, 12}, type, 1),
                 b = addTensor(graph, "b", {1, channels, 12, 12}, type, 1);
  std::vector<float> deviations = randomValues(size_t(channels), 9);
  for (float &d : deviations)
    d = 1 + d / 2;
  const unsigned c = addConstant(graph, "c", {channels}, ElementType::Fp32, 0, deviations);
  convolve(graph, type, x, a, 1, 1, 1);
  KernelBuilder build(graph);
  const unsigned f = build.loop(channels), oy = build.loop(12), ox = build.loop(12);
  const std::vector<AffineIndex> point{fixed(0), at(f), at(oy), at(ox)};
  build.store(build.op(AluOp::MulF32, {build.load({a, point}),
                                       build.op(AluOp::RcpF32, {build.operand({c, {at(f)}})})}),
              {b, point});
  build.finish("divide");
  convolve(graph, type, b, y, 3, 1, 2);
  return graph;
}

/// Slots that do not touch leave gaps, which readers multiply by 0.
TEST(Gaps, HoldNothingInfinite) {
  for (const int64_t channels : {24, 48, 56, 72})
    for (unsigned seed = 1; seed < 40; ++seed) {
      const KernelGraph plain = normalised(channels);
      KernelGraph other = plain;
      const auto lines = assignLayouts(other, test::testMachine(20), "random", seed);
      ASSERT_TRUE(lines) << lines.error();
      EXPECT_LE(distance(plain, other), 2e-3) << channels << " channels, seed " << seed;
    }
}

/// y = a window over each channel of x: sums of taps with weights, or their maximum.
unsigned slide(KernelGraph &graph, unsigned x, unsigned y, int64_t taps, int64_t stride,
               int64_t dilation, bool sums, unsigned seed) {
  const std::vector<int64_t> shape = graph.tensors[y].shape;
  const ElementType type = graph.tensors[x].type;
  const bool integer = type == ElementType::Int8;
  const int64_t reach = dilation * (taps - 1) / 2;
  const unsigned w =
      addConstant(graph, "taps" + std::to_string(seed), {shape[1], taps * taps}, ElementType::Fp32,
                  0, randomValues(size_t(shape[1] * taps * taps), seed, 1.0f / float(taps)));
  KernelBuilder build(graph);
  const unsigned f = build.loop(shape[1]), r = build.loop(shape[2]), c = build.loop(shape[3]);
  const uint32_t pad = sums ? 0 : integer ? uint8_t(-128) : encode(type, -INFINITY);
  std::optional<unsigned> value;
  for (int64_t tap = 0; tap < taps * taps; ++tap) {
    const unsigned raw =
        build.operand({x,
                       {fixed(0), at(f), at(r, stride, tap / taps * dilation - reach),
                        at(c, stride, tap % taps * dilation - reach)},
                       pad});
    unsigned each = build.op(integer ? AluOp::CvtI8F32 : widenToF32(type), {raw});
    if (sums)
      each = build.op(AluOp::MulF32, {each, build.operand({w, {at(f), fixed(tap)}})});
    value = value ? build.op(sums ? AluOp::AddF32 : AluOp::MaxF32, {*value, each}) : each;
  }
  build.store(*value, {y, {fixed(0), at(f), at(r), at(c)}});
  return build.finish("slide" + std::to_string(seed));
}

/// A contraction, a window over its channels, another beside what it reads, and a contraction of
/// that.
KernelGraph windows(unsigned seed) {
  KernelGraph graph;
  graph.name = "windows";
  const ElementType type = seed % 3 == 0   ? ElementType::Int8
                           : seed % 3 == 1 ? ElementType::Fp16
                                           : ElementType::Bf16;
  const int64_t taps = seed % 5 == 4 ? 5 : 3, stride = 1 + int64_t(seed / 2 % 2),
                dilation = stride == 1 && seed % 7 == 3 ? 2 : 1,
                narrow = 2 + int64_t(seed * 7 % 30), wide = seed % 2 ? 40 : 12,
                h = 4 + int64_t(seed % 9), w = 3 + int64_t(seed % 6);
  const bool sums = seed % 4 != 3, residual = stride == 1 && seed % 8 < 4;
  const unsigned x =
      addTensor(graph, "x", {1, 3, h * stride, w * stride}, type, 1, TensorRole::Input);
  const unsigned a = addTensor(graph, "a", {1, narrow, h * stride, w * stride}, type, 1);
  const unsigned b = addTensor(graph, "b", {1, narrow, h, w}, type, 1);
  const unsigned c = addTensor(graph, "c", {1, narrow, h, w}, type, 1);
  const unsigned d = addTensor(graph, "d", {1, narrow, h, w}, type, 1);
  const unsigned y = addTensor(graph, "y", {1, wide, h, w}, type, 1, TensorRole::Output);
  convolve(graph, type, x, a, 3, 1, 1);
  slide(graph, a, b, taps, stride, dilation, sums, 2);
  convolve(graph, type, b, c, 1, 1, 3, residual ? std::optional(a) : std::nullopt);
  slide(graph, c, d, 3, 1, 1, true, 4);
  convolve(graph, type, d, y, 1, 1, 5);
  return graph;
}

/// A squeeze-and-excite block: a window, its mean over all pixels, a gate for each channel.
KernelGraph squeeze(unsigned seed, const Machine &machine) {
  KernelGraph graph;
  graph.name = "squeeze";
  const ElementType type = seed % 2 ? ElementType::Fp16 : ElementType::Bf16;
  const int64_t narrow = 2 + int64_t(seed * 7 % 30), h = 16 + int64_t(seed % 9),
                w = 16 + int64_t(seed % 5);
  const unsigned x = addTensor(graph, "x", {1, 3, h, w}, type, 1, TensorRole::Input);
  const unsigned a = addTensor(graph, "a", {1, narrow, h, w}, type, 1);
  const unsigned b = addTensor(graph, "b", {1, narrow, h, w}, type, 1);
  const unsigned mean = addTensor(graph, "mean", {1, narrow, 1, 1}, type, 1);
  const unsigned gate = addTensor(graph, "gate", {1, narrow, 1, 1}, type, 1);
  const unsigned c = addTensor(graph, "c", {1, narrow, h, w}, type, 1);
  const unsigned y = addTensor(graph, "y", {1, 12, h, w}, type, 1, TensorRole::Output);
  convolve(graph, type, x, a, 3, 1, 1);
  slide(graph, a, b, 3, 1, 1, true, 2);
  {
    KernelBuilder build(graph);
    const unsigned f = build.loop(narrow), r = build.loop(h, LoopKind::Running),
                   s = build.loop(w, LoopKind::Running);
    const unsigned sum =
        build.reduce(AluOp::AddF32, build.load({b, {fixed(0), at(f), at(r), at(s)}}));
    build.store(build.op(AluOp::MulF32, {sum, build.constant(1 / float(h * w))}),
                {mean, {fixed(0), at(f), fixed(0), fixed(0)}});
    build.finish("mean");
  }
  convolve(graph, type, mean, gate, 1, 1, 3);
  {
    KernelBuilder build(graph);
    const unsigned f = build.loop(narrow), r = build.loop(h), s = build.loop(w);
    const std::vector<AffineIndex> point{fixed(0), at(f), at(r), at(s)};
    build.store(
        build.op(AluOp::MulF32, {build.load({b, point}),
                                 build.load({gate, {fixed(0), at(f), fixed(0), fixed(0)}})}),
        {c, point});
    build.finish("scaled");
  }
  convolve(graph, type, c, y, 1, 1, 4);
  EXPECT_EQ(splitSums(graph, machine), 1u);
  return graph;
}

class AnySqueeze : public testing::TestWithParam<unsigned> {};

TEST_P(AnySqueeze, KeepsTheValues) {
  const unsigned seed = GetParam();
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = squeeze(seed, machine);
  KernelGraph other = plain;
  const auto lines = assignLayouts(other, machine, "random", seed + 1);
  ASSERT_TRUE(lines) << lines.error();
  EXPECT_EQ(other.verify(), "");
  EXPECT_LE(distance(plain, other), plain.tensors[0].type == ElementType::Fp16 ? 3e-3 : 2e-2);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnySqueeze, testing::Range(0u, 60u));

class AnyWindows : public testing::TestWithParam<unsigned> {};

TEST_P(AnyWindows, KeepTheValues) {
  const unsigned seed = GetParam();
  const Machine machine = test::testMachine(seed % 4 ? 20 : 4);
  const KernelGraph plain = windows(seed);
  KernelGraph other = plain;
  const auto lines = assignLayouts(other, machine, "random", seed + 1);
  ASSERT_TRUE(lines) << lines.error();
  EXPECT_EQ(other.verify(), "");
  EXPECT_EQ(other.macs(), plain.macs());
  std::string chosen;
  for (const std::string &line : *lines)
    chosen += line + "\n";
  // Integers are exact: windows sum their taps in one order whatever the layout.
  const ElementType type = plain.tensors[0].type;
  const double most = type == ElementType::Int8 ? 0 : type == ElementType::Fp16 ? 3e-3 : 2e-2;
  EXPECT_LE(distance(plain, other), most) << chosen;
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyWindows, testing::Range(0u, 120u));

TEST(Assign, DrawsBandsForWindows) {
  unsigned banded = 0, halos = 0;
  for (unsigned seed = 0; seed < 160; ++seed) {
    KernelGraph graph = windows(seed);
    const auto lines =
        assignLayouts(graph, test::testMachine(seed % 4 ? 20 : 4), "random", seed + 1);
    ASSERT_TRUE(lines) << lines.error();
    for (const std::string &line : *lines) {
      banded += line.find(" by ") != std::string::npos;
      halos += line.find(" by ") != std::string::npos && line.find(" from -") != std::string::npos;
    }
  }
  EXPECT_GE(banded, 100u);
  EXPECT_GE(halos, 50u);
}

TEST(Assign, BandsServeWindowsOverSingleChannels) {
  // 32 channels: ten bands of an image in a row, with a row of halo at both ends of each.
  KernelGraph graph;
  graph.name = "bands";
  const ElementType type = ElementType::Fp16;
  const unsigned x = addTensor(graph, "x", {1, 16, 60, 20}, type, 1, TensorRole::Input);
  const unsigned a = addTensor(graph, "a", {1, 32, 60, 20}, type, 1);
  const unsigned b = addTensor(graph, "b", {1, 32, 60, 20}, type, 1);
  const unsigned y = addTensor(graph, "y", {1, 160, 60, 20}, type, 1, TensorRole::Output);
  convolve(graph, type, x, a, 1, 1, 1);
  slide(graph, a, b, 3, 1, 1, true, 2);
  convolve(graph, type, b, y, 1, 1, 3);
  const KernelGraph plain = graph;
  const Machine machine = test::testMachine(20);
  const auto lines = assignLayouts(graph, machine, "exact");
  ASSERT_TRUE(lines) << lines.error();
  EXPECT_EQ(graph.tensors[a].shape.back(), 320);
  EXPECT_EQ(elementCount(graph.tensors[a]), 320 * 20 * (6 + 2));
  EXPECT_EQ(elementCount(graph.tensors[b]), 320 * 20 * 6);
  expectClose(plain, graph, "bands");
}

TEST(Assign, TheExactSolverFindsTheLeastCost) {
  const KernelGraph graph = bottleneck({.wide = 40, .narrow = 24, .height = 9, .width = 10});
  const Machine machine = test::testMachine(20);
  const LayoutProblem problem(graph, machine);
  ASSERT_EQ(problem.variables.size(), 3u); // the image, which is also added, and two of its own
  const LayoutSolver &exact = layoutSolvers().front();
  ASSERT_EQ(exact.name, "exact");
  const Choice found = exact.solve(problem, 0);
  EXPECT_TRUE(verify(problem, found));
  double least = kImpossible;
  Choice choice(3, 0);
  for (choice[0] = 0; choice[0] < problem.variables[0].candidates.size(); ++choice[0])
    for (choice[1] = 0; choice[1] < problem.variables[1].candidates.size(); ++choice[1])
      for (choice[2] = 0; choice[2] < problem.variables[2].candidates.size(); ++choice[2])
        least = std::min(least, problem.cost(choice));
  EXPECT_DOUBLE_EQ(problem.cost(found), least);
  EXPECT_LT(least, problem.cost({0, 0, 0}));
}

TEST(Assign, ATensorThatIsReadLaneByLaneIntoAnOutputStaysPlain) {
  KernelGraph graph = bottleneck({});
  KernelBuilder build(graph);
  const unsigned z =
      addTensor(graph, "z", graph.tensors[1].shape, ElementType::Fp16, 1, TensorRole::Output);
  const unsigned f = build.loop(64), h = build.loop(12), w = build.loop(12);
  const std::vector<AffineIndex> point{fixed(0), at(f), at(h), at(w)};
  build.store(build.load({1, point}), {z, point});
  build.finish("copy");
  const KernelGraph plain = graph;
  const auto lines = assignLayouts(graph, test::testMachine(20), "exact");
  ASSERT_TRUE(lines) << lines.error();
  EXPECT_EQ(graph.tensors[1].shape, plain.tensors[1].shape);
  expectClose(plain, graph, "copy");
}

TEST(Assign, ChecksAChoice) {
  const KernelGraph graph = bottleneck({});
  const Machine machine = test::testMachine(20);
  const LayoutProblem problem(graph, machine);
  EXPECT_EQ(verify(problem, {0}).error(), "the layouts name 1 of 2 variables");
  EXPECT_EQ(verify(problem, {0, 999}).error(), "variable 1 has no layout 999");
  KernelGraph other = graph;
  const auto unknown = assignLayouts(other, test::testMachine(20), "best");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error(), "no layout solver is called 'best'; there are exact, plain, random");
}

/// A maximum of three neighbours, every second pixel: along the columns, or along the rows.
void pool(KernelGraph &graph, unsigned x, unsigned y, bool columns) {
  const std::vector<int64_t> shape = graph.tensors[y].shape;
  KernelBuilder build(graph);
  const unsigned f = build.loop(shape[1]), r = build.loop(shape[2]), s = build.loop(shape[3]);
  const uint32_t lowest = encode(ElementType::Fp16, -INFINITY);
  std::vector<unsigned> taps;
  for (int64_t d : {-1, 0, 1})
    taps.push_back(
        build.load({x,
                    {fixed(0), at(f), columns ? at(r) : at(r, 2, d), columns ? at(s, 2, d) : at(s)},
                    lowest}));
  build.store(build.op(AluOp::MaxF32, {build.op(AluOp::MaxF32, {taps[0], taps[1]}), taps[2]}),
              {y, {fixed(0), at(f), at(r), at(s)}});
  build.finish(columns ? "columns" : "rows");
}

/// As an image network begins: windows of a few channels of the input, a pooling in two passes, a
/// contraction.
KernelGraph stem(int64_t filters, int64_t size) {
  KernelGraph graph;
  graph.name = "stem";
  const int64_t out = size / 2, pooled = (out + 1) / 2;
  const ElementType type = ElementType::Fp16;
  const unsigned x = addTensor(graph, "x", {1, 3, size, size}, type, 1, TensorRole::Input);
  const unsigned y = addTensor(graph, "y", {1, filters, out, out}, type, 1);
  const unsigned p = addTensor(graph, "p", {1, filters, out, pooled}, type, 1);
  const unsigned q = addTensor(graph, "q", {1, filters, pooled, pooled}, type, 1);
  const unsigned z = addTensor(graph, "z", {1, 40, pooled, pooled}, type, 1, TensorRole::Output);
  convolve(graph, type, x, y, 7, 2, 1);
  pool(graph, y, p, true);
  pool(graph, p, q, false);
  convolve(graph, type, q, z, 1, 1, 2);
  return graph;
}

TEST(SplitTaps, PacksAStemWithItsPooling) {
  const Machine machine = test::testMachine(20);
  for (int64_t size : {38, 40}) { // the last window leaves the image, or ends with it
    const KernelGraph plain = stem(16, size);
    KernelGraph split = plain;
    EXPECT_EQ(splitTaps(split, machine),
              std::vector<std::string>{"y: one tensor for each of 3 neighbours"});
    expectClose(plain, split, "taps");
    const auto lines = assignLayouts(split, machine, "exact");
    ASSERT_TRUE(lines) << lines.error();
    expectClose(plain, split, "layouts");
    const Tensor &x = split.tensors[0];
    ASSERT_FALSE(x.hostLoops.empty());
    EXPECT_EQ(x.hostShape, plain.tensors[0].shape);
    EXPECT_LE(elementCount(x), 3 * elementCount(plain.tensors[0])); // R15
    EXPECT_LT(4 * compiled(split, machine).vectors, compiled(plain, machine).vectors);
  }
}

TEST(SplitTaps, LeavesATensorThatOthersReadToo) {
  KernelGraph graph = stem(16, 38);
  const unsigned other =
      addTensor(graph, "other", graph.tensors[1].shape, ElementType::Fp16, 1, TensorRole::Output);
  convolve(graph, ElementType::Fp16, 1, other, 1, 1, 3);
  EXPECT_TRUE(splitTaps(graph, test::testMachine(20)).empty());
}

/// Two contractions side by side, a map over both, a contraction of that.
KernelGraph concatenation(int64_t left, int64_t right) {
  KernelGraph graph;
  graph.name = "concatenation";
  const ElementType type = ElementType::Fp16;
  const int64_t all = left + right, size = 9;
  const unsigned x = addTensor(graph, "x", {1, 24, size, size}, type, 1, TensorRole::Input);
  const unsigned both = addTensor(graph, "both", {1, all, size, size}, type, 1);
  const unsigned mapped = addTensor(graph, "mapped", {1, all, size, size}, type, 1);
  const unsigned y = addTensor(graph, "y", {1, 30, size, size}, type, 1, TensorRole::Output);
  for (bool second : {false, true}) {
    graph.tensors[both].shape[1] = second ? right : left;
    convolve(graph, type, x, both, second ? 3 : 1, 1, 1 + second);
    graph.tensors[both].shape[1] = all;
    if (second)
      graph.kernels.back().results[0].access.index[1].offset = left;
  }
  const unsigned scale =
      addConstant(graph, "scale", {all}, ElementType::Fp32, 0, randomValues(size_t(all), 9, 1));
  KernelBuilder build(graph);
  const unsigned f = build.loop(all), r = build.loop(size), s = build.loop(size);
  const std::vector<AffineIndex> point{fixed(0), at(f), at(r), at(s)};
  build.store(build.op(AluOp::MulF32, {build.load({both, point}), build.operand({scale, {at(f)}})}),
              {mapped, point});
  build.finish("map");
  convolve(graph, type, mapped, y, 3, 1, 5);
  return graph;
}

TEST(SplitParts, CutsAConcatenationAndWhatReadsIt) {
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = concatenation(20, 33);
  KernelGraph split = plain;
  EXPECT_EQ(splitParts(split, machine), 2u); // and the map's result
  EXPECT_EQ(split.kernels.size(), plain.kernels.size() + 1);
  expectClose(plain, split, "parts");
  for (const char *solver : {"exact", "random"}) {
    KernelGraph laid = split;
    const auto lines = assignLayouts(laid, machine, solver, 3);
    ASSERT_TRUE(lines) << lines.error();
    expectClose(plain, laid, solver);
  }
}

/// Half of the channels by a product, half by windows over those, a sum of both with what the
/// product took, windows over that.
KernelGraph ghost() {
  KernelGraph graph;
  graph.name = "ghost";
  const ElementType type = ElementType::Fp16;
  const int64_t half = 8, all = 2 * half, size = 28;
  const unsigned x = addTensor(graph, "x", {1, 12, size, size}, type, 1, TensorRole::Input);
  const unsigned before = addTensor(graph, "before", {1, all, size, size}, type, 1);
  const unsigned both = addTensor(graph, "both", {1, all, size, size}, type, 1);
  const unsigned primary = addTensor(graph, "primary", {1, half, size, size}, type, 1);
  const unsigned sum = addTensor(graph, "sum", {1, all, size, size}, type, 1);
  const unsigned fewer = addTensor(graph, "fewer", {1, all, size / 2, size / 2}, type, 1);
  const unsigned y =
      addTensor(graph, "y", {1, 160, size / 2, size / 2}, type, 1, TensorRole::Output);
  convolve(graph, type, x, before, 3, 1, 1);
  convolve(graph, type, before, primary, 1, 1, 2);
  Kernel again = graph.kernels.back(); // as the former writes a part that others read, too
  again.results[0].access.tensor = both;
  again.terms[0].macs = 0;
  graph.order.push_back({false, unsigned(graph.kernels.size())});
  graph.kernels.push_back(std::move(again));
  graph.tensors[both].shape[1] = half;
  slide(graph, primary, both, 3, 1, 1, true, 3);
  graph.tensors[both].shape[1] = all;
  graph.kernels.back().results[0].access.index[1].offset = half;
  KernelBuilder build(graph);
  const unsigned f = build.loop(all), r = build.loop(size), s = build.loop(size);
  const std::vector<AffineIndex> point{fixed(0), at(f), at(r), at(s)};
  build.store(build.op(AluOp::AddF32, {build.load({both, point}), build.load({before, point})}),
              {sum, point});
  build.finish("sum");
  slide(graph, sum, fewer, 3, 2, 1, true, 4);
  convolve(graph, type, fewer, y, 1, 1, 5);
  return graph;
}

TEST(SplitParts, CutsWhatIsReadBesideParts) {
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = ghost();
  KernelGraph split = plain;
  splitParts(split, machine);
  EXPECT_EQ(split.verify(), "");
  // Two for what was before, the product once, its windows, two sums, two windows, the last one.
  EXPECT_EQ(split.kernels.size(), 9u);
  for (const Kernel &kernel : split.kernels)
    for (const Access &operand : kernel.operands)
      if (const Tensor &tensor = split.tensors[operand.tensor];
          tensor.role == TensorRole::Intermediate) {
        EXPECT_EQ(operand.index[1].offset, 0) << kernel.name;
        EXPECT_EQ(tensor.shape[1], 8) << kernel.name;
      }
  expectClose(plain, split, "ghost");
}

TEST(Assign, WindowsOverWindowsReachFurther) {
  // Windows of the second half's windows begin two rows before a band of the first half.
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = ghost();
  KernelGraph graph = plain;
  splitParts(graph, machine);
  const auto lines = assignLayouts(graph, machine, "exact");
  ASSERT_TRUE(lines) << lines.error();
  for (const Kernel &kernel : graph.kernels)
    for (const forms::Result &r : kernel.results)
      if (const Tensor &tensor = graph.tensors[r.access.tensor];
          tensor.role == TensorRole::Intermediate) {
        EXPECT_GE(tensor.shape[tensor.laneDim], 56) << tensor.name;
      }
  expectClose(plain, graph, "reach");
}

TEST(SplitParts, LeavesPartsThatFillVectors) {
  KernelGraph graph = concatenation(320, 170);
  EXPECT_EQ(splitParts(graph, test::testMachine(20)), 0u);
}

TEST(SplitParts, CutsWhatLiesAcrossVectors) {
  // Lanes 200 to 369 are in two vectors of 320, and in one as a tensor of their own.
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = concatenation(200, 170);
  KernelGraph split = plain;
  EXPECT_EQ(splitParts(split, machine), 2u); // and the map's result
  expectClose(plain, split, "across");
}

} // namespace
