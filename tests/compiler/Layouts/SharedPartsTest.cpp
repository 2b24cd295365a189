// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Is what several concatenations have as a part made and stored once, and what a map makes of a part
// made with it?
#include "compiler/Layouts/SplitParts.h"

#include "tests/compiler/Codegen/Grid/TestMachine.h"

#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/Simplify.h"

#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::forms;
using namespace millrace::layouts;

namespace {

constexpr int64_t kSize = 6, kPart = 16;

/// y[f] = sum of w x over the channels of x, which begin at channel `first` of y.
Kernel &mix(KernelGraph &graph, unsigned x, unsigned y, int64_t filters, int64_t first, unsigned seed) {
  const int64_t channels = graph.tensors[x].shape[1];
  const unsigned w = addConstant(graph, "w" + std::to_string(seed), {filters, channels}, ElementType::Fp16, 1,
                                 randomValues(size_t(filters * channels), seed, 0.5f));
  KernelBuilder build(graph);
  const unsigned f = build.loop(filters), r = build.loop(kSize), s = build.loop(kSize),
                 c = build.loop(channels, LoopKind::Contracted);
  build.term({x, {fixed(0), at(c), at(r), at(s)}}, {w, {at(f), at(c)}}, filters * channels * kSize * kSize);
  build.store(build.accumulator(), {y, {fixed(0), at(f, 1, first), at(r), at(s)}});
  return graph.kernels[build.finish("mix" + std::to_string(seed))];
}

/// As a dense block: each layer reads what all before it made, and its quantiser a concatenation of its own.
KernelGraph denseBlock(unsigned layers) {
  KernelGraph graph;
  graph.name = "dense";
  const ElementType type = ElementType::Fp16;
  const unsigned x = addTensor(graph, "x", {1, kPart, kSize, kSize}, type, 1, TensorRole::Input);
  std::vector<unsigned> all; ///< concatenations
  for (unsigned n = 0; n < layers; ++n)
    all.push_back(addTensor(graph, "cat" + std::to_string(n), {1, (n + 2) * kPart, kSize, kSize}, type, 1));
  for (unsigned n = 0; n <= layers; ++n) { // part n is in all concatenations from the n-th on, or so
    const size_t first = n < 2 ? 0 : n - 1;
    Kernel &kernel = mix(graph, n < 2 ? x : all[n - 2], all[first], kPart, n * kPart, n + 1);
    for (size_t other = first + 1; other < all.size(); ++other) {
      kernel.results.push_back(kernel.results.front());
      kernel.results.back().access.tensor = all[other];
    }
  }
  const unsigned y = addTensor(graph, "y", {1, 40, kSize, kSize}, type, 1, TensorRole::Output);
  mix(graph, all.back(), y, 40, 0, 99);
  return graph;
}

/// The same outputs, but for the order of sums.
void expectClose(const KernelGraph &plain, const KernelGraph &other) {
  EXPECT_EQ(other.verify(), "");
  const auto expected = evaluate(plain, randomInputs(plain)), got = evaluate(other, randomInputs(other));
  ASSERT_TRUE(expected && got);
  const auto outputsOf = [](const KernelGraph &graph, const std::vector<TensorBytes> &values) {
    std::vector<float> outputs;
    for (unsigned t = 0; t < graph.tensors.size(); ++t)
      if (graph.tensors[t].role == TensorRole::Output)
        for (size_t i = 0; i + 1 < values[t].size(); i += 2)
          outputs.push_back(decode(ElementType::Fp16, uint32_t(values[t][i] | values[t][i + 1] << 8)));
    return outputs;
  };
  const std::vector<float> a = outputsOf(plain, *expected), b = outputsOf(other, *got);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], 0.01f * std::max(1.0f, std::abs(a[i])));
}

TEST(SharedParts, APartOfSeveralConcatenationsIsOneTensor) {
  const KernelGraph plain = denseBlock(4);
  ASSERT_EQ(plain.verify(), "");
  ASSERT_EQ(plain.kernels[0].results.size(), 4u);
  KernelGraph split = plain;
  EXPECT_EQ(splitParts(split, test::testMachine(20)), 4u);
  EXPECT_EQ(split.verify(), "");
  for (const Kernel &kernel : split.kernels)
    EXPECT_EQ(kernel.results.size(), 1u) << kernel.name;
  expectClose(plain, split);
}

TEST(SplitParts, LeavesWhatWouldTakeMoreVectors) {
  // 768 lanes in three vectors of 320, which the second and the fourth part lie across; alone they take four.
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {1, kPart, kSize, kSize}, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned all = addTensor(graph, "all", {1, 768, kSize, kSize}, ElementType::Fp16, 1);
  for (unsigned n = 0; n < 4; ++n)
    mix(graph, x, all, 192, n * 192, n + 1);
  const unsigned y = addTensor(graph, "y", {1, 40, kSize, kSize}, ElementType::Fp16, 1, TensorRole::Output);
  mix(graph, all, y, 40, 0, 9);
  EXPECT_EQ(splitParts(graph, test::testMachine(20)), 0u);
}

