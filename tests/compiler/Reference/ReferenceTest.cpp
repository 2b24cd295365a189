// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Reference/Reference.h"

#include "compiler/Reference/Lower.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <cmath>

namespace {

using millrace::HostTensor;
using millrace::HostType;

class ReferenceTest : public ::testing::Test {
protected:
  ReferenceTest() : context(mlir::MLIRContext::Threading::DISABLED) {
    millrace::registerReferenceDialects(context);
  }

  mlir::OwningOpRef<mlir::ModuleOp> parse(const char *text) {
    return mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  }

  /// The only result of @main, which must run.
  HostTensor run(const char *text, const std::vector<HostTensor> &inputs) {
    auto module = parse(text);
    EXPECT_TRUE(module);
    auto outputs = millrace::runReference(*module, inputs);
    EXPECT_TRUE(outputs) << outputs.error();
    return std::move(outputs->front());
  }

  mlir::MLIRContext context;
};

template <class T>
HostTensor tensorOf(HostType type, std::vector<int64_t> shape, std::vector<T> values) {
  HostTensor tensor = HostTensor::zeros(type, std::move(shape));
  std::copy(values.begin(), values.end(), tensor.as<T>());
  return tensor;
}

constexpr uint16_t halfOne = 0x3c00, halfTwo = 0x4000, bfloatOne = 0x3f80;

TEST_F(ReferenceTest, sums_f16_products_in_f32_and_rounds_once) {
  // 2048 + 1 + 1 + ... is 2048 if every step rounds to f16 and 2058 if only the result does.
  const char *text = R"(
    func.func @main(%a: tensor<1x11xf16>, %w: tensor<11x1xf16>) -> tensor<1x1xf16> {
      %zero = arith.constant 0.0 : f32
      %empty = tensor.empty() : tensor<1x1xf32>
      %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x1xf32>) -> tensor<1x1xf32>
      %sum = linalg.matmul ins(%a, %w : tensor<1x11xf16>, tensor<11x1xf16>) outs(%init : tensor<1x1xf32>) -> tensor<1x1xf32>
      %out = tensor.empty() : tensor<1x1xf16>
      %half = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                              iterator_types = ["parallel", "parallel"]}
        ins(%sum : tensor<1x1xf32>) outs(%out : tensor<1x1xf16>) {
        ^bb0(%x: f32, %o: f16):
          %r = arith.truncf %x : f32 to f16
          linalg.yield %r : f16
      } -> tensor<1x1xf16>
      return %half : tensor<1x1xf16>
    })";
  std::vector<uint16_t> a(11, halfOne);
  a[0] = 0x6800; // 2048
  HostTensor result = run(
      text, {tensorOf<uint16_t>(HostType::Float16, {1, 11}, a),
             tensorOf<uint16_t>(HostType::Float16, {11, 1}, std::vector<uint16_t>(11, halfOne))});
  EXPECT_EQ(*result.as<uint16_t>(), 0x6805); // 2058
}

TEST_F(ReferenceTest, sums_in_f64_what_f32_would_lose) {
  const char *text = R"(
    func.func @main(%x: tensor<3xf16>) -> tensor<f64> {
      %zero = arith.constant 0.0 : f64
      %empty = tensor.empty() : tensor<f64>
      %init = linalg.fill ins(%zero : f64) outs(%empty : tensor<f64>) -> tensor<f64>
      %sum = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>],
                             iterator_types = ["reduction"]} ins(%x : tensor<3xf16>) outs(%init : tensor<f64>) {
        ^bb0(%e: f16, %s: f64):
          %wide = arith.extf %e : f16 to f64
          %square = arith.mulf %wide, %wide : f64
          %r = arith.addf %s, %square : f64
          linalg.yield %r : f64
      } -> tensor<f64>
      return %sum : tensor<f64>
    })";
  // 65504 squared plus 1 needs 32 bits.
  HostTensor result = run(text, {tensorOf<uint16_t>(HostType::Float16, {3}, {0x7bff, halfOne, 0})});
  double expected = 65504.0 * 65504.0 + 1;
  EXPECT_EQ(*result.as<double>(), expected);
}

