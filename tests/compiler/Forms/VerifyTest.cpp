// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/KernelBuilder.h"

#include <functional>
#include <gmock/gmock.h>

using namespace millrace;
using namespace millrace::forms;
using testing::HasSubstr;

TEST(Verify, EveryBuiltGraphIsValid) {
  EXPECT_EQ(buildMatmul({}).verify(), "");
  EXPECT_EQ(buildMatmul({7, 40, 50, ElementType::Int8, true, true, 3}).verify(), "");
  EXPECT_EQ(buildConv({.groups = 4, .residual = true}).verify(), "");
  EXPECT_EQ(buildMaxPool(16, 9, 9, 3, 2, 1, ElementType::Fp16).verify(), "");
  EXPECT_EQ(buildLayerNorm(3, 48).verify(), "");
  EXPECT_EQ(buildAttention(12, 32, 16, true).verify(), "");
  EXPECT_EQ(buildPerceptron(4, 32, 3, ElementType::Fp16).verify(), "");
  EXPECT_EQ(buildEmbedding({.segments = 2, .positions = true}).verify(), "");
}

/// The embedding's graph after a change to its one lookup.
static std::string lookupAfter(const std::function<void(KernelGraph &, Access &)> &change) {
  KernelGraph graph = buildEmbedding({});
  change(graph, graph.kernels[0].operands[0]);
  return graph.verify();
}

TEST(Verify, ALookupThatCannotBeIsNamed) {
  EXPECT_EQ(lookupAfter([](KernelGraph &, Access &) {}), "");
  EXPECT_THAT(lookupAfter([](KernelGraph &, Access &a) { a.lookup->dim = 1; }),
              HasSubstr("lookup in 'words' is in dimension 1 of 2, whose lanes are dimension 1"));
  EXPECT_THAT(lookupAfter([](KernelGraph &, Access &a) { a.index[0] = at(0); }),
              HasSubstr("adds to an index that loops move"));
  EXPECT_THAT(lookupAfter([](KernelGraph &, Access &a) { a.lookup->index.pop_back(); }),
              HasSubstr("lookup has 1 indices for 'ids' of rank 2"));
  EXPECT_THAT(lookupAfter([](KernelGraph &graph, Access &a) {
                graph.tensors[a.lookup->tensor].hostExtent = 0;
                graph.tensors[a.lookup->tensor].type = ElementType::Fp16;
              }),
              HasSubstr("takes its indices from 'ids' of fp16 instead of int32"));
  EXPECT_THAT(lookupAfter([](KernelGraph &graph, Access &a) {
                graph.tensors[a.lookup->tensor].hostExtent = -1;
              }),
              HasSubstr("holds indices of -1 rows"));
  EXPECT_THAT(lookupAfter([](KernelGraph &graph, Access &a) {
                graph.kernels[0].results[0].access.lookup = a.lookup;
              }),
              HasSubstr("a result looks up indices"));
}

TEST(Verify, MacsAreTheDenseFormula) {
  EXPECT_EQ(buildMatmul({4, 32, 16}).macs(), 4 * 32 * 16);
  ConvSpec spec{.channels = 16,
                .height = 8,
                .width = 8,
                .filters = 32,
                .kernel = 3,
                .stride = 2,
                .pad = 1,
                .groups = 2};
  EXPECT_EQ(buildConv(spec).macs(), 32 * 4 * 4 * (16 / 2) * 9);
  // Three projections, scores and weighted sum; the copy of the scores for the maximum does not
  // count.
  EXPECT_EQ(buildAttention(12, 32, 16, false).macs(), 3 * 12 * 32 * 16 + 2 * 12 * 12 * 16);
}

TEST(Verify, APointWrittenTwiceIsNamed) {
  KernelGraph graph = buildMatmul({});
  graph.kernels[0].results[0].access.index[1] = fixed(0);
  EXPECT_THAT(graph.verify(), HasSubstr("writes 'y' twice at element 0"));
}

TEST(Verify, AMissingElementOfAnOutputIsNamed) {
  KernelGraph graph = buildMatmul({});
  graph.tensors[1].shape[0] += 1;
  EXPECT_THAT(graph.verify(), HasSubstr("output 'y' lacks element 128"));
}

TEST(Verify, AnElementThatNoOutputHoldsMayBeMissing) {
  KernelGraph graph = buildPerceptron(2, 8, 2, ElementType::Fp16);
  for (Tensor &tensor : graph.tensors)
    if (tensor.name == "layer0.y")
      tensor.shape[0] += 1;
  EXPECT_EQ(graph.verify(), "");
}

TEST(Verify, AReadBeforeTheWriteIsNamed) {
  KernelGraph graph = buildPerceptron(2, 8, 2, ElementType::Fp16);
  std::swap(graph.order[0], graph.order[1]);
  EXPECT_THAT(graph.verify(), HasSubstr("reads 'layer0.y' before all of it is written"));
}

TEST(Verify, ALoopContractedByOneOperandOnlyIsNamed) {
  KernelGraph graph = buildMatmul({});
  graph.kernels[0].terms[0].w.index[1] = fixed(0);
  EXPECT_THAT(graph.verify(), HasSubstr("contracts loop 2, which only one of them uses"));
}

TEST(Verify, MixedOperandTypesAreNamed) {
  KernelGraph graph = buildMatmul({});
  graph.tensors[0].type = ElementType::Bf16;
  EXPECT_THAT(graph.verify(), HasSubstr("multiplies bf16 by fp16"));
}

TEST(Verify, ANodeMayNotUseALaterOne) {
  KernelGraph graph = buildMatmul({});
  graph.kernels[0].nodes[2].args[0] = 3;
  EXPECT_THAT(graph.verify(), HasSubstr("uses the later node 3"));
}

TEST(Verify, ARunningLoopIsReducedOnTheWayToEveryResult) {
  const auto graphOf = [](bool reduces, bool addsAfterwards) {
    KernelGraph graph;
    const unsigned x = addTensor(graph, "x", {5, 8}, ElementType::Fp32, 1, TensorRole::Input),
                   y = addTensor(graph, "y", {8}, ElementType::Fp32, 0, TensorRole::Output);
    KernelBuilder build(graph);
    const unsigned r = build.loop(5, LoopKind::Running), l = build.loop(8);
    unsigned value = build.load({x, {at(r), at(l)}, 0});
    const unsigned each = value;
    if (reduces)
      value = build.reduce(AluOp::AddF32, value);
    if (addsAfterwards)
      value = build.op(AluOp::AddF32, {value, each});
    build.storeBits(value, {y, {at(l)}, 0});
    build.finish("total");
    return graph;
  };
  EXPECT_EQ(graphOf(true, false).verify(), "");
  EXPECT_THAT(graphOf(false, false).verify(), HasSubstr("which a running loop moves"));
  EXPECT_THAT(graphOf(true, true).verify(), HasSubstr("stores node 2, which a running loop moves"));
  KernelGraph graph = graphOf(true, false);
  Kernel &kernel = graph.kernels[0];
  Node constant;
  constant.kind = Node::Kind::Immediate;
  kernel.nodes.push_back(constant);
  kernel.results[0].node = unsigned(kernel.nodes.size() - 1);
  EXPECT_THAT(graph.verify(), HasSubstr("each running loop has to be reduced on the way to it"));
}
