// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each hemisphere stores of constants and of values.
#include "Dealt.h"

#include "compiler/Codegen/Grid/Storage.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/KernelBuilder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

using namespace millrace;
using test::Dealt;

namespace {

/// y[b, a, r, f] = x[a, b, r, c] w[f, c]: images whose rows do not follow each other in the result.
forms::KernelGraph productOfImages(int64_t filters) {
  using namespace forms;
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {2, 3, 8, 32}, ElementType::Fp16, 3, TensorRole::Input);
  const unsigned w =
      addTensor(graph, "w", {filters, 32}, ElementType::Fp16, 1, TensorRole::Constant);
  for (int64_t i = 0; i < filters * 32; ++i) // no two tiles are equal
    graph.tensors[w].data.insert(graph.tensors[w].data.end(), {uint8_t(i / 32), 0x3c});
  const unsigned y =
      addTensor(graph, "y", {3, 2, 8, filters}, ElementType::Fp16, 3, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned a = build.loop(2), b = build.loop(3), row = build.loop(8),
                 filter = build.loop(filters);
  const unsigned channel = build.loop(32, LoopKind::Contracted);
  build.term({x, {at(a), at(b), at(row), at(channel)}, 0}, {w, {at(filter), at(channel)}, 0},
             2 * 3 * 8 * 32 * filters);
  build.store(build.accumulator(), {y, {at(b), at(a), at(row), at(filter)}, 0});
  build.finish("product");
  return graph;
}

TEST(Hemispheres, ImagesThatTakeTheSameWeightsGoToOneHemisphereWhereTheseLieOnce) {
  const auto solved = [](int64_t filters, std::optional<uint64_t> room) {
    Dealt dealt(productOfImages(filters), 1);
    EXPECT_GT(dealt.problem().works.front().instances.size(), 1u);
    Expected<grid::Partition> p = grid::solve(dealt.problem(room), "spread");
    EXPECT_TRUE(p) << p.error();
    const Status s = grid::verify(dealt.problem(), *p);
    EXPECT_TRUE(s) << s.error();
    return p->weightRows;
  };
  for (const unsigned tiles : {2, 3}) { // each in one hemisphere, the odd one in either
    const std::vector<uint64_t> roomy = solved(32 * tiles, 1000), tight = solved(32 * tiles, 0);
    EXPECT_EQ(roomy[0], roomy[1]);
    EXPECT_EQ(tight[0] + tight[1], roomy[0]);
    EXPECT_EQ(std::min(tight[0], tight[1]), roomy[0] / tiles);
  }
}

TEST(Hemispheres, StoreTheRowsThatTheyReadUnlessAllAreWanted) {
  const forms::KernelGraph layers = forms::buildPerceptron(30, 32, 3, ElementType::Fp16);
  for (const bool isWhole : {false, true}) {
    Dealt dealt(layers, 1);
    const grid::PartitionProblem problem = dealt.problem();
    const Expected<grid::Partition> p = grid::solve(problem, "spread");
    ASSERT_TRUE(p) << p.error();
    for (unsigned t = 0; isWhole && t < layers.tensors.size(); ++t)
      problem.c.whole.insert(t);
    grid::Storage storage(problem.c, problem.works, *p);
    std::vector<size_t> order(layers.kernels.size());
    std::iota(order.begin(), order.end(), 0);
    storage.planCopies(order, grid::CopiesFor::Speed);
    ASSERT_TRUE(storage.plan(0, false));
    for (size_t k = 0; k < layers.kernels.size(); ++k)
      ASSERT_TRUE(storage.allocateFor(k));
    unsigned copies = 0;
    for (unsigned t = 0; t < layers.tensors.size(); ++t)
      for (const grid::Copy &copy : problem.c.layouts[t].copies) {
        if (layers.tensors[t].role != forms::TensorRole::Intermediate)
          continue;
        ++copies;
        int64_t rows = 0;
        for (const grid::Segment &segment : copy.tiles.front())
          rows += segment.rows;
        EXPECT_EQ(copy.isPart, !isWhole);
        EXPECT_EQ(rows, isWhole ? 30 : 15);
        // The hemispheres' rows follow each other.
        EXPECT_EQ(copy.tiles.front().front().firstRow,
                  isWhole || copy.hemisphere == Hemisphere::West ? 0 : 15);
      }
    EXPECT_GE(copies, 4u);
  }
}

TEST(Hemispheres, StoreTheRowsOfAConstantThatTheyRead) {
  using namespace forms;
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {30, 32}, ElementType::Fp32, 1, TensorRole::Input);
  const unsigned bias = addSplat(graph, "bias", {30, 32}, ElementType::Fp32, 1, 0.5f);
  const unsigned y = addTensor(graph, "y", {30, 32}, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned row = build.loop(30), lane = build.loop(32);
  build.store(build.op(AluOp::AddF32, {build.operand({x, {at(row), at(lane)}, 0}),
                                       build.operand({bias, {at(row), at(lane)}, 0})}),
              {y, {at(row), at(lane)}, 0});
  build.finish("sum");
  Dealt dealt(graph, 1);
  const grid::PartitionProblem problem = dealt.problem();
  const Expected<grid::Partition> p = grid::solve(problem, "spread");
  ASSERT_TRUE(p) << p.error();
  grid::Storage storage(problem.c, problem.works, *p);
  storage.planCopies({0}, grid::CopiesFor::Speed);
  ASSERT_TRUE(storage.plan(0, false));
  ASSERT_TRUE(storage.allocateFor(0));
  ASSERT_EQ(problem.c.layouts[bias].copies.size(), 2u);
  for (const grid::Copy &copy : problem.c.layouts[bias].copies) {
    EXPECT_TRUE(copy.isPart);
    ASSERT_EQ(copy.tiles.front().size(), 1u);
    EXPECT_EQ(copy.tiles.front().front().firstRow, copy.hemisphere == Hemisphere::West ? 0 : 15);
    EXPECT_EQ(copy.tiles.front().front().rows, 15);
  }
}

} // namespace