TEST_F(ReferenceTest, narrows_f32_to_bf16_to_nearest_even) {
  const char *text = R"(
    #id = affine_map<(i) -> (i)>
    func.func @main(%x: tensor<2xf32>) -> (tensor<2xbf16>) {
      %out = tensor.empty() : tensor<2xbf16>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
        ins(%x : tensor<2xf32>) outs(%out : tensor<2xbf16>) {
        ^bb0(%e: f32, %o: bf16):
          %t = arith.truncf %e : f32 to bf16
          linalg.yield %t : bf16
      } -> tensor<2xbf16>
      return %r : tensor<2xbf16>
    })";
  // 1 + 2^-8 lies half way between two bfloat16 and goes to the even one; 1 + 2^-8 + 2^-20 goes up.
  HostTensor result =
      run(text, {tensorOf<float>(HostType::Float32, {2}, {1.00390625f, 1.00390721f})});
  EXPECT_EQ(result.type, HostType::BFloat16);
  EXPECT_EQ(result.as<uint16_t>()[0], bfloatOne);
  EXPECT_EQ(result.as<uint16_t>()[1], bfloatOne + 1);
}

TEST_F(ReferenceTest, narrows_f64_to_f16) {
  const char *text = R"(
    #id = affine_map<(i) -> (i)>
    func.func @main(%x: tensor<1xf64>) -> (tensor<1xf16>) {
      %out = tensor.empty() : tensor<1xf16>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
        ins(%x : tensor<1xf64>) outs(%out : tensor<1xf16>) {
        ^bb0(%e: f64, %o: f16):
          %t = arith.truncf %e : f64 to f16
          linalg.yield %t : f16
      } -> tensor<1xf16>
      return %r : tensor<1xf16>
    })";
  EXPECT_EQ(*run(text, {tensorOf<double>(HostType::Float64, {1}, {2.0})}).as<uint16_t>(), halfTwo);
}

TEST_F(ReferenceTest, returns_an_argument_and_a_constant_unchanged) {
  auto module = parse(R"(
    func.func @main(%x: tensor<2xi64>) -> (tensor<2xi64>, tensor<3xi1>) {
      %c = arith.constant dense<[true, false, true]> : tensor<3xi1>
      return %x, %c : tensor<2xi64>, tensor<3xi1>
    })");
  auto outputs =
      millrace::runReference(*module, {tensorOf<int64_t>(HostType::Int64, {2}, {5, -6})});
  ASSERT_TRUE(outputs) << outputs.error();
  EXPECT_EQ((*outputs)[0].as<int64_t>()[1], -6);
  EXPECT_EQ((*outputs)[1].type, HostType::Bool);
  EXPECT_EQ((*outputs)[1].as<bool>()[2], true);
}

/// On buffers: how many operations of a kind there are.
template <class Op> int64_t countOf(mlir::ModuleOp module) {
  int64_t count = 0;
  module.walk([&](Op) { ++count; });
  return count;
}

