// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/Builders.h"

#include <cmath>
#include <gmock/gmock.h>

using namespace millrace;
using namespace millrace::forms;

namespace {

/// A tensor's values by name.
std::vector<float> valuesOf(const KernelGraph &graph, const std::vector<TensorBytes> &bytes,
                            const std::string &name) {
  for (unsigned i = 0; i < graph.tensors.size(); ++i)
    if (graph.tensors[i].name == name) {
      unsigned width = byteWidth(graph.tensors[i].type);
      std::vector<float> values(bytes[i].size() / width);
      for (size_t j = 0; j < values.size(); ++j) {
        uint32_t bits = 0;
        std::memcpy(&bits, &bytes[i][j * width], width);
        values[j] = decode(graph.tensors[i].type, bits);
      }
      return values;
    }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

struct Evaluated {
  KernelGraph graph;
  std::vector<TensorBytes> bytes;
  explicit Evaluated(KernelGraph built, const EvaluateOptions &options = {})
      : graph(std::move(built)) {
    auto result = evaluate(graph, randomInputs(graph), options);
    if (!result)
      ADD_FAILURE() << result.error();
    else
      bytes = std::move(*result);
  }
  std::vector<float> operator[](const std::string &name) const {
    return valuesOf(graph, bytes, name);
  }
};

double relativeError(const std::vector<float> &got, const std::vector<double> &want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i)
    error += (got[i] - want[i]) * (got[i] - want[i]), norm += want[i] * want[i];
  return got.size() == want.size() ? std::sqrt(error / norm) : INFINITY;
}

} // namespace

TEST(Evaluate, ALookupTakesTheRowThatItsIndexNamesAndCountsNegativeOnesFromTheEnd) {
  // More tokens than lanes: the longest loop is the one whose index is data.
  KernelGraph graph = buildEmbedding({.tokens = 6, .rows = 9, .width = 3});
  std::map<unsigned, TensorBytes> inputs = randomInputs(graph);
  const int32_t ids[] = {0, 8, -1, -9, 3, -4}, rows[] = {0, 8, 8, 0, 3, 5};
  for (auto &[tensor, bytes] : inputs)
    std::memcpy(bytes.data(), ids, sizeof ids);
  auto all = evaluate(graph, inputs);
  ASSERT_TRUE(all) << all.error();
  const auto y = valuesOf(graph, *all, "y"), words = valuesOf(graph, *all, "words");
  for (size_t t = 0; t < 6; ++t)
    for (size_t l = 0; l < 3; ++l)
      EXPECT_EQ(y[3 * t + l], words[size_t(3 * rows[t]) + l]) << "token " << t;
}

TEST(Evaluate, AnIndexBesideTheTableReadsThePad) {
  KernelGraph graph = buildEmbedding({.tokens = 2, .rows = 4, .width = 2});
  Access &row = graph.kernels[0].operands[0];
  row.index[0] = fixed(-3); // of four rows: 3 is row 0, 0 lies three before it
  row.pad = encode(ElementType::Fp16, 7);
  std::map<unsigned, TensorBytes> inputs = randomInputs(graph);
  const int32_t ids[] = {3, 0};
  for (auto &[tensor, bytes] : inputs)
    std::memcpy(bytes.data(), ids, sizeof ids);
  auto all = evaluate(graph, inputs);
  ASSERT_TRUE(all) << all.error();
  const auto y = valuesOf(graph, *all, "y"), words = valuesOf(graph, *all, "words");
  EXPECT_EQ(y[0], words[0]);
  EXPECT_EQ(y[2], 7);
  EXPECT_EQ(y[3], 7);
}

TEST(Evaluate, MatmulWithBiasAndReluEqualsPlainLoops) {
  Evaluated run(buildMatmul({5, 37, 21, ElementType::Fp16, true, true, 1}));
  auto x = run["x"], w = run["matmul.w"], bias = run["bias"], y = run["y"];
  for (size_t m = 0; m < 5; ++m)
    for (size_t n = 0; n < 21; ++n) {
      double sum = 0;
      for (size_t k = 0; k < 37; ++k)
        sum += double(x[m * 37 + k]) * double(w[n * 37 + k]);
      float want = std::max(float(sum) + bias[n], 0.0f);
      EXPECT_EQ(y[m * 21 + n], decode(ElementType::Fp16, encode(ElementType::Fp16, want)));
    }
}

