// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Do all solvers keep what must come first, and does the check see what does not?
#include "compiler/Schedule/Order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace millrace;
using schedule::OrderProblem;

namespace {

OrderProblem randomProblem(std::mt19937 &random) {
  OrderProblem p;
  const size_t tasks = 1 + random() % 30;
  for (size_t task = 0; task < tasks; ++task) {
    p.costs.push_back(int64_t(random() % 100));
    p.barriers.push_back(random() % 10 == 0);
    for (size_t before = 0; before < task; ++before)
      if (random() % 5 == 0)
        p.edges.push_back({before, task});
  }
  return p;
}

TEST(Order, EverySolverKeepsEdgesAndBarriers) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const OrderProblem p = randomProblem(random);
    for (const schedule::OrderSolver &solver : schedule::orderSolvers()) {
      Expected<std::vector<size_t>> order = schedule::solve(p, solver.name);
      ASSERT_TRUE(order);
      Status s = schedule::verify(p, *order);
      EXPECT_TRUE(s) << solver.name << ": " << s.error();
    }
  }
}

TEST(Order, TheCriticalPathGoesFirst) {
  // 0 and 1 are ready; behind 1 there is more to do.
  const OrderProblem p{{5, 1, 10}, {{1, 2}}, {false, false, false}};
  EXPECT_EQ(*schedule::solve(p, "critical"), (std::vector<size_t>{1, 2, 0}));
  EXPECT_EQ(*schedule::solve(p, "graph"), (std::vector<size_t>{0, 1, 2}));
}

TEST(Order, NothingMovesPastABarrier) {
  const OrderProblem p{{1, 1, 50, 60}, {}, {false, true, false, false}};
  EXPECT_EQ(*schedule::solve(p, "critical"), (std::vector<size_t>{0, 1, 3, 2}));
  EXPECT_FALSE(schedule::verify(p, {0, 2, 1, 3}));
  EXPECT_FALSE(schedule::verify(p, {1, 0, 2, 3}));
}

TEST(Order, TheCheckSeesEverySwapOfATaskWithWhatItNeeds) {
  const OrderProblem p{{1, 1, 1}, {{0, 1}, {1, 2}}, {false, false, false}};
  std::vector<size_t> order{0, 1, 2};
  unsigned legal = 0;
  do
    legal += bool(schedule::verify(p, order));
  while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(legal, 1u);
  EXPECT_EQ(schedule::verify(p, {0, 0, 1}).error(),
            "order: task 0 of 3 stands in it twice or is unknown");
  EXPECT_EQ(schedule::verify(p, {0, 1}).error(), "order: it has 2 of 3 tasks");
}

TEST(Order, AnUnknownSolverIsNamedWithTheKnownOnes) {
  EXPECT_EQ(schedule::solve({{1}, {}, {false}}, "best").error(),
            "no order solver is called 'best'; there are graph, critical");
}

} // namespace
