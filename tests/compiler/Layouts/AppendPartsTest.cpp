// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Are parts that many concatenations read collected in vectors, with the same values, and are
// concatenations that are nothing but copies of such vectors not made?
#include "compiler/Layouts/AppendParts.h"
#include "compiler/Layouts/SplitParts.h"

#include "tests/compiler/Codegen/Grid/TestMachine.h"

#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/ForwardCopies.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace millrace;
using namespace millrace::forms;
using namespace millrace::layouts;

namespace {

struct DenseBlock {
  int64_t first = 64, growth = 32, layers = 8, size = 7;
  bool newFirst = false;  ///< the newest part in front
  bool unbounded = false; ///< parts may be infinite
};

/// y = W x over the channels of 1 x C x size x size.
void product(KernelGraph &graph, unsigned x, unsigned y, unsigned seed) {
  const std::vector<int64_t> from = graph.tensors[x].shape, to = graph.tensors[y].shape;
  const unsigned w =
      addConstant(graph, "w", {to[1], from[1]}, ElementType::Fp16, 1,
                  randomValues(size_t(to[1] * from[1]), seed, 1.7f / std::sqrt(float(from[1]))));
  KernelBuilder build(graph);
  const unsigned f = build.loop(to[1]), r = build.loop(to[2]), s = build.loop(to[3]),
                 c = build.loop(from[1], LoopKind::Contracted);
  build.term({x, {fixed(0), at(c), at(r), at(s)}}, {w, {at(f), at(c)}},
             to[1] * from[1] * to[2] * to[3]);
  build.store(build.accumulator(), {y, {fixed(0), at(f), at(r), at(s)}});
  build.finish("product");
}

/// A part copied to lanes of a concatenation, as forming does: brought there by ones unless it
/// begins with the vector.
void copy(KernelGraph &graph, unsigned part, unsigned whole, int64_t offset) {
  const std::vector<int64_t> shape = graph.tensors[part].shape;
  KernelBuilder build(graph);
  const unsigned f = build.loop(shape[1]), r = build.loop(shape[2]), s = build.loop(shape[3]);
  unsigned value = 0;
  if (offset == 0) {
    value = build.load({part, {fixed(0), at(f), at(r), at(s)}});
  } else {
    const unsigned k = build.loop(shape[1], LoopKind::Contracted);
    std::vector<float> ones(size_t(shape[1] * shape[1]), 0.0f);
    for (int64_t i = 0; i < shape[1]; ++i)
      ones[size_t(i * shape[1] + i)] = 1;
    const unsigned select =
        addConstant(graph, "select", {shape[1], shape[1]}, ElementType::Fp16, 1, ones);
    build.term({part, {fixed(0), at(k), at(r), at(s)}}, {select, {at(f), at(k)}}, 0);
    value = build.accumulator();
  }
  build.store(value, {whole, {fixed(0), at(f, 1, offset), at(r), at(s)}});
  build.finish("copy");
}

/// Each layer maps all parts before it, with factors of its own, and makes one of the sum.
KernelGraph denseBlock(const DenseBlock &d) {
  KernelGraph graph;
  graph.name = "dense";
  const ElementType type = ElementType::Fp16;
  const auto shape = [&](int64_t channels) {
    return std::vector<int64_t>{1, channels, d.size, d.size};
  };
  const unsigned x = addTensor(graph, "x", shape(24), type, 1, TensorRole::Input);
  std::vector<unsigned> parts{addTensor(graph, "p0", shape(d.first), type, 1)};
  product(graph, x, parts[0], 1);
  int64_t channels = d.first;
  for (int64_t layer = 1; layer <= d.layers; ++layer) {
    const bool last = layer == d.layers;
    unsigned whole = parts[0];
    if (parts.size() > 1) {
      whole = addTensor(graph, "whole" + std::to_string(layer), shape(channels), type, 1);
      int64_t offset = 0;
      for (size_t p = 0; p < parts.size(); ++p) {
        const unsigned part = parts[d.newFirst ? parts.size() - 1 - p : p];
        copy(graph, part, whole, offset);
        offset += graph.tensors[part].shape[1];
      }
    }
    const unsigned mapped =
        addTensor(graph, "mapped" + std::to_string(layer), shape(channels), type, 1);
    const unsigned scale = addConstant(graph, "scale", {channels}, ElementType::Fp32, 0,
                                       randomValues(size_t(channels), unsigned(100 + layer), 1));
    KernelBuilder build(graph);
    const unsigned f = build.loop(channels), r = build.loop(d.size), s = build.loop(d.size);
    const std::vector<AffineIndex> point{fixed(0), at(f), at(r), at(s)};
    build.store(build.op(AluOp::MaxF32, {build.op(AluOp::MulF32, {build.load({whole, point}),
                                                                  build.operand({scale, {at(f)}})}),
                                         build.constant(0)}),
                {mapped, point});
    build.finish("map");
    parts.push_back(addTensor(graph, last ? "y" : "p" + std::to_string(layer), shape(d.growth),
                              type, 1, last ? TensorRole::Output : TensorRole::Intermediate));
    product(graph, mapped, parts.back(), unsigned(10 + layer));
    channels += d.growth;
  }
  for (unsigned part : parts)
    graph.tensors[part].unbounded = d.unbounded;
  return graph;
}

std::vector<uint8_t> outputOf(const KernelGraph &graph) {
  EXPECT_EQ(graph.verify(), "");
  const auto tensors = evaluate(graph, randomInputs(graph));
  EXPECT_TRUE(tensors) << (tensors ? "" : tensors.error());
  for (unsigned t = 0; tensors && t < graph.tensors.size(); ++t)
    if (graph.tensors[t].role == TensorRole::Output)
      return (*tensors)[t];
  return {};
}

int64_t sweepsOf(const KernelGraph &graph, const Machine &machine) {
  grid::CompileReport report;
  const Expected<Image> image = grid::compile(graph, machine, {}, report);
  EXPECT_TRUE(image) << (image ? "" : image.error());
  int64_t vectors = 0;
  for (const grid::KernelReport &k : report.kernels)
    vectors += k.mxmVectors;
  return vectors;
}

TEST(AppendParts, OfADenseBlockLieInOneVectorThatGrows) {
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = denseBlock({});
  KernelGraph graph = plain;
  // 64 + 7 * 32 lanes fit a vector: the first two together, then one for each of six layers.
  EXPECT_EQ(appendParts(graph, machine), 2u + 6u);
  EXPECT_EQ(outputOf(graph), outputOf(plain));
  EXPECT_EQ(forwardCopies(graph), 7u);
  EXPECT_EQ(outputOf(graph), outputOf(plain));
  EXPECT_EQ(graph.macs(), plain.macs());
  EXPECT_LT(2 * sweepsOf(graph, machine), sweepsOf(plain, machine));
}

TEST(AppendParts, AreCutWhereAVectorEnds) {
  for (const auto &[superlanes, first, growth] :
       {std::tuple(20u, 96, 48), {20u, 200, 130}, {2u, 24, 5}, {2u, 1, 1}, {20u, 1, 33}}) {
    const Machine machine = test::testMachine(superlanes);
    const KernelGraph plain =
        denseBlock({.first = first, .growth = growth, .layers = 12, .size = 3});
    KernelGraph graph = plain;
    appendParts(graph, machine);
    const auto values = outputOf(plain);
    EXPECT_EQ(outputOf(graph), values) << first << " + " << growth;
    forwardCopies(graph);
    EXPECT_EQ(outputOf(graph), values) << first << " + " << growth;
    splitParts(graph, machine); // sums in another order
    EXPECT_EQ(outputOf(graph).size(), values.size());
    EXPECT_GT(sweepsOf(graph, machine), 0);
  }
}

TEST(AppendParts, InAnotherOrderOrForOneReaderAreLeft) {
  const Machine machine = test::testMachine(20);
  KernelGraph reversed = denseBlock({.newFirst = true}), few = denseBlock({.layers = 2});
  EXPECT_EQ(appendParts(reversed, machine), 0u);
  EXPECT_EQ(appendParts(few, machine), 0u);
}

TEST(AppendParts, ThatMayBeInfiniteAreLeft) {
  KernelGraph graph = denseBlock({.unbounded = true});
  EXPECT_EQ(appendParts(graph, test::testMachine(20)), 0u);
}

TEST(AppendParts, OfFewerDimensionsAreLeft) {
  // Two single lanes that come from a tensor without a lane dimension of its own.
  KernelGraph graph;
  graph.name = "halves";
  const unsigned x = addTensor(graph, "x", {6}, ElementType::Fp16, 0, TensorRole::Input),
                 a = addTensor(graph, "a", {6}, ElementType::Fp16, 0),
                 y = addTensor(graph, "y", {6, 2}, ElementType::Fp16, 1, TensorRole::Output);
  KernelBuilder first(graph);
  unsigned row = first.loop(6);
  first.store(first.op(AluOp::MaxF32, {first.load({x, {at(row)}}), first.constant(0)}),
              {a, {at(row)}});
  first.finish("a");
  for (int64_t half : {0, 1}) {
    KernelBuilder build(graph);
    row = build.loop(6);
    const unsigned lane = build.loop(1);
    build.store(build.load({a, {at(row)}}), {y, {at(row), at(lane, 1, half)}});
    build.finish("half");
  }
  const KernelGraph before = graph;
  EXPECT_EQ(appendParts(graph, test::testMachine(20)), 0u);
  EXPECT_EQ(graph, before);
}

TEST(ForwardCopies, LeavesWhatTheHostReadsAndLanesThatMove) {
  KernelGraph graph = denseBlock({.layers = 3});
  EXPECT_EQ(forwardCopies(graph), 0u); // each copy is a part of a tensor
  KernelGraph whole;
  const std::vector<int64_t> shape{1, 20, 4, 4};
  const unsigned x = addTensor(whole, "x", {1, 24, 4, 4}, ElementType::Fp16, 1, TensorRole::Input),
                 a = addTensor(whole, "a", shape, ElementType::Fp16, 1),
                 b = addTensor(whole, "b", shape, ElementType::Fp16, 1),
                 y = addTensor(whole, "y", shape, ElementType::Fp16, 1, TensorRole::Output);
  product(whole, x, a, 1);
  copy(whole, a, b, 0);
  product(whole, b, y, 2);
  const auto values = outputOf(whole);
  KernelGraph output = whole;
  output.tensors[b].role = TensorRole::Output;
  EXPECT_EQ(forwardCopies(output), 0u);
  EXPECT_EQ(forwardCopies(whole), 1u);
  EXPECT_EQ(whole.kernels.size(), 2u);
  EXPECT_EQ(outputOf(whole), values);
}

} // namespace