TEST(Evaluate, Int8SumsAreExactAndRequantisedPerColumn) {
  Evaluated run(buildMatmul({4, 300, 9, ElementType::Int8, true, false, 2}));
  auto x = run["x"], w = run["matmul.w"], bias = run["bias"], scale = run["scale"], y = run["y"];
  for (size_t m = 0; m < 4; ++m)
    for (size_t n = 0; n < 9; ++n) {
      int32_t sum = 0;
      for (size_t k = 0; k < 300; ++k)
        sum += int32_t(x[m * 300 + k]) * int32_t(w[n * 300 + k]);
      float value = std::nearbyint(float(sum) * scale[n] + bias[n]);
      EXPECT_EQ(y[m * 9 + n], std::clamp(value, -128.0f, 127.0f));
    }
}

TEST(Evaluate, GroupedStridedPaddedConvolutionEqualsPlainLoops) {
  ConvSpec spec{.channels = 8,
                .height = 7,
                .width = 9,
                .filters = 12,
                .kernel = 3,
                .stride = 2,
                .pad = 1,
                .groups = 4,
                .bias = false,
                .relu = false,
                .residual = true};
  Evaluated run(buildConv(spec));
  auto x = run["x"], w = run["w"], r = run["r"], y = run["y"];
  int64_t height = 4, width = 5, group = 2, filters = 3;
  std::vector<double> want;
  for (int64_t f = 0; f < 12; ++f)
    for (int64_t oy = 0; oy < height; ++oy)
      for (int64_t ox = 0; ox < width; ++ox) {
        double sum = r[size_t((f * height + oy) * width + ox)];
        for (int64_t c = 0; c < group; ++c)
          for (int64_t ky = 0; ky < 3; ++ky)
            for (int64_t kx = 0; kx < 3; ++kx) {
              int64_t iy = oy * 2 + ky - 1, ix = ox * 2 + kx - 1;
              if (iy >= 0 && iy < 7 && ix >= 0 && ix < 9)
                sum += double(x[size_t(((f / filters * group + c) * 7 + iy) * 9 + ix)]) *
                       double(w[size_t(((f * group + c) * 3 + ky) * 3 + kx)]);
            }
        want.push_back(sum);
      }
  EXPECT_LT(relativeError(y, want), 4e-4); // one rounding to fp16
}

TEST(Evaluate, MaxPoolIgnoresPadding) {
  Evaluated run(buildMaxPool(3, 5, 5, 3, 2, 1, ElementType::Fp16));
  auto x = run["x"], y = run["y"];
  EXPECT_EQ(y[0], std::max({x[0], x[1], x[5], x[6]}));
  EXPECT_EQ(y[2 * 9 + 4],
            std::max({x[56], x[57], x[58], x[61], x[62], x[63], x[66], x[67], x[68]}));
}

TEST(Evaluate, LayerNormEqualsTheFormula) {
  Evaluated run(buildLayerNorm(6, 96));
  auto x = run["x"], gamma = run["gamma"], beta = run["beta"], y = run["y"];
  std::vector<double> want;
  for (size_t row = 0; row < 6; ++row) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < 96; ++i)
      mean += x[row * 96 + i] / 96;
    for (size_t i = 0; i < 96; ++i)
      variance += (x[row * 96 + i] - mean) * (x[row * 96 + i] - mean) / 96;
    for (size_t i = 0; i < 96; ++i)
      want.push_back((x[row * 96 + i] - mean) / std::sqrt(variance + 1e-5) * gamma[i] + beta[i]);
  }
  EXPECT_LT(relativeError(y, want), 5e-4); // centred values and results are fp16
}

TEST(Evaluate, AttentionEqualsSoftmaxOfTheScores) {
  for (bool causal : {false, true}) {
    Evaluated run(buildAttention(17, 40, 24, causal));
    auto q = run["q"], k = run["k"], v = run["v^T"], y = run["y"];
    std::vector<double> want;
    for (size_t i = 0; i < 17; ++i) {
      std::vector<double> p(17);
      double sum = 0;
      for (size_t j = 0; j < 17; ++j) {
        double score = 0;
        for (size_t c = 0; c < 24; ++c)
          score += double(q[i * 24 + c]) * double(k[j * 24 + c]);
        sum += p[j] = causal && j > i ? 0 : std::exp(score);
      }
      for (size_t c = 0; c < 24; ++c) {
        double value = 0;
        for (size_t j = 0; j < 17; ++j)
          value += p[j] / sum * double(v[c * 17 + j]);
        want.push_back(value);
      }
    }
    EXPECT_LT(relativeError(y, want), 5e-4) << "causal " << causal; // exp and result are fp16
  }
}

