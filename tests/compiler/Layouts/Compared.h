// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions to lay out, and what a graph in other layouts is compared by: values and vectors.
#pragma once

#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Layouts/Layout.h"
#include "tests/compiler/Layouts/Outputs.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace::layouts {

using namespace millrace::forms;

/// y[1, f, h, w] = convolution of x with bias and ReLU; with `residual` that is added before.
inline unsigned convolve(KernelGraph &graph, ElementType type, unsigned x, unsigned y,
                         int64_t kernel, int64_t stride, unsigned seed,
                         std::optional<unsigned> residual = std::nullopt) {
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

/// `plain`: what the host sees; other layouts have the same inputs.
inline std::vector<float> outputOf(const KernelGraph &graph, const KernelGraph &plain) {
  return outputsOf(graph, randomInputs(plain));
}

struct Compiled {
  uint64_t cycles = 0;
  int64_t vectors = 0, macs = 0;
};
inline Compiled compiled(const KernelGraph &graph, const Machine &machine) {
  grid::CompileReport report;
  Expected<Image> image = grid::compile(graph, machine, {}, report);
  EXPECT_TRUE(image) << (image ? "" : image.error());
  Compiled c{report.predictedCycles, 0, report.macsOnGrid};
  for (const grid::KernelReport &k : report.kernels)
    c.vectors += k.mxmVectors;
  return c;
}

inline void expectClose(const KernelGraph &plain, const KernelGraph &other,
                        const std::string &what) {
  EXPECT_EQ(other.verify(), "") << what;
  EXPECT_EQ(other.macs(), plain.macs()) << what;
  const std::vector<float> expected = outputOf(plain, plain), got = outputOf(other, plain);
  ASSERT_EQ(expected.size(), got.size()) << what;
  const bool integer = plain.tensors[0].type == ElementType::Int8;
  double worst = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, double(std::abs(expected[i] - got[i])));
    largest = std::max(largest, double(std::abs(expected[i])));
  }
  EXPECT_GT(largest, 1) << what;
  // Integer sums are exact; fp32 sums in another order move an fp16 result by a unit or two.
  EXPECT_LE(worst, integer ? 0 : largest / 500) << what;
}

/// Relative L2 distance of the values.
inline double distance(const KernelGraph &plain, const KernelGraph &other) {
  const std::vector<float> expected = outputOf(plain, plain), got = outputOf(other, plain);
  EXPECT_EQ(expected.size(), got.size());
  double apart = 0, norm = 0;
  for (size_t i = 0; i < std::min(expected.size(), got.size()); ++i) {
    apart += double(expected[i] - got[i]) * double(expected[i] - got[i]);
    norm += double(expected[i]) * double(expected[i]);
  }
  EXPECT_GT(norm, 0);
  return std::sqrt(apart / norm);
}

} // namespace millrace::layouts