/// Of %x, the results: a = x + x; b = a * a; a again, as 2 x 2; b again; x; the middle of b;
/// x - a as 2 x 2, of which no other form is a result.
constexpr const char *resultsText = R"(
    func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>,
                                           tensor<4xf32>, tensor<2xf32>, tensor<2x2xf32>) {
      %e = tensor.empty() : tensor<4xf32>
      %a = linalg.add ins(%x, %x : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
      %b = linalg.mul ins(%a, %a : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
      %c = linalg.sub ins(%x, %a : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
      %wide = tensor.expand_shape %a [[0, 1]] output_shape [2, 2] : tensor<4xf32> into tensor<2x2xf32>
      %part = tensor.extract_slice %b[1] [2] [1] : tensor<4xf32> to tensor<2xf32>
      %other = tensor.expand_shape %c [[0, 1]] output_shape [2, 2] : tensor<4xf32> into tensor<2x2xf32>
      return %a, %b, %wide, %b, %x, %part, %other : tensor<4xf32>, tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>,
                                                    tensor<4xf32>, tensor<2xf32>, tensor<2x2xf32>
    })";

TEST_F(ReferenceTest, gives_results_that_are_read_shared_viewed_and_given_in) {
  auto module = parse(resultsText);
  ASSERT_TRUE(module);
  const HostTensor x = tensorOf<float>(HostType::Float32, {4}, {1, 2, 3, 4});
  auto outputs = millrace::runReference(*module, {x});
  ASSERT_TRUE(outputs) << outputs.error();
  const std::vector<std::vector<float>> wanted = {{2, 4, 6, 8},    {4, 16, 36, 64}, {2, 4, 6, 8},
                                                  {4, 16, 36, 64}, {1, 2, 3, 4},    {16, 36},
                                                  {-1, -2, -3, -4}};
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_EQ(std::vector<float>((*outputs)[i].as<float>(),
                                 (*outputs)[i].as<float>() + (*outputs)[i].elementCount()),
              wanted[i])
        << "result " << i;
  EXPECT_EQ(x.as<float>()[3], 4);
}

TEST_F(ReferenceTest, makes_results_where_the_caller_wants_them) {
  auto module = parse(resultsText);
  mlir::PassManager passes(&context);
  millrace::reference::addBufferization(passes);
  ASSERT_TRUE(succeeded(passes.run(*module)));
  // a, b and x - a have the memory of a result each. What is copied: a and b to their other
  // results, x, and the middle of b.
  EXPECT_EQ(countOf<mlir::memref::AllocOp>(*module), 0);
  EXPECT_EQ(countOf<mlir::linalg::CopyOp>(*module), 4);
}

TEST_F(ReferenceTest, makes_results_of_called_functions_where_the_caller_wants_them) {
  auto module = parse(R"(
    func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
      %e = tensor.empty() : tensor<4xf32>
      %a = linalg.add ins(%x, %x : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
      return %a : tensor<4xf32>
    }
    func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
      %a = call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
      %b = call @twice(%a) : (tensor<4xf32>) -> tensor<4xf32>
      return %b, %a : tensor<4xf32>, tensor<4xf32>
    })");
  ASSERT_TRUE(module);
  auto outputs =
      millrace::runReference(*module, {tensorOf<float>(HostType::Float32, {4}, {1, 2, 3, 4})});
  ASSERT_TRUE(outputs) << outputs.error();
  EXPECT_EQ((*outputs)[0].as<float>()[3], 16);
  EXPECT_EQ((*outputs)[1].as<float>()[3], 8);
  mlir::PassManager passes(&context);
  millrace::reference::addBufferization(passes);
  ASSERT_TRUE(succeeded(passes.run(*module)));
  EXPECT_EQ(countOf<mlir::memref::AllocOp>(*module), 0);
  EXPECT_EQ(countOf<mlir::linalg::CopyOp>(*module), 0);
}

constexpr const char *gatherText = R"(
    #id = affine_map<(i) -> (i)>
    func.func @main(%x: tensor<4xf32>, %at: tensor<1xi64>) -> tensor<1xf32> {
      %out = tensor.empty() : tensor<1xf32>
      %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
        ins(%at : tensor<1xi64>) outs(%out : tensor<1xf32>) {
        ^bb0(%i: i64, %o: f32):
          %index = arith.index_cast %i : i64 to index
          %e = tensor.extract %x[%index] : tensor<4xf32>
          linalg.yield %e : f32
      } -> tensor<1xf32>
      return %r : tensor<1xf32>
    })";

TEST_F(ReferenceTest, reads_the_nearest_element_for_an_index_outside_of_its_tensor) {
  HostTensor table = tensorOf<float>(HostType::Float32, {4}, {10, 11, 12, 13});
  auto at = [&](int64_t index) {
    return *run(gatherText, {table, tensorOf<int64_t>(HostType::Int64, {1}, {index})}).as<float>();
  };
  EXPECT_EQ(at(2), 12);
  EXPECT_EQ(at(int64_t{1} << 40), 13);
  EXPECT_EQ(at(-int64_t{1} << 40), 10);
}

TEST_F(ReferenceTest, rejects_inputs_of_another_shape) {
  auto module = parse(gatherText);
  auto outputs = millrace::runReference(*module, {HostTensor::zeros(HostType::Float32, {5}),
                                                  HostTensor::zeros(HostType::Int64, {1})});
  ASSERT_FALSE(outputs);
  EXPECT_EQ(outputs.error(), "input 0 is float 5, the function takes float 4");
}

TEST_F(ReferenceTest, rejects_a_module_without_the_entry) {
  auto module = parse("func.func private @other()");
  auto outputs = millrace::runReference(*module, {});
  ASSERT_FALSE(outputs);
  EXPECT_EQ(outputs.error(), "the module has no function @main");
}

} // namespace
