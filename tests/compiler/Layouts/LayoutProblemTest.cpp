// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does a layout problem know what kernels cost from what it knows of their terms, and of a graph that is formed again?
#include "compiler/Layouts/Assign.h"
#include "compiler/Layouts/LayoutProblem.h"

#include "tests/compiler/Codegen/Grid/TestMachine.h"

#include "compiler/Forms/Builders.h"
#include "compiler/Forms/KernelBuilder.h"

#include <gtest/gtest.h>

#include <random>

using namespace millrace;
using namespace millrace::forms;
using namespace millrace::layouts;

namespace {

/// y = sum of w_n x_n over `parts` tensors of 32 channels that are made of one input.
KernelGraph sumOfParts(unsigned parts) {
  KernelGraph graph;
  graph.name = "parts";
  const ElementType type = ElementType::Fp16;
  const std::vector<int64_t> shape{1, 32, 12, 10};
  const unsigned x = addTensor(graph, "x", shape, type, 1, TensorRole::Input);
  const unsigned y = addTensor(graph, "y", {1, 24, 12, 10}, type, 1);
  const unsigned z = addTensor(graph, "z", {1, 160, 12, 10}, type, 1, TensorRole::Output);
  auto convolve = [&](std::vector<unsigned> from, unsigned to) {
    const int64_t filters = graph.tensors[to].shape[1];
    KernelBuilder build(graph);
    const unsigned f = build.loop(filters), r = build.loop(12), s = build.loop(10);
    for (unsigned t : from) {
      const int64_t channels = graph.tensors[t].shape[1];
      const unsigned w = addConstant(graph, "w", {filters, channels}, type, 1,
                                     randomValues(size_t(filters * channels), t + 1, 0.1f));
      const unsigned c = build.loop(channels, LoopKind::Contracted);
      build.term({t, {fixed(0), at(c), at(r), at(s)}}, {w, {at(f), at(c)}}, filters * channels * 120);
    }
    build.store(build.accumulator(), {to, {fixed(0), at(f), at(r), at(s)}});
    build.finish("conv");
  };
  std::vector<unsigned> made;
  for (unsigned n = 0; n < parts; ++n) {
    made.push_back(addTensor(graph, "part" + std::to_string(n), shape, type, 1));
    convolve({x}, made.back());
  }
  convolve(made, y);
  convolve({y}, z);
  return graph;
}

TEST(LayoutProblem, KnowsTheCostOfASumFromThatOfItsTerms) {
  const Machine machine = test::testMachine(20);
  const KernelGraph graph = sumOfParts(4);
  const auto cache = std::make_shared<CostCache>();
  const LayoutProblem problem(graph, machine, cache);
  size_t sum = 0;
  while (problem.graph.kernels[problem.factors[sum].kernel].terms.size() < 4)
    ++sum;
  const Factor &factor = problem.factors[sum];
  const Kernel &kernel = graph.kernels[factor.kernel];
  ASSERT_EQ(factor.variables.size(), 5u);
  std::mt19937 draw(1);
  unsigned possible = 0;
  for (unsigned n = 0; n < 400; ++n) {
    Choice choice(problem.variables.size(), 0);
    const unsigned same = draw();
    std::vector<unsigned> own;
    for (unsigned v : factor.variables) { // often all alike, or nothing is possible
      choice[v] = (n % 4 ? same : unsigned(draw())) % unsigned(problem.variables[v].candidates.size());
      own.push_back(choice[v]);
    }
    const std::vector<Layout> layouts = problem.layoutsOf(choice);
    const LayoutOf layoutOf = [&](unsigned t) -> const Layout & { return layouts[t]; };
    const auto layout = KernelLayout::of(graph, kernel, machine, layoutOf);
    const std::optional<Cost> known = problem.costOf(sum, own);
    const std::optional<Cost> fresh = layout ? costOf(graph, kernel, machine, *layout, layoutOf,
                                                      [&](size_t term) {
                                                        return termCostOf(graph, kernel, machine, *layout,
                                                                          layoutOf, term);
                                                      })
                                             : std::nullopt;
    ASSERT_EQ(known.has_value(), fresh.has_value());
    if (!known)
      continue;
    ++possible;
    EXPECT_EQ(known->sweeps, fresh->sweeps);
    EXPECT_EQ(known->weights, fresh->weights);
    EXPECT_EQ(known->operations, fresh->operations);
    EXPECT_EQ(known->kernels, fresh->kernels);
  }
  EXPECT_GT(possible, 50u);
}

TEST(LayoutProblem, EqualTermsAreLookedAtOnceHoweverManyThereAre) {
  const Machine machine = test::testMachine(20);
  std::vector<size_t> terms;
  for (unsigned parts : {3, 6}) {
    const KernelGraph graph = sumOfParts(parts);
    const auto cache = std::make_shared<CostCache>();
    const LayoutProblem problem(graph, machine, cache);
    for (size_t f = 0; f < problem.factors.size(); ++f) // all alike
      for (unsigned c = 0; c < 8; ++c)
        problem.cost(f, std::vector<unsigned>(problem.factors[f].variables.size(), c));
    terms.push_back(cache->terms.size());
  }
  EXPECT_GT(terms[0], 0u);
  EXPECT_EQ(terms[0], terms[1]);
}

TEST(LayoutProblem, AChoiceIsRememberedForAGraphThatIsFormedAgain) {
  const Machine machine = test::testMachine(20);
  const auto cache = std::make_shared<CostCache>();
  KernelGraph first = sumOfParts(3), second = first, alone = first;
  const auto lines = assignLayouts(first, machine, "exact", 0, nullptr, cache);
  ASSERT_TRUE(lines);
  const size_t solved = cache->choices.size(); // with the input once, and with copies of it
  EXPECT_GE(solved, 1u);
  ASSERT_TRUE(assignLayouts(second, machine, "exact", 0, nullptr, cache));
  EXPECT_EQ(cache->choices.size(), solved);
  ASSERT_TRUE(assignLayouts(alone, machine, "exact"));
  EXPECT_EQ(first, second);
  EXPECT_EQ(first, alone);
}

/// Where room is spared, values count beside weights, at the places of the order where they are alive.
TEST(LayoutProblem, SparesRoomOfValuesWhereMemoryIsShort) {
  const KernelGraph graph = sumOfParts(4);
  unsigned mended = 0;
  for (unsigned rows : {6, 7, 8, 9, 10, 12, 20, 4096}) {
    Machine machine = test::testMachine(20);
    machine.memory.rowsPerBank = rows;
    const LayoutProblem ample(graph, machine), spared(graph, machine, nullptr, {}, /*sparesRoom=*/true);
    const LayoutSolver &exact = layoutSolvers().front();
    const Choice fast = exact.solve(ample, 0), small = exact.solve(spared, 0);
    ASSERT_TRUE(verify(spared, small)) << rows;
    const int64_t excess = spared.excessBytes(small);
    EXPECT_LE(excess, std::max<int64_t>(0, spared.excessBytes(fast))) << rows;
    EXPECT_LE(excess, std::max<int64_t>(0, spared.excessBytes(Choice(small.size(), 0)))) << rows;
    if (rows == 4096) {
      EXPECT_EQ(small, fast) << "there is room";
    }
    mended += excess <= 0 && spared.excessBytes(fast) > 0;
  }
  EXPECT_GT(mended, 0u) << "no size of the memory that only fits with values counted";
}

TEST(LayoutProblem, CountsWhatIsAliveAtEachPlace) {
  const Machine machine = test::testMachine(20);
  const KernelGraph graph = sumOfParts(3);
  const LayoutProblem problem(graph, machine);
  const Choice plain(problem.variables.size(), 0);
  // 120 rows of two bytes: the input, of which three parts are made, their sum, what is made of it.
  const int64_t tensor = int64_t(120) * 2 * machine.lanes();
  std::vector<int64_t> tensors;
  for (const int64_t bytes : problem.liveBytes(plain))
    tensors.push_back(bytes / tensor);
  EXPECT_EQ(tensors, (std::vector<int64_t>{2, 3, 4, 4, 2}));
}

TEST(LayoutProblem, CountsAConstantOnceAndNoInstalledValueAsWeights) {
  const Machine machine = test::testMachine(20);
  for (const TensorRole role : {TensorRole::Constant, TensorRole::Input}) {
    KernelGraph graph;
    graph.name = "products";
    const ElementType type = ElementType::Fp16;
    const unsigned w = role == TensorRole::Constant
                           ? addConstant(graph, "w", {24, 8}, type, 1, randomValues(24 * 8, 1, 0.1f))
                           : addTensor(graph, "w", {24, 8}, type, 1, role);
    for (unsigned n = 0; n < 3; ++n) {
      const unsigned x = addTensor(graph, "x", {10, 8}, type, 1, TensorRole::Input),
                     y = addTensor(graph, "y", {10, 24}, type, 1, TensorRole::Output);
      KernelBuilder build(graph);
      const unsigned r = build.loop(5), s = build.loop(2), c = build.loop(24),
                     k = build.loop(8, LoopKind::Contracted);
      const AffineIndex row{0, {{r, 2}, {s, 1}}}; // of no one loop: plain for good
      build.term({x, {row, at(k)}, 0}, {w, {at(c), at(k)}, 0}, 0);
      build.store(build.accumulator(), {y, {row, at(c)}, 0});
      build.finish("product");
    }
    ASSERT_EQ(graph.verify(), "");
    const LayoutProblem problem(graph, machine);
    ASSERT_TRUE(problem.factors.empty());
    EXPECT_EQ(problem.weightBytes({}),
              role == TensorRole::Constant ? int64_t(24) * 2 * machine.lanes() : 0);
  }
}

TEST(KernelLayout, OfTwoResultsHasTheSameRowsInBoth) {
  const Machine machine = test::testMachine(20);
  KernelGraph graph;
  const std::vector<int64_t> shape{1, 32, 12, 10};
  const unsigned x = addTensor(graph, "x", shape, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned made[] = {addTensor(graph, "a", shape, ElementType::Fp16, 1),
                           addTensor(graph, "b", {1, 12, 10, 32}, ElementType::Fp32, 3)};
  KernelBuilder build(graph);
  const unsigned c = build.loop(32), h = build.loop(12), w = build.loop(10);
  const unsigned value = build.load({x, {fixed(0), at(c), at(h), at(w)}, 0});
  build.store(value, {made[0], {fixed(0), at(c), at(h), at(w)}, 0});
  build.store(value, {made[1], {fixed(0), at(h), at(w), at(c)}, 0});
  build.finish("both");
  ASSERT_EQ(graph.verify(), "");
  // Two bands of six rows; with the row before and the one behind that a window reads, eight.
  const auto banded = [&](unsigned t, unsigned dim, int64_t halo) {
    Layout layout = Layout::plain(graph.tensors[t]);
    layout.dims[dim] = {6 + 2 * halo, 1, 2, 6, halo, 32};
    layout.lanes = 64;
    return layout;
  };
  for (const int64_t first : {0, 1})
    for (const int64_t second : {0, 1}) {
      const std::vector<Layout> layouts{banded(x, 2, 1), banded(made[0], 2, first), banded(made[1], 1, second)};
      const LayoutOf layoutOf = [&](unsigned t) -> const Layout & { return layouts[t]; };
      EXPECT_EQ(KernelLayout::of(graph, graph.kernels[0], machine, layoutOf).has_value(), first == second) << first << second;
    }
}

} // namespace
