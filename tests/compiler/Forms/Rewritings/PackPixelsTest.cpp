// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does packing pixels keep a graph's values, and does it save the vectors that it promises?
#include "compiler/Forms/Rewritings/PackPixels.h"

#include "tests/compiler/Codegen/Grid/TestMachine.h"

#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace millrace;
using namespace millrace::forms;

namespace {

struct Bottleneck {
  ElementType type = ElementType::Fp16;
  int64_t wide = 256, narrow = 64, height = 12, width = 12, stride = 1;
  uint32_t pad = 0; ///< around the image
};

/// y[1, f, h, w] = convolution of x with bias and ReLU; with `residual` that is added before.
unsigned convolve(KernelGraph &graph, ElementType type, unsigned x, unsigned y, int64_t kernel,
                  int64_t stride, unsigned seed, std::optional<unsigned> residual = std::nullopt) {
  const int64_t channels = graph.tensors[x].shape[1], k = channels * kernel * kernel;
  const std::vector<int64_t> shape = graph.tensors[y].shape;
  const bool integer = type == ElementType::Int8;
  const unsigned w = addConstant(
      graph, "w" + std::to_string(seed), {shape[1], channels, kernel, kernel}, type, 1,
      randomValues(size_t(shape[1] * k), seed, integer ? 127 : 1.7f / std::sqrt(float(k))));
  const unsigned bias = addConstant(graph, "bias", {shape[1]}, ElementType::Fp32, 0,
                                    randomValues(size_t(shape[1]), seed + 50, integer ? 20 : 1));
  KernelBuilder build(graph);
  const unsigned f = build.loop(shape[1]), oy = build.loop(shape[2]), ox = build.loop(shape[3]),
                 c = build.loop(channels, LoopKind::Contracted);
  const unsigned ky = build.loop(kernel, LoopKind::Contracted),
                 kx = build.loop(kernel, LoopKind::Contracted);
  build.term({x,
              {fixed(0), at(c), window(oy, stride, ky, 1, -(kernel / 2)),
               window(ox, stride, kx, 1, -(kernel / 2))}},
             {w, {at(f), at(c), at(ky), at(kx)}}, shape[1] * shape[2] * shape[3] * k);
  unsigned value = build.accumulator();
  if (integer) {
    value = build.op(AluOp::CvtI32F32, {value});
    value = build.op(AluOp::MulF32, {value, build.constant(1 / (73 * std::sqrt(float(k))))});
  }
  value = build.op(AluOp::AddF32, {value, build.operand({bias, {at(f)}})});
  const std::vector<AffineIndex> point{fixed(0), at(f), at(oy), at(ox)};
  if (residual)
    value = build.op(AluOp::AddF32, {value, build.load({*residual, point})});
  build.store(build.op(AluOp::MaxF32, {value, build.constant(0)}), {y, point});
  return build.finish("conv" + std::to_string(seed));
}

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

std::vector<float> outputOf(const KernelGraph &graph) {
  Expected<std::vector<TensorBytes>> tensors = evaluate(graph, randomInputs(graph));
  EXPECT_TRUE(tensors) << (tensors ? "" : tensors.error());
  std::vector<float> values;
  for (unsigned t = 0; tensors && t < graph.tensors.size(); ++t)
    if (const Tensor &tensor = graph.tensors[t]; tensor.role == TensorRole::Output)
      for (size_t i = 0; i < (*tensors)[t].size(); i += byteWidth(tensor.type)) {
        uint32_t bits = 0;
        std::memcpy(&bits, &(*tensors)[t][i], byteWidth(tensor.type));
        values.push_back(decode(tensor.type, bits));
      }
  return values;
}

struct Compiled {
  uint64_t cycles = 0;
  int64_t vectors = 0, macs = 0;
};
Compiled compiled(const KernelGraph &graph, const Machine &machine) {
  grid::CompileReport report;
  Expected<Image> image = grid::compile(graph, machine, {}, report);
  EXPECT_TRUE(image) << (image ? "" : image.error());
  Compiled c{report.predictedCycles, 0, report.macsOnGrid};
  for (const grid::KernelReport &k : report.kernels)
    c.vectors += k.mxmVectors;
  return c;
}

/// Packs, holds values and MACs, and returns the cycles before and after.
std::pair<uint64_t, uint64_t> check(const Bottleneck &spec, const std::string &promise) {
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = bottleneck(spec);
  KernelGraph packed = plain;
  const std::vector<std::string> report = packPixels(packed, machine);
  EXPECT_EQ(report, std::vector<std::string>{promise});
  EXPECT_EQ(packed.verify(), "");
  EXPECT_EQ(packed.macs(), plain.macs());
  const std::vector<float> expected = outputOf(plain), got = outputOf(packed);
  EXPECT_EQ(expected.size(), got.size());
  double worst = 0, largest = 0;
  for (size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
    EXPECT_FALSE(std::isnan(got[i])) << i;
    worst = std::max(worst, double(std::abs(expected[i] - got[i])));
    largest = std::max(largest, double(std::abs(expected[i])));
  }
  EXPECT_GT(largest, 1);
  // Integer sums are exact; fp32 sums in another order move an fp16 result by a unit or two.
  EXPECT_LE(worst, spec.type == ElementType::Int8 ? 0 : largest / 500);
  const Compiled before = compiled(plain, machine), after = compiled(packed, machine);
  EXPECT_EQ(after.macs, before.macs);
  EXPECT_LT(after.vectors, before.vectors);
  return {before.cycles, after.cycles};
}

TEST(PackPixels, PacksFourPixelsOf64ChannelsInFp16) {
  auto [before, after] =
      check({.height = 28, .width = 28}, "conv2: 4 pixels a row, 4704 vectors instead of 9408");
  EXPECT_LT(after, before);
}

TEST(PackPixels, PacksFourPixelsOf64ChannelsInInt8) {
  auto [before, after] = check({.type = ElementType::Int8, .height = 28, .width = 28},
                               "conv2: 4 pixels a row, 3332 vectors instead of 8624");
  EXPECT_LT(after, before);
}

TEST(PackPixels, PacksImagesPaddedWithAZeroPointThatIsNotZero) {
  auto [before, after] =
      check({.type = ElementType::Int8, .height = 28, .width = 28, .pad = uint8_t(-128)},
            "conv2: 4 pixels a row, 3332 vectors instead of 8624");
  EXPECT_LT(after, before);
}

TEST(PackPixels, PacksTwoPixelsOf128ChannelsBeforeAStride) {
  check({.narrow = 128, .height = 28, .width = 28, .stride = 2},
        "conv2: 2 pixels a row, 3234 vectors instead of 3528");
}

TEST(PackPixels, LeavesWidthsThatNoBlockDividesAsTheyAre) {
  KernelGraph graph = bottleneck({.width = 13});
  EXPECT_TRUE(packPixels(graph, test::testMachine(20)).empty());
}

TEST(PackPixels, LeavesTensorsWithOtherReadersAsTheyAre) {
  KernelGraph graph = bottleneck({});
  KernelBuilder build(graph);
  const unsigned z =
      addTensor(graph, "z", graph.tensors[1].shape, ElementType::Fp16, 1, TensorRole::Output);
  const unsigned f = build.loop(64), h = build.loop(12), w = build.loop(12);
  const std::vector<AffineIndex> point{fixed(0), at(f), at(h), at(w)};
  build.store(build.load({1, point}), {z, point});
  build.finish("copy");
  EXPECT_TRUE(packPixels(graph, test::testMachine(20)).empty());
}

} // namespace
