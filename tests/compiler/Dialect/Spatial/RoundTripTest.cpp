// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernel graph to text and back: the same graph, the same values.
#include "compiler/Dialect/Spatial/IR/Spatial.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/Former/Build.h"
#include "compiler/Forms/Rewritings/Rewritings.h"
#include "compiler/Forms/Rewritings/SplitTables.h"
#include "compiler/Import/Onnx/Import.h"

#include "arch/spec/MachineFile.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::forms;

namespace {

std::string textOf(const KernelGraph &graph) {
  mlir::MLIRContext context;
  context.loadDialect<spatial::SpatialDialect>();
  auto module = spatial::exportGraph(graph, context);
  if (failed(module) || failed(mlir::verify(**module)))
    return "";
  std::string text;
  llvm::raw_string_ostream out(text);
  (*module)->print(out);
  return text;
}

KernelGraph parse(const std::string &text) {
  mlir::MLIRContext context;
  context.loadDialect<spatial::SpatialDialect>();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module)
    return {};
  auto graph = spatial::importGraph(*module);
  return failed(graph) ? KernelGraph{} : *graph;
}

/// The graph after a way through text, which must be that graph.
KernelGraph expectSame(const KernelGraph &graph) {
  const std::string text = textOf(graph);
  KernelGraph again = parse(text);
  EXPECT_EQ(again.name, graph.name);
  EXPECT_EQ(again.tensors.size(), graph.tensors.size());
  for (size_t t = 0; t < std::min(again.tensors.size(), graph.tensors.size()); ++t)
    EXPECT_TRUE(again.tensors[t] == graph.tensors[t]) << "tensor " << graph.tensors[t].name;
  EXPECT_EQ(again.kernels.size(), graph.kernels.size());
  for (size_t k = 0; k < std::min(again.kernels.size(), graph.kernels.size()); ++k)
    EXPECT_TRUE(again.kernels[k] == graph.kernels[k]) << "kernel " << graph.kernels[k].name;
  EXPECT_TRUE(again.hostCalls == graph.hostCalls);
  EXPECT_EQ(again.order, graph.order);
  EXPECT_EQ(again.hostModule, graph.hostModule);
  EXPECT_EQ(textOf(again), text) << "the text is not a normal form";
  return again;
}

void expectSameValues(const KernelGraph &graph) {
  const KernelGraph again = expectSame(graph);
  const auto inputs = randomInputs(graph);
  auto before = evaluate(graph, inputs), after = evaluate(again, inputs);
  ASSERT_TRUE(before) << before.error();
  ASSERT_TRUE(after) << after.error();
  EXPECT_EQ(*before, *after);
}

TEST(SpatialRoundTrip, MatmulsOfEveryType) {
  for (ElementType type : {ElementType::Fp16, ElementType::Bf16, ElementType::Int8,
                           ElementType::E4M3, ElementType::E5M2})
    expectSameValues(buildMatmul({.m = 3, .k = 40, .n = 70, .type = type, .relu = true}));
}

TEST(SpatialRoundTrip, ConvolutionsWithPadsStridesGroupsAndResiduals) {
  expectSameValues(buildConv({.stride = 2, .residual = false}));
  expectSameValues(buildConv({.residual = true}));
  expectSameValues(buildConv({.groups = 4, .type = ElementType::Int8}));
}

TEST(SpatialRoundTrip, LookupsInTablesWholeAndInParts) {
  expectSameValues(buildEmbedding({.segments = 2, .positions = true}));
  KernelGraph graph = buildEmbedding({.rows = 50});
  ASSERT_EQ(splitTables(graph, 20), 1u);
  expectSameValues(graph);
}

TEST(SpatialRoundTrip, PoolingNormalisationAttentionAndLayers) {
  expectSameValues(buildMaxPool(16, 8, 8, 3, 2, 1, ElementType::Fp16));
  expectSameValues(buildLayerNorm(5, 48));
  expectSameValues(buildAttention(6, 32, 16, true));
  expectSameValues(buildPerceptron(4, 32, 3, ElementType::Bf16));
}

TEST(SpatialRoundTrip, ConstantsThatEqualASplatStayWhatTheyAre) {
  KernelGraph graph = buildMatmul({.m = 2, .k = 32, .n = 32});
  const unsigned full =
      addConstant(graph, "full", {4}, ElementType::Fp32, 0, {1.5f, 1.5f, 1.5f, 1.5f});
  const unsigned splat = addSplat(graph, "splat", {4}, ElementType::Fp32, 0, 1.5f);
  const unsigned one = addSplat(graph, "one", {1}, ElementType::UInt8, 0, 7.f);
  ASSERT_EQ(graph.tensors[full].data.size(), 16u);
  ASSERT_EQ(graph.tensors[splat].data.size(), 4u);
  ASSERT_EQ(graph.tensors[one].data.size(), 1u);
  expectSame(graph);
}

/// The model's graph as formed, and as rewritten for tsp-v1.
void expectSameModel(const char *path, Precision precision,
                     std::map<std::string, int64_t> dims = {}) {
  mlir::MLIRContext context;
  loadImportDialects(context);
  ImportOptions import;
  import.dims = dims;
  auto module = importOnnx(path, import, context);
  ASSERT_TRUE(module) << module.error();
  auto graph = buildKernelGraph(**module, {.precision = precision});
  ASSERT_TRUE(succeeded(graph));
  expectSame(*graph);
  auto machine = loadMachine("tsp-v1");
  ASSERT_TRUE(machine) << machine.error();
  auto lines = rewrite(*graph, *machine);
  ASSERT_TRUE(lines) << lines.error();
  EXPECT_EQ(graph->verify(), "");
  expectSame(*graph);
}

TEST(SpatialRoundTrip, Mnist) { expectSameModel("models/fixtures/mnist.onnx", Precision::Fp16); }

TEST(SpatialRoundTrip, ConvnetInt8WithItsWindowedInput) {
  expectSameModel("models/fixtures/convnet_int8.onnx", Precision::Int8);
}

TEST(SpatialRoundTrip, TinyGpt2WithItsHostCalls) {
  expectSameModel("models/fixtures/tiny_gpt2.onnx", Precision::Fp16,
                  {{"batch_size", 1}, {"seq_len", 3}, {"past_seq_len", 4}, {"total_seq_len", 7}});
}

} // namespace
