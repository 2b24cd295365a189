// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Order.h"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/topological_sort.hpp>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <queue>
#include <random>

namespace millrace::schedule {
namespace {

using TaskGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;

/// The tasks' edges, and barriers as edges: from what stands before them and to what stands behind.
TaskGraph graphOf(const OrderProblem &problem) {
  TaskGraph g(problem.costs.size());
  for (auto [before, after] : problem.edges)
    boost::add_edge(before, after, g);
  size_t from = 0; // first task behind the last barrier
  for (size_t task = 0; task < problem.barriers.size(); ++task) {
    if (from)
      boost::add_edge(from - 1, task, g);
    if (!problem.barriers[task])
      continue;
    for (size_t before = from; before < task; ++before)
      boost::add_edge(before, task, g);
    from = task + 1;
  }
  return g;
}

std::vector<size_t> asGiven(const OrderProblem &problem) {
  std::vector<size_t> order(problem.costs.size());
  std::iota(order.begin(), order.end(), size_t(0));
  return order;
}

std::vector<size_t> critical(const OrderProblem &problem) {
  const TaskGraph g = graphOf(problem);
  std::vector<size_t> fromTheEnd;
  boost::topological_sort(g, std::back_inserter(fromTheEnd));
  std::vector<int64_t> way(problem.costs); // from a task's begin to the end of everything
  for (size_t task : fromTheEnd) {
    int64_t longest = 0;
    for (auto [e, end] = out_edges(task, g); e != end; ++e)
      longest = std::max(longest, way[target(*e, g)]);
    way[task] += longest;
  }
  if (problem.seed) {
    std::mt19937_64 draw(problem.seed); // the same on every machine
    const int64_t part = problem.seed % 2 ? 2 : 10;
    for (int64_t &w : way)
      w += w * (int64_t(draw() % 2049) - 1024) / (1024 * part);
  }
  auto later = [&](size_t x, size_t y) { // equal ways in the order given
    return way[x] != way[y] ? way[x] < way[y] : x > y;
  };
  std::priority_queue<size_t, std::vector<size_t>, decltype(later)> ready(later);
  std::vector<size_t> waits(problem.costs.size()), order;
  for (size_t task = 0; task < waits.size(); ++task)
    if (!(waits[task] = in_degree(task, g)))
      ready.push(task);
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (auto [e, end] = out_edges(order.back(), g); e != end; ++e)
      if (!--waits[target(*e, g)])
        ready.push(target(*e, g));
  }
  return order;
}

} // namespace

const std::vector<OrderSolver> &orderSolvers() {
  static const std::vector<OrderSolver> solvers{
      {"graph", "as the model lists them", asGiven},
      {"critical", "the longest way to the end first", critical}};
  return solvers;
}

Expected<std::vector<size_t>> solve(const OrderProblem &problem, const std::string &name) {
  std::string known;
  for (const OrderSolver &solver : orderSolvers()) {
    known += (known.empty() ? "" : ", ") + solver.name;
    if (solver.name == name)
      return solver.solve(problem);
  }
  return Error{"no order solver is called '" + name + "'; there are " + known};
}

Status verify(const OrderProblem &problem, const std::vector<size_t> &order) {
  std::vector<size_t> place(problem.costs.size(), SIZE_MAX);
  for (size_t p = 0; p < order.size(); ++p) {
    if (order[p] >= place.size() || place[order[p]] != SIZE_MAX)
      return Error{"order: task " + std::to_string(order[p]) + " of " +
                   std::to_string(place.size()) + " stands in it twice or is unknown"};
    place[order[p]] = p;
  }
  if (order.size() != place.size())
    return Error{"order: it has " + std::to_string(order.size()) + " of " +
                 std::to_string(place.size()) + " tasks"};
  const TaskGraph g = graphOf(problem);
  for (auto [e, end] = edges(g); e != end; ++e)
    if (place[source(*e, g)] > place[target(*e, g)])
      return Error{"order: task " + std::to_string(target(*e, g)) + " stands before task " +
                   std::to_string(source(*e, g)) + ", which it needs"};
  return Success{};
}

} // namespace millrace::schedule
