// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/LeastCost.h"

#include <algorithm>
#include <random>
#include <tuple>

namespace millrace::layouts {

namespace {

Choice plain(const LayoutProblem &problem, uint64_t = 0) {
  return Choice(problem.variables.size(), 0);
}

/// Weights of packed tensors are bands with zeros. Where they are too many, a byte gets a price.
Choice leastOrPlain(const LayoutProblem &problem) {
  Choice found = leastCost(problem).choice;
  const int64_t excess = problem.excessBytes(found);
  if (excess > 0 && problem.excessBytes(plain(problem)) < excess)
    return plain(problem);
  return found;
}

Choice exact(const LayoutProblem &problem, uint64_t) {
  if (problem.sparesRoom) // for which lives matter, too
    return leastOrPlain(problem);
  const auto [known, isNew] = problem.knownChoices().try_emplace(problem.signature());
  if (isNew)
    known->second = leastOrPlain(problem);
  return known->second;
}

/// Gives two tensors of a map layouts that it can work in only together (bands, and bands with what
/// a window reads beyond them).
void drawPair(const LayoutProblem &problem, const std::vector<std::vector<size_t>> &around,
              unsigned u, unsigned v, Choice &choice, std::mt19937_64 &draw) {
  std::vector<std::pair<unsigned, unsigned>> possible{{choice[u], choice[v]}};
  for (unsigned c = 0; c < problem.variables[u].candidates.size(); ++c)
    for (unsigned d = 0; d < problem.variables[v].candidates.size(); ++d) {
      choice[u] = c, choice[v] = d;
      if (costAround(problem, u, around[u], choice) < kImpossible &&
          costAround(problem, v, around[v], choice) < kImpossible)
        possible.push_back({c, d});
    }
  std::tie(choice[u], choice[v]) = possible[draw() % possible.size()];
}

/// Draws until the weights leave room for what is made at run time.
Choice random(const LayoutProblem &problem, uint64_t seed) {
  constexpr unsigned kMostDraws = 8;
  std::mt19937_64 draw(seed);
  const auto around = factorsAround(problem);
  for (unsigned attempt = 0; attempt < kMostDraws; ++attempt) {
    Choice choice = plain(problem);
    // Several rounds: what one variable may be depends on the others.
    for (unsigned round = 0; round < 3; ++round)
      for (unsigned v = 0; v < choice.size(); ++v) {
        std::vector<unsigned> possible;
        for (unsigned c = 0; c < problem.variables[v].candidates.size(); ++c) {
          choice[v] = c;
          if (costAround(problem, v, around[v], choice) < kImpossible)
            possible.push_back(c);
        }
        choice[v] = possible[draw() % possible.size()];
      }
    for (const Factor &factor : problem.factors)
      if (problem.graph.kernels[factor.kernel].terms.empty())
        for (size_t i = 1; i < factor.variables.size(); ++i)
          drawPair(problem, around, factor.variables[0], factor.variables[i], choice, draw);
    if (problem.weightBytes(choice) <= problem.mostWeightBytes() / 2)
      return choice;
  }
  return plain(problem);
}

} // namespace

const std::vector<LayoutSolver> &layoutSolvers() {
  static const std::vector<LayoutSolver> solvers{{"exact", "of least cost", exact},
                                                 {"plain", "an index a row", plain},
                                                 {"random", "drawn by --layout-seed", random}};
  return solvers;
}

double solvedCost(const LayoutProblem &problem) {
  return problem.graphCost(layoutSolvers().front().solve(problem, 0));
}

} // namespace millrace::layouts
