// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Padding, rounding, negative indices and defaults of single operators, where one more or less shows.
#include "compiler/Import/Onnx/Import.h"
#include "compiler/Reference/Reference.h"

#include "mlir/IR/MLIRContext.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <onnx/defs/parser.h>

using namespace millrace;

namespace {

template <class T> HostTensor tensor(HostType type, std::vector<int64_t> shape, const std::vector<T> &values) {
  HostTensor t = HostTensor::zeros(type, std::move(shape));
  EXPECT_EQ(size_t(t.elementCount()), values.size());
  std::memcpy(t.data.data(), values.data(), t.data.size());
  return t;
}
HostTensor floats(std::vector<int64_t> shape, const std::vector<float> &values) {
  return tensor(HostType::Float32, std::move(shape), values);
}

/// Runs `graph`, in ONNX's text form, on the CPU.
std::vector<HostTensor> run(const std::string &graph, const std::vector<HostTensor> &inputs) {
  onnx::ModelProto model;
  const std::string text = "<ir_version: 8, opset_import: [\"\" : 18]>\n" + graph;
  const auto parsed = onnx::OnnxParser::Parse(model, text.c_str());
  if (!parsed.IsOK()) {
    ADD_FAILURE() << parsed.ErrorMessage();
    return {};
  }
  const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ("millrace-" + name + ".onnx");
  std::ofstream(path, std::ios::binary) << model.SerializeAsString();
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto module = importOnnx(path, {}, context);
  std::filesystem::remove(path);
  if (!module) {
    ADD_FAILURE() << module.error();
    return {};
  }
  auto outputs = runReference(**module, inputs);
  if (!outputs) {
    ADD_FAILURE() << outputs.error();
    return {};
  }
  return std::move(*outputs);
}

void expectFloats(const HostTensor &found, const std::vector<int64_t> &shape, const std::vector<float> &values) {
  EXPECT_EQ(found.shape, shape);
  ASSERT_EQ(size_t(found.elementCount()), values.size());
  for (size_t k = 0; k < values.size(); ++k)
    EXPECT_NEAR(found.as<float>()[k], values[k], 1e-5 * (1 + std::fabs(values[k]))) << "element " << k;
}

/// Of one float input and one float output.
void expectOne(const std::string &graph, const HostTensor &x, const std::vector<int64_t> &shape,
               const std::vector<float> &values) {
  const std::vector<HostTensor> outputs = run(graph, {x});
  ASSERT_EQ(outputs.size(), 1u);
  expectFloats(outputs[0], shape, values);
}

TEST(Pooling, SameLowerPadsAtTheBeginningAndSameUpperAtTheEnd) {
  const HostTensor x = floats({1, 1, 4}, {4, 3, 2, 1});
  expectOne(R"(g (float[1,1,4] x) => (float[1,1,4] y) { y = MaxPool <auto_pad = "SAME_LOWER", kernel_shape = [2]> (x) })", x,
            {1, 1, 4}, {4, 4, 3, 2});
  expectOne(R"(g (float[1,1,4] x) => (float[1,1,4] y) { y = MaxPool <auto_pad = "SAME_UPPER", kernel_shape = [2]> (x) })", x,
            {1, 1, 4}, {4, 3, 2, 1});
}

TEST(Pooling, AWindowThatBeginsBehindTheInputDoesNotCount) {
  expectOne(R"(g (float[1,1,4] x) => (float[1,1,2] y) {
    y = MaxPool <kernel_shape = [2], strides = [2], pads = [0, 1], ceil_mode = 1> (x) })",
            floats({1, 1, 4}, {1, 2, 3, 4}), {1, 1, 2}, {2, 4});
}

TEST(Pooling, AnAverageCountsPaddingOnlyWhereItIsAskedForAndNeverWhatRoundingUpAdds) {
  const HostTensor x = floats({1, 1, 4}, {1, 2, 3, 4});
  expectOne(R"(g (float[1,1,4] x) => (float[1,1,2] y) {
    y = AveragePool <kernel_shape = [3], strides = [2], count_include_pad = 1, ceil_mode = 1> (x) })",
            x, {1, 1, 2}, {2, 3.5});
  expectOne(R"(g (float[1,1,4] x) => (float[1,1,4] y) { y = AveragePool <kernel_shape = [2], pads = [1, 0]> (x) })", x, {1, 1, 4},
            {1, 1.5, 2.5, 3.5});
  expectOne(R"(g (float[1,1,4] x) => (float[1,1,4] y) {
    y = AveragePool <kernel_shape = [2], pads = [1, 0], count_include_pad = 1> (x) })",
            x, {1, 1, 4}, {0.5, 1.5, 2.5, 3.5});
}

TEST(Folding, TakesEverySecondElementOfAConstantAndSumsEachRow) {
  expectOne(R"(g (float[3] x) => (float[3] y)
    <float[6] c = {1, 2, 3, 4, 5, 6}, int64[1] starts = {0}, int64[1] ends = {6}, int64[1] axes = {0}, int64[1] steps = {2}> {
      s = Slice (c, starts, ends, axes, steps)
      y = Add (x, s) })",
            floats({3}, {10, 20, 30}), {3}, {11, 23, 35});
  expectOne(R"(g (float[2] x) => (float[2] y) <float[2,3] c = {1, 2, 3, 4, 5, 6}, int64[1] axes = {1}> {
      s = ReduceSum <keepdims = 0> (c, axes)
      y = Add (x, s) })",
            floats({2}, {10, 20}), {2}, {16, 35});
}