TEST(Evaluate, PassesRoundOnceEachAndAddInOrder) {
  // 2^12 * 2^12 + 1 - 2^24 is 1 in one pass; cut after the second product, fp32 loses the 1.
  KernelGraph graph = buildMatmul({1, 3, 1, ElementType::Fp16, false, false, 1});
  graph.tensors[2].data = encodeAll(ElementType::Fp16, {4096, 1, -4096});
  std::map<unsigned, TensorBytes> inputs = {{0, encodeAll(ElementType::Fp16, {4096, 1, 4096})}};
  auto whole = evaluate(graph, inputs);
  ASSERT_TRUE(whole);
  EXPECT_EQ(valuesOf(graph, *whole, "y")[0], 1);
  EvaluateOptions options;
  options.passes = [](unsigned) {
    return std::vector<Pass>{{0, {0, 0, 0}, 2, 0, 2}, {0, {0, 0, 0}, 2, 2, 3}};
  };
  auto cut = evaluate(graph, inputs, options);
  ASSERT_TRUE(cut);
  EXPECT_EQ(valuesOf(graph, *cut, "y")[0], 0);
}

TEST(KernelBuilder, AnOperationOnImmediatesIsTheImmediateThatComesOut) {
  KernelGraph graph;
  KernelBuilder build(graph);
  const unsigned sum = build.op(AluOp::AddF32, {build.constant(1.5f), build.constant(2)});
  EXPECT_EQ(build.kernel().nodes[sum].kind, Node::Kind::Immediate);
  EXPECT_EQ(build.kernel().nodes[sum].bits, bitsOf(3.5f));
}

TEST(KernelBuilder, NodesThatNoResultTakesAreNotNeeded) {
  KernelGraph graph = buildMatmul({.relu = true}); // sum, bias, their sum, 0, the greater one, what it is stored as
  Kernel kernel = graph.kernels[0];
  kernel.nodes.push_back(kernel.nodes[0]);
  EXPECT_THAT(neededNodes(kernel), testing::ElementsAre(true, true, true, true, true, true, false));
  EXPECT_THAT(neededNodes(kernel, 2), testing::ElementsAre(false, false, true, true, true, true, false)) << "with the biased sum given";
}

TEST(Evaluate, AMissingInputIsNamed) {
  KernelGraph graph = buildMatmul({4, 32, 32});
  auto result = evaluate(graph, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error(), "input 'x' needs 256 bytes, got 0");
}

TEST(Evaluate, ARunningLoopAddsAllItsSteps) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {5, 3}, ElementType::Fp32, 1, TensorRole::Input),
                 y = addTensor(graph, "y", {3}, ElementType::Fp32, 0, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned r = build.loop(5, LoopKind::Running), l = build.loop(3);
  build.storeBits(build.reduce(AluOp::AddF32, build.load({x, {at(r), at(l)}, 0})), {y, {at(l)}, 0});
  build.finish("total");
  const auto all = evaluate(
      graph, {{x, encodeAll(ElementType::Fp32, {1, 2, 3, 10, 20, 30, 100, 200, 300, 4, 5, 6, 40, 50, 60})}});
  ASSERT_TRUE(all) << all.error();
  EXPECT_THAT(valuesOf(graph, *all, "y"), testing::ElementsAre(155, 277, 399));
}

TEST(Evaluate, AnInputLiesAsItsHostLoopsSay) {
  Tensor tensor;
  tensor.shape = {3, 2};
  tensor.type = ElementType::UInt8;
  tensor.laneDim = 1;
  tensor.hostShape = {2, 3};
  tensor.hostLoops = {{3, 0, 1, 1, 1}, {2, 1, 1, 0, 1}}; // turned
  tensor.hostStart = {0, 0};
  EXPECT_THAT(layOut(tensor, {1, 2, 3, 4, 5, 6}), testing::ElementsAre(1, 4, 2, 5, 3, 6));
  tensor.hostStart = {0, -1}; // from one column before the first
  tensor.hostFill = 9;
  EXPECT_THAT(layOut(tensor, {1, 2, 3, 4, 5, 6}), testing::ElementsAre(9, 9, 1, 4, 2, 5));
}
