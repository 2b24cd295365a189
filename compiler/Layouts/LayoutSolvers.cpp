// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/LayoutProblem.h"

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

namespace millrace::layouts {

namespace {

Choice plain(const LayoutProblem &problem, uint64_t = 0) {
  return Choice(problem.variables.size(), 0);
}

/// Costs over some variables: one number for each combination of their candidates, the last
/// variable's fastest.
struct Table {
  std::vector<unsigned> variables;
  std::vector<double> costs;
};

size_t sizeOf(const LayoutProblem &problem, const std::set<unsigned> &variables) {
  size_t size = 1;
  for (unsigned v : variables)
    size *= problem.variables[v].candidates.size();
  return size;
}

/// Entry of the table for a choice.
double at(const LayoutProblem &problem, const Table &table, const Choice &choice) {
  size_t entry = 0;
  for (unsigned v : table.variables)
    entry = entry * problem.variables[v].candidates.size() + choice[v];
  return table.costs[entry];
}

/// Calls f for every combination of candidates; other variables keep their choice.
template <class F>
void forEachChoice(const LayoutProblem &problem, const std::vector<unsigned> &variables,
                   Choice &choice, F f) {
  for (unsigned v : variables)
    choice[v] = 0;
  for (;;) {
    f();
    size_t i = variables.size();
    while (i > 0 &&
           ++choice[variables[i - 1]] == problem.variables[variables[i - 1]].candidates.size())
      choice[variables[--i]] = 0;
    if (i == 0)
      return;
  }
}

double costAround(const LayoutProblem &problem, const std::vector<std::vector<size_t>> &around,
                  unsigned v, const Choice &choice, double bytePrice = 0) {
  double sum = 0;
  for (size_t f : around[v]) {
    std::vector<unsigned> own;
    for (unsigned u : problem.factors[f].variables)
      own.push_back(choice[u]);
    sum += problem.cost(f, own, bytePrice);
  }
  return sum;
}

std::vector<std::vector<size_t>> factorsAround(const LayoutProblem &problem) {
  std::vector<std::vector<size_t>> around(problem.variables.size());
  for (size_t f = 0; f < problem.factors.size(); ++f)
    for (unsigned v : problem.factors[f].variables)
      around[v].push_back(f);
  return around;
}

/// Gives one variable after the other the candidate that is best beside the others', until nothing
/// changes.
void improve(const LayoutProblem &problem, Choice &choice, double bytePrice) {
  const auto around = factorsAround(problem);
  constexpr unsigned kMostRounds = 20;
  bool changed = true;
  for (unsigned round = 0; changed && round < kMostRounds; ++round) {
    changed = false;
    for (unsigned v = 0; v < choice.size(); ++v) {
      const unsigned before = choice[v];
      double least = costAround(problem, around, v, choice, bytePrice);
      unsigned best = before;
      for (unsigned c = 0; c < problem.variables[v].candidates.size(); ++c) {
        choice[v] = c;
        if (const double cost = costAround(problem, around, v, choice, bytePrice); cost < least)
          least = cost, best = c;
      }
      choice[v] = best;
      changed |= best != before;
    }
  }
}

constexpr size_t kLargestTable = 20'000;          ///< of a factor
constexpr size_t kLargestElimination = 1'200'000; ///< of a variable and its neighbours

/// A factor's costs as tables. A large one, of several operands, is taken to be the sum of what
/// each of them costs beside plain ones.
void addTables(const LayoutProblem &problem, size_t f, double bytePrice,
               std::vector<Table> &tables) {
  const std::vector<unsigned> &variables = problem.factors[f].variables;
  Choice choice(problem.variables.size(), 0);
  auto cost = [&] {
    std::vector<unsigned> own;
    for (unsigned v : variables)
      own.push_back(choice[v]);
    return problem.cost(f, own, bytePrice);
  };
  if (sizeOf(problem, {variables.begin(), variables.end()}) <= kLargestTable) {
    Table table{variables, {}};
    forEachChoice(problem, variables, choice, [&] { table.costs.push_back(cost()); });
    tables.push_back(std::move(table));
    return;
  }
  Table alone{{variables[0]}, {}};
  forEachChoice(problem, alone.variables, choice, [&] { alone.costs.push_back(cost()); });
  for (size_t i = 1; i < variables.size(); ++i) {
    Table pair{{variables[0], variables[i]}, {}};
    std::fill(choice.begin(), choice.end(), 0);
    forEachChoice(problem, pair.variables, choice, [&] {
      const double base = alone.costs[choice[variables[0]]];
      pair.costs.push_back(base == kImpossible ? kImpossible : cost() - base);
    });
    tables.push_back(std::move(pair));
  }
  tables.push_back(std::move(alone));
}

/// Variable elimination: the variable whose neighbours have the smallest table goes first; the best
/// of its candidates for each combination of theirs is a new table.
Choice eliminate(const LayoutProblem &problem, double bytePrice) {
  Choice choice = plain(problem);
  std::vector<Table> tables;
  std::vector<bool> open(problem.variables.size(), true);
  for (size_t f = 0; f < problem.factors.size(); ++f)
    addTables(problem, f, bytePrice, tables);
  struct Step {
    unsigned variable;
    std::vector<Table> tables; ///< that it was in
  };
  std::vector<Step> steps;
  auto neighbours = [&](unsigned v) {
    std::set<unsigned> set;
    for (const Table &t : tables)
      if (std::count(t.variables.begin(), t.variables.end(), v))
        set.insert(t.variables.begin(), t.variables.end());
    set.erase(v);
    return set;
  };
  for (size_t left = size_t(std::count(open.begin(), open.end(), true)); left > 0; --left) {
    unsigned best = 0;
    size_t least = SIZE_MAX;
    for (unsigned v = 0; v < open.size(); ++v)
      if (open[v])
        if (const size_t size =
                sizeOf(problem, neighbours(v)) * problem.variables[v].candidates.size();
            size < least)
          least = size, best = v;
    open[best] = false;
    if (least > kLargestElimination) { // left as it is, plain, and improved afterwards
      for (Table &t : tables) {
        auto place = std::find(t.variables.begin(), t.variables.end(), best);
        if (place == t.variables.end())
          continue;
        Table rest;
        for (unsigned v : t.variables)
          if (v != best)
            rest.variables.push_back(v);
        choice[best] = 0;
        forEachChoice(problem, rest.variables, choice,
                      [&] { rest.costs.push_back(at(problem, t, choice)); });
        t = std::move(rest);
      }
      continue;
    }
    const std::set<unsigned> around = neighbours(best);
    Step step{best, {}};
    Table message{{around.begin(), around.end()}, {}};
    for (size_t t = tables.size(); t-- > 0;)
      if (std::count(tables[t].variables.begin(), tables[t].variables.end(), best)) {
        step.tables.push_back(std::move(tables[t]));
        tables.erase(tables.begin() + ptrdiff_t(t));
      }
    forEachChoice(problem, message.variables, choice, [&] {
      double cheapest = kImpossible;
      for (unsigned c = 0; c < problem.variables[best].candidates.size(); ++c) {
        choice[best] = c;
        double sum = 0;
        for (const Table &t : step.tables)
          sum += at(problem, t, choice);
        cheapest = std::min(cheapest, sum);
      }
      message.costs.push_back(cheapest);
    });
    tables.push_back(std::move(message));
    steps.push_back(std::move(step));
  }
  choice = plain(problem);
  for (size_t s = steps.size(); s-- > 0;) {
    double cheapest = kImpossible;
    unsigned best = 0;
    for (unsigned c = 0; c < problem.variables[steps[s].variable].candidates.size(); ++c) {
      choice[steps[s].variable] = c;
      double sum = 0;
      for (const Table &t : steps[s].tables)
        sum += at(problem, t, choice);
      if (sum < cheapest)
        cheapest = sum, best = c;
    }
    choice[steps[s].variable] = best;
  }
  improve(problem, choice, bytePrice);
  return problem.cost(choice, bytePrice) <= problem.cost(plain(problem), bytePrice)
             ? choice
             : plain(problem);
}

/// Weights of packed tensors are bands with zeros. Where they are too many, a byte gets a price.
Choice exact(const LayoutProblem &problem, uint64_t) {
  constexpr unsigned kMostPrices = 12;
  Choice choice = eliminate(problem, 0);
  double price = 1e-4;
  for (unsigned i = 0; i < kMostPrices && problem.weightBytes(choice) > problem.mostWeightBytes();
       ++i, price *= 2)
    choice = eliminate(problem, price);
  return problem.weightBytes(choice) > problem.mostWeightBytes() ? plain(problem) : choice;
}

/// Gives two tensors of a map layouts that it can work in only together (bands, and bands with what
/// a window reads beyond them).
void drawPair(const LayoutProblem &problem, const std::vector<std::vector<size_t>> &around,
              unsigned u, unsigned v, Choice &choice, std::mt19937_64 &draw) {
  std::vector<std::pair<unsigned, unsigned>> possible{{choice[u], choice[v]}};
  for (unsigned c = 0; c < problem.variables[u].candidates.size(); ++c)
    for (unsigned d = 0; d < problem.variables[v].candidates.size(); ++d) {
      choice[u] = c, choice[v] = d;
      if (costAround(problem, around, u, choice) < kImpossible &&
          costAround(problem, around, v, choice) < kImpossible)
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
          if (costAround(problem, around, v, choice) < kImpossible)
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

} // namespace millrace::layouts