TEST(Slice, BackwardsReachesTheFirstElement) {
  const std::string slice = R"(g (float[4] x) => (float[4] y)
    <int64[1] starts = {-1}, int64[1] ends = {-100}, int64[1] axes = {0}, int64[1] steps = {-1}> {
      y = Slice (x, starts, ends, axes, steps) })";
  expectOne(slice, floats({4}, {1, 2, 3, 4}), {4}, {4, 3, 2, 1});
  expectOne(R"(g (float[4] x) => (float[2] y)
    <int64[1] starts = {3}, int64[1] ends = {-5}, int64[1] axes = {0}, int64[1] steps = {-2}> {
      y = Slice (x, starts, ends, axes, steps) })",
            floats({4}, {1, 2, 3, 4}), {2}, {4, 2});
}

TEST(Pad, ReflectsWithoutRepeatingTheEdge) {
  expectOne(R"(g (float[3] x) => (float[7] y) <int64[2] pads = {2, 2}> { y = Pad <mode = "reflect"> (x, pads) })",
            floats({3}, {1, 2, 3}), {7}, {3, 2, 1, 2, 3, 2, 1});
}

TEST(Trilu, CountsDiagonalsBelowTheMainOneToo) {
  const HostTensor x = floats({3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  expectOne("g (float[3,3] x) => (float[3,3] y) <int64 k = {-1}> { y = Trilu <upper = 0> (x, k) }", x, {3, 3},
            {0, 0, 0, 4, 0, 0, 7, 8, 0});
  expectOne("g (float[3,3] x) => (float[3,3] y) <int64 k = {-1}> { y = Trilu <upper = 1> (x, k) }", x, {3, 3},
            {1, 2, 3, 4, 5, 6, 0, 8, 9});
  expectOne("g (float[3,3] x) => (float[3,3] y) <int64 k = {1}> { y = Trilu <upper = 1> (x, k) }", x, {3, 3},
            {0, 2, 3, 0, 0, 6, 0, 0, 0});
}

TEST(Resize, RoundsAHalfUpOrDownAsItIsAsked) {
  for (auto [mode, values] : {std::pair<std::string, std::vector<float>>{"round_prefer_ceil", {2, 4}},
                              {"round_prefer_floor", {1, 3}},
                              {"floor", {1, 3}},
                              {"ceil", {2, 4}}})
    expectOne("g (float[1,1,4] x) => (float[1,1,2] y) <float[1] roi = {0}, float[3] scales = {1, 1, 0.5}> { y = Resize "
              "<mode = \"nearest\", nearest_mode = \"" +
                  mode + "\", coordinate_transformation_mode = \"half_pixel\"> (x, , scales) }",
              floats({1, 1, 4}, {1, 2, 3, 4}), {1, 1, 2}, values);
}

TEST(Resize, AlignsCornersByTheScaleEvenWhereItGivesNoWholeSize) {
  expectOne(R"(g (float[1,1,2,4] x) => (float[1,1,1,2] y) <float[4] scales = {1, 1, 0.6, 0.6}> {
    y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , scales) })",
            floats({1, 1, 2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), {1, 1, 1, 2}, {1, 3.142857f});
}

TEST(Normalization, OfAnEvenNumberOfChannelsReachesFurtherAhead) {
  expectOne("g (float[1,3,1,1] x) => (float[1,3,1,1] y) { y = LRN <size = 2, alpha = 1.0, beta = 1.0, bias = 1.0> (x) }",
            floats({1, 3, 1, 1}, {1, 2, 4}), {1, 3, 1, 1}, {1 / 3.5f, 2 / 11.0f, 4 / 9.0f});
}

TEST(Normalization, OfABatchAddsAHundredThousandthUnlessToldOtherwise) {
  expectOne(R"(g (float[1,1,2] x) => (float[1,1,2] y) <float[1] s = {1}, float[1] b = {0}, float[1] m = {0}, float[1] v = {0}> {
    y = BatchNormalization (x, s, b, m, v) })",
            floats({1, 1, 2}, {1, -2}), {1, 1, 2}, {316.22777f, -632.45554f});
}

TEST(Quantization, TheResultOfAMatrixProductMayHaveAScaleForEachRow) {
  const std::vector<HostTensor> outputs = run(R"(g (uint8[2,2] a) => (uint8[2,3] y)
    <float one = {1}, uint8 zero = {0}, uint8[2,3] b = {1, 0, 1, 0, 1, 1}, float[2] scale = {1, 2}, uint8[2] zeros = {0, 0}> {
      y = QLinearMatMul (a, one, zero, b, one, zero, scale, zeros) })",
                                              {tensor<uint8_t>(HostType::UInt8, {2, 2}, {10, 20, 30, 40})});
  ASSERT_EQ(outputs.size(), 1u);
  const std::vector<uint8_t> wanted = {10, 20, 30, 15, 20, 35};
  ASSERT_EQ(size_t(outputs[0].elementCount()), wanted.size());
  EXPECT_EQ(std::vector<uint8_t>(outputs[0].as<uint8_t>(), outputs[0].as<uint8_t>() + 6), wanted);
}

/// Seven in three: the last is neither a whole part nor a third.
TEST(Split, LeavesTheLastPartWhatIsLeft) {
  const std::vector<HostTensor> outputs = run(
      "g (float[7] x) => (float[3] u, float[3] v, float[1] w) { u, v, w = Split <axis = 0, num_outputs = 3> (x) }",
      {floats({7}, {1, 2, 3, 4, 5, 6, 7})});
  ASSERT_EQ(outputs.size(), 3u);
  expectFloats(outputs[0], {3}, {1, 2, 3});
  expectFloats(outputs[1], {3}, {4, 5, 6});
  expectFloats(outputs[2], {1}, {7});
}

} // namespace
