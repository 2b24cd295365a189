// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Judges.h"

#include "compiler/Import/Onnx/Import.h"

#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace::driver {
namespace {

/// a and b are computed of the input, c of b, d of a and c.
constexpr const char *kGraph = R"(
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = arith.addf %x, %x {onnx.value = "a"} : tensor<4xf32>
  %b = arith.mulf %x, %x {onnx.value = "b"} : tensor<4xf32>
  %m = arith.negf %b : tensor<4xf32>
  %c = arith.addf %m, %x {onnx.value = "c"} : tensor<4xf32>
  %d = arith.addf %a, %c {onnx.value = "d"} : tensor<4xf32>
  return %d : tensor<4xf32>
}
)";

HostTensor four(float error) {
  HostTensor tensor = HostTensor::zeros(HostType::Float32, {4});
  std::fill_n(tensor.as<float>(), 4, 1 + error);
  return tensor;
}

struct Graph {
  explicit Graph(const char *text = kGraph) {
    loadImportDialects(context);
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  }
  std::optional<Departure> departure(const Values &values) {
    const Values judged = {{"a", four(0)}, {"b", four(0)}, {"c", four(0)}, {"d", four(0)}};
    compared = 0;
    return firstDeparture(*module, values, judged, 0.01, compared);
  }
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  uint64_t compared = 0;
};

TEST(Departure, IsNoneWhereErrorsAreThoseOfRounding) {
  Graph graph;
  EXPECT_FALSE(graph.departure(
      {{"a", four(0.001F)}, {"b", four(0.009F)}, {"c", four(0.009F)}, {"d", four(0.002F)}}));
  EXPECT_EQ(graph.compared, 4u);
}

TEST(Departure, IsTheFirstOfSeveral) {
  Graph graph;
  const auto found = graph.departure(
      {{"a", four(0)}, {"b", four(0.001F)}, {"c", four(0.5F)}, {"d", four(0.5F)}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->value, "c");
  EXPECT_NEAR(found->relativeL2, 0.5, 1e-6);
  EXPECT_NEAR(found->before, 0.001, 1e-6);
  EXPECT_EQ(graph.compared, 3u);
}

TEST(Departure, OfWhatNobodyComparedTheErrorsBeforeItCount) {
  Graph graph; // b has no rival: c stands beside x alone, and d has all of its error from c
  const auto found = graph.departure({{"a", four(0)}, {"c", four(0.02F)}, {"d", four(0.03F)}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->value, "c");
  EXPECT_EQ(found->before, 0);
  EXPECT_FALSE(graph.departure({{"b", four(0.009F)}, {"c", four(0.07F)}, {"d", four(0.5F)}}));
}

TEST(Departure, ValuesOfAnotherShapeAreNotCompared) {
  Graph graph;
  HostTensor turned = four(9);
  turned.shape = {2, 2};
  EXPECT_FALSE(graph.departure({{"b", turned}}));
  EXPECT_EQ(graph.compared, 0u);
}

TEST(Departure, ANaNDeparts) {
  Graph graph;
  const auto found = graph.departure({{"a", four(NAN)}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->value, "a");
  EXPECT_TRUE(std::isnan(found->relativeL2));
}

TEST(Reference, GivesOutputsAndWhatIsWanted) {
  Graph graph(R"(
func.func @main(%x: tensor<4xf32> {onnx.name = "x"}) -> (tensor<4xf32> {onnx.name = "y"}) {
  %e = tensor.empty() : tensor<4xf32>
  %b = linalg.mul {onnx.value = "b"} ins(%x, %x : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %c = linalg.sub {onnx.value = "c"} ins(%x, %b : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %d = linalg.add {onnx.value = "d"} ins(%c, %x : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %d : tensor<4xf32>
}
)");
  HostTensor x = HostTensor::zeros(HostType::Float32, {4});
  for (int k = 0; k < 4; ++k)
    x.as<float>()[k] = float(k);
  auto function = *graph.module->getOps<mlir::func::FuncOp>().begin();
  const Expected<Values> values = referenceValues(*graph.module, {{"x", x}}, {"b", "c", "none"});
  ASSERT_TRUE(values) << values.error();
  ASSERT_EQ(values->size(), 3u);
  for (int k = 0; k < 4; ++k) {
    EXPECT_EQ(values->at("b").as<float>()[k], float(k * k));
    EXPECT_EQ(values->at("c").as<float>()[k], float(k - k * k));
    EXPECT_EQ(values->at("y").as<float>()[k], float(2 * k - k * k));
  }
  EXPECT_EQ(function.getNumResults(), 1u) << "the module is as it was";
  const Expected<Values> lacking = referenceValues(*graph.module, {}, {});
  ASSERT_FALSE(lacking);
  EXPECT_NE(lacking.error().find("'x'"), std::string::npos);
}

} // namespace
} // namespace millrace::driver