/// Two products side by side, a map over both, a product of that.
KernelGraph mappedParts() {
  KernelGraph graph;
  graph.name = "mapped";
  const ElementType type = ElementType::Fp16;
  const unsigned x = addTensor(graph, "x", {1, kPart, kSize, kSize}, type, 1, TensorRole::Input);
  const unsigned both = addTensor(graph, "both", {1, 2 * kPart, kSize, kSize}, type, 1);
  const unsigned mapped = addTensor(graph, "mapped", {1, 2 * kPart, kSize, kSize}, type, 1);
  const unsigned y = addTensor(graph, "y", {1, 40, kSize, kSize}, type, 1, TensorRole::Output);
  mix(graph, x, both, kPart, 0, 1);
  mix(graph, x, both, kPart, kPart, 2);
  KernelBuilder build(graph);
  const unsigned f = build.loop(2 * kPart), r = build.loop(kSize), s = build.loop(kSize);
  const std::vector<AffineIndex> point{fixed(0), at(f), at(r), at(s)};
  build.store(build.op(AluOp::ReluF32, {build.load({both, point})}), {mapped, point});
  build.finish("map");
  mix(graph, mapped, y, 40, 0, 3);
  return graph;
}

TEST(MergeMaps, APartThatAMapAloneReadsIsNotStored) {
  const KernelGraph plain = mappedParts();
  KernelGraph merged = plain;
  splitParts(merged, test::testMachine(20));
  EXPECT_EQ(merged.kernels.size(), 5u); // a map for each part
  mergeMaps(merged, 12);
  EXPECT_EQ(merged.kernels.size(), 3u);
  for (const Kernel &kernel : merged.kernels)
    EXPECT_FALSE(kernel.terms.empty()) << kernel.name;
  expectClose(plain, merged);
}

TEST(MergeMaps, LeavesWhatTheMachineCannotChain) {
  KernelGraph graph = mappedParts();
  splitParts(graph, test::testMachine(20));
  mergeMaps(graph, 2);
  EXPECT_EQ(graph.kernels.size(), 5u);
}

TEST(MergeMaps, LeavesWhatOthersReadToo) {
  KernelGraph graph = mappedParts();
  const unsigned other =
      addTensor(graph, "other", {1, 40, kSize, kSize}, ElementType::Fp16, 1, TensorRole::Output);
  mix(graph, 1, other, 40, 0, 4);
  splitParts(graph, test::testMachine(20));
  EXPECT_EQ(graph.kernels.size(), 6u);
  mergeMaps(graph, 12);
  EXPECT_EQ(graph.kernels.size(), 6u);
}

/// t[w, i, c]: rows of x in windows of 3 x 5, of which a map makes y; with `half`, of the first half of them.
KernelGraph windowsOfRows(bool half) {
  KernelGraph graph;
  graph.name = "windows";
  const unsigned x = addTensor(graph, "x", {12, 20, 24}, ElementType::Fp16, 2, TensorRole::Input);
  const unsigned t = addTensor(graph, "t", {16, 15, 24}, ElementType::Fp16, 2);
  const unsigned y = addTensor(graph, "y", {half ? 8 : 16, 15, 24}, ElementType::Fp16, 2, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned wy = build.loop(4), wx = build.loop(4), iy = build.loop(3), ix = build.loop(5), c = build.loop(24);
  build.store(build.op(AluOp::ReluF32, {build.load({x, {window(wy, 3, iy, 1, 0), window(wx, 5, ix, 1, 0), at(c)}})}),
              {t, {window(wy, 4, wx, 1, 0), window(iy, 5, ix, 1, 0), at(c)}});
  build.finish("cut");
  KernelBuilder map(graph);
  const std::vector<AffineIndex> point{at(map.loop(half ? 8 : 16)), at(map.loop(15)), at(map.loop(24))};
  map.store(map.op(AluOp::AddF32, {map.load({t, point}), map.constant(0.25f)}), {y, point});
  map.finish("add");
  EXPECT_EQ(graph.verify(), "");
  return graph;
}

TEST(MergeMaps, AMapOfWholeLoopsTakesTheStepsOfSeveral) {
  const KernelGraph plain = windowsOfRows(false);
  KernelGraph merged = plain;
  mergeMaps(merged, 12);
  ASSERT_EQ(merged.kernels.size(), 1u);
  EXPECT_EQ(merged.verify(), "");
  expectClose(plain, merged);
  KernelGraph half = windowsOfRows(true); // the others would be computed for nobody
  mergeMaps(half, 12);
  EXPECT_EQ(half.kernels.size(), 2u);
}

} // namespace
