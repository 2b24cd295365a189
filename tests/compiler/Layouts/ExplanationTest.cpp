// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Is the runner-up that an explanation names the best choice without the layout that was chosen,
// and is what it says of kernels and replicas so?
#include "compiler/Layouts/Explanation.h"

#include "tests/compiler/Codegen/Grid/TestMachine.h"

#include "compiler/Forms/Builders.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace millrace;
using namespace millrace::forms;
using namespace millrace::layouts;

namespace {

/// y = a convolution of x with windows of `taps` x `taps`.
void convolve(KernelGraph &graph, unsigned x, unsigned y, int64_t taps, unsigned seed) {
  const int64_t channels = graph.tensors[x].shape[1], k = channels * taps * taps;
  const std::vector<int64_t> shape = graph.tensors[y].shape;
  const unsigned w =
      addConstant(graph, "w" + std::to_string(seed), {shape[1], channels, taps, taps},
                  ElementType::Fp16, 1, randomValues(size_t(shape[1] * k), seed));
  KernelBuilder build(graph);
  const unsigned f = build.loop(shape[1]), oy = build.loop(shape[2]), ox = build.loop(shape[3]),
                 c = build.loop(channels, LoopKind::Contracted),
                 ky = build.loop(taps, LoopKind::Contracted),
                 kx = build.loop(taps, LoopKind::Contracted);
  build.term(
      {x, {fixed(0), at(c), window(oy, 1, ky, 1, -(taps / 2)), window(ox, 1, kx, 1, -(taps / 2))}},
      {w, {at(f), at(c), at(ky), at(kx)}}, shape[1] * shape[2] * shape[3] * k);
  build.store(build.accumulator(), {y, {fixed(0), at(f), at(oy), at(ox)}});
  build.finish("conv" + std::to_string(seed));
}

/// y = the largest of 3 x 3 neighbours of each channel.
void pool(KernelGraph &graph, unsigned x, unsigned y) {
  const std::vector<int64_t> shape = graph.tensors[y].shape;
  KernelBuilder build(graph);
  const unsigned f = build.loop(shape[1]), r = build.loop(shape[2]), c = build.loop(shape[3]);
  std::optional<unsigned> value;
  for (int64_t tap = 0; tap < 9; ++tap) {
    const unsigned each =
        build.op(AluOp::CvtF16F32,
                 {build.operand({x,
                                 {fixed(0), at(f), at(r, 1, tap / 3 - 1), at(c, 1, tap % 3 - 1)},
                                 encode(ElementType::Fp16, -INFINITY)})});
    value = value ? build.op(AluOp::MaxF32, {*value, each}) : each;
  }
  build.store(*value, {y, {fixed(0), at(f), at(r), at(c)}});
  build.finish("pool");
}

struct Net {
  int64_t narrow = 20, height = 9, width = 10;
  bool pools = false; ///< a pooling between the convolutions
};

/// 40 channels in and out, `narrow` ones between them.
KernelGraph graphOf(const Net &net) {
  KernelGraph graph;
  graph.name = "net";
  const auto add = [&](const char *name, int64_t channels, TensorRole role) {
    return addTensor(graph, name, {1, channels, net.height, net.width}, ElementType::Fp16, 1, role);
  };
  const unsigned x = add("x", 40, TensorRole::Input);
  const unsigned a = add("a", net.narrow, TensorRole::Intermediate),
                 b = add("b", net.narrow, TensorRole::Intermediate),
                 y = add("y", 40, TensorRole::Output);
  convolve(graph, x, a, 1, 1);
  if (net.pools)
    pool(graph, a, b);
  else
    convolve(graph, a, b, 3, 2);
  convolve(graph, b, y, 1, 3);
  return graph;
}

struct Least {
  std::vector<double> without; ///< per variable: the least cost if it has not the chosen candidate
};

Least byTrial(const LayoutProblem &problem, const Choice &chosen) {
  Least least{std::vector<double>(chosen.size(), kImpossible)};
  std::vector<unsigned> sizes, all;
  for (unsigned v = 0; v < chosen.size(); ++v) {
    sizes.push_back(unsigned(problem.variables[v].candidates.size()));
    all.push_back(v);
  }
  Choice choice(chosen.size(), 0);
  std::function<void(unsigned)> visit = [&](unsigned v) {
    if (v == choice.size()) {
      const double cost = problem.cost(choice);
      for (unsigned u : all)
        if (choice[u] != chosen[u])
          least.without[u] = std::min(least.without[u], cost);
      return;
    }
    for (choice[v] = 0; choice[v] < sizes[v]; ++choice[v])
      visit(v + 1);
  };
  visit(0);
  return least;
}

class AnyNet : public testing::TestWithParam<unsigned> {};

TEST_P(AnyNet, ItsRunnersUpAreWhatTrialFinds) {
  const unsigned seed = GetParam();
  const KernelGraph graph = graphOf({.narrow = 6 + int64_t(seed * 11 % 50),
                                     .height = 4 + int64_t(seed % 5),
                                     .width = 3 + int64_t(seed * 3 % 7),
                                     .pools = seed % 3 == 0});
  const Machine machine = test::testMachine(seed % 4 ? 20 : 8);
  const LayoutProblem problem(graph, machine);
  ASSERT_LE(problem.variables.size(), 3u);
  for (const LayoutSolver &solver : layoutSolvers()) {
    const Choice chosen = solver.solve(problem, seed);
    const Least least = byTrial(problem, chosen);
    const Explanation found = explain(problem, chosen);
    ASSERT_EQ(found.tensors.size(), problem.variables.size());
    for (size_t v = 0; v < chosen.size(); ++v) {
      const std::string &name = graph.tensors[problem.variables[v].tensors.front()].name;
      const TensorExplanation &e = *std::find_if(
          found.tensors.begin(), found.tensors.end(),
          [&](const TensorExplanation &other) { return other.tensors.front() == name; });
      ASSERT_TRUE(e.runnerUp);
      EXPECT_TRUE(e.runnerUp->isExact);
      EXPECT_TRUE(e.runnerUp->fits);
      const double extra = least.without[v] - problem.cost(chosen);
      EXPECT_NEAR(e.runnerUp->extraCycles, extra, 1e-6) << solver.name << ", variable " << v;
      double sum = e.runnerUp->otherCycles;
      for (const KernelChange &k : e.runnerUp->kernels)
        sum += k.otherCycles - k.cycles;
      EXPECT_NEAR(sum, extra, 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyNet, testing::Range(0u, 16u));

TEST(Explain, BandsWithTheirNeighboursAreForcedByTheWindowThatReadsThem) {
  const KernelGraph graph = graphOf({.narrow = 16, .height = 56, .width = 40, .pools = true});
  const Machine machine = test::testMachine(20);
  const LayoutProblem problem(graph, machine);
  const Explanation found = explain(problem, layoutSolvers().front().solve(problem, 0));
  const auto a = std::find_if(found.tensors.begin(), found.tensors.end(),
                              [](const TensorExplanation &e) { return e.tensors[0] == "a"; });
  ASSERT_NE(a, found.tensors.end());
  ASSERT_TRUE(a->replica) << a->chosen.layout;
  EXPECT_GT(a->replica->elements, 1);
  EXPECT_EQ(a->replica->forcedBy, std::vector<std::string>{"pool"});
  ASSERT_TRUE(a->replica->once);
  EXPECT_GT(a->replica->once->extraCycles, 0);
  EXPECT_GE(a->replica->once->extraCycles, a->runnerUp->extraCycles);
}

TEST(Explain, SaysWhyATensorHasNoChoice) {
  const KernelGraph graph = graphOf({.narrow = 200});
  const Machine machine = test::testMachine(20);
  const LayoutProblem problem(graph, machine);
  const Explanation found = explain(problem, Choice(problem.variables.size(), 0));
  std::map<std::string, std::string> why;
  for (const PlainTensor &tensor : found.plain)
    why[tensor.name] = tensor.why;
  EXPECT_EQ(why["a"], "its lanes fill more than half of a vector");
  EXPECT_EQ(why["y"], "the host reads it");
  EXPECT_FALSE(why.contains("w1")); // a constant follows its kernel
}

} // namespace
