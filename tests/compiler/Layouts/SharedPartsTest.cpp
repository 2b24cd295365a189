// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Is what several concatenations have as a part made and stored once?
#include "compiler/Layouts/SplitParts.h"

#include "tests/compiler/Codegen/Grid/TestMachine.h"

#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"

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

TEST(SharedParts, APartOfSeveralConcatenationsIsOneTensor) {
  const KernelGraph plain = denseBlock(4);
  ASSERT_EQ(plain.verify(), "");
  ASSERT_EQ(plain.kernels[0].results.size(), 4u);
  KernelGraph split = plain;
  EXPECT_EQ(splitParts(split, test::testMachine(20)), 4u);
  EXPECT_EQ(split.verify(), "");
  for (const Kernel &kernel : split.kernels)
    EXPECT_EQ(kernel.results.size(), 1u) << kernel.name;
  const auto expected = evaluate(plain, randomInputs(plain)), got = evaluate(split, randomInputs(plain));
  ASSERT_TRUE(expected && got);
  for (unsigned t = 0; t < plain.tensors.size(); ++t)
    if (plain.tensors[t].role == TensorRole::Output) {
      const std::vector<uint8_t> &a = (*expected)[t], &b = (*got)[t];
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); i += 2) {
        const float u = decode(ElementType::Fp16, uint32_t(a[i] | a[i + 1] << 8)),
                    v = decode(ElementType::Fp16, uint32_t(b[i] | b[i + 1] << 8));
        ASSERT_NEAR(u, v, 0.01 * std::max(1.0f, std::abs(u)));
      }
    }
}

} // namespace
