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

/// Variables that maps allow few candidates together (bands, and bands with what a window reads
/// beyond them): one choice of all of them. The first is plain.
struct Joint {
  std::vector<unsigned> variables;
  std::vector<std::vector<unsigned>> values; ///< a candidate of each
};

/// All variables, each in one joint.
class Joints {
public:
  explicit Joints(const LayoutProblem &problem);

  size_t count() const { return joints.size(); }
  size_t sizeOf(unsigned joint) const { return joints[joint].values.size(); }
  size_t sizeOf(const std::set<unsigned> &several) const {
    size_t size = 1;
    for (unsigned j : several)
      size *= sizeOf(j);
    return size;
  }
  unsigned jointOf(unsigned variable) const { return places[variable].first; }
  /// The candidate of a variable; `choice`: a value of each joint.
  unsigned candidate(unsigned variable, const Choice &choice) const {
    const auto [joint, place] = places[variable];
    return joints[joint].values[choice[joint]][place];
  }

private:
  std::vector<Joint> joints;
  std::vector<std::pair<unsigned, unsigned>> places; ///< per variable: joint, place in it

  void join(const LayoutProblem &problem, size_t factor);
};

Joints::Joints(const LayoutProblem &problem) {
  for (unsigned v = 0; v < problem.variables.size(); ++v) {
    Joint alone{{v}, {}};
    for (unsigned c = 0; c < problem.variables[v].candidates.size(); ++c)
      alone.values.push_back({c});
    joints.push_back(std::move(alone));
    places.push_back({v, 0});
  }
  for (size_t f = 0; f < problem.factors.size(); ++f)
    if (problem.factors[f].variables.size() == 2 &&
        problem.graph.kernels[problem.factors[f].kernel].terms.empty())
      join(problem, f);
  // Without those that are part of another now.
  std::vector<Joint> left;
  for (Joint &joint : joints)
    if (!joint.variables.empty()) {
      for (unsigned i = 0; i < joint.variables.size(); ++i)
        places[joint.variables[i]] = {unsigned(left.size()), i};
      left.push_back(std::move(joint));
    }
  joints = std::move(left);
}

/// Joins what a map reads and writes, if no more values go together than one of them has alone.
void Joints::join(const LayoutProblem &problem, size_t f) {
  const unsigned u = problem.factors[f].variables[0], v = problem.factors[f].variables[1];
  const auto [a, inA] = places[u];
  const auto [b, inB] = places[v];
  const size_t most = std::max(sizeOf(a), sizeOf(b));
  std::vector<std::vector<unsigned>> values;
  for (const std::vector<unsigned> &x : joints[a].values)
    if (a == b) {
      if (problem.cost(f, {x[inA], x[inB]}) < kImpossible)
        values.push_back(x);
    } else {
      for (const std::vector<unsigned> &y : joints[b].values)
        if (problem.cost(f, {x[inA], y[inB]}) < kImpossible) {
          if (values.size() == most)
            return;
          values.push_back(x);
          values.back().insert(values.back().end(), y.begin(), y.end());
        }
    }
  joints[a].values = std::move(values);
  if (a == b)
    return;
  for (unsigned w : joints[b].variables) {
    places[w] = {a, unsigned(joints[a].variables.size())};
    joints[a].variables.push_back(w);
  }
  joints[b] = {};
}

/// Costs over some joints: one number for each combination of their values, the last joint's
/// fastest.
struct Table {
  std::vector<unsigned> joints;
  std::vector<double> costs;
};

/// Entry of the table for a choice.
double at(const Joints &joints, const Table &table, const Choice &choice) {
  size_t entry = 0;
  for (unsigned j : table.joints)
    entry = entry * joints.sizeOf(j) + choice[j];
  return table.costs[entry];
}

/// Calls f for every combination of values; other joints keep theirs.
template <class F>
void forEachChoice(const Joints &joints, const std::vector<unsigned> &several, Choice &choice,
                   F f) {
  for (unsigned j : several)
    choice[j] = 0;
  for (;;) {
    f();
    size_t i = several.size();
    while (i > 0 && ++choice[several[i - 1]] == joints.sizeOf(several[i - 1]))
      choice[several[--i]] = 0;
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
constexpr size_t kLargestElimination = 1'200'000; ///< of a joint and its neighbours

/// A factor's costs as tables. A large one, of several operands, is taken to be the sum of what
/// each of them costs beside plain ones.
void addTables(const LayoutProblem &problem, const Joints &joints, size_t f, double bytePrice,
               std::vector<Table> &tables) {
  std::vector<unsigned> of;
  for (unsigned v : problem.factors[f].variables)
    if (const unsigned j = joints.jointOf(v); !std::count(of.begin(), of.end(), j))
      of.push_back(j);
  Choice choice(joints.count(), 0);
  auto cost = [&] {
    std::vector<unsigned> own;
    for (unsigned v : problem.factors[f].variables)
      own.push_back(joints.candidate(v, choice));
    return problem.cost(f, own, bytePrice);
  };
  if (joints.sizeOf({of.begin(), of.end()}) <= kLargestTable) {
    Table table{of, {}};
    forEachChoice(joints, of, choice, [&] { table.costs.push_back(cost()); });
    tables.push_back(std::move(table));
    return;
  }
  Table alone{{of[0]}, {}};
  forEachChoice(joints, alone.joints, choice, [&] { alone.costs.push_back(cost()); });
  for (size_t i = 1; i < of.size(); ++i) {
    Table pair{{of[0], of[i]}, {}};
    std::fill(choice.begin(), choice.end(), 0);
    forEachChoice(joints, pair.joints, choice, [&] {
      const double base = alone.costs[choice[of[0]]];
      pair.costs.push_back(base == kImpossible ? kImpossible : cost() - base);
    });
    tables.push_back(std::move(pair));
  }
  tables.push_back(std::move(alone));
}

/// Variable elimination: the joint whose neighbours have the smallest table goes first; the best of
/// its values for each combination of theirs is a new table.
Choice eliminate(const LayoutProblem &problem, const Joints &joints, double bytePrice) {
  Choice choice(joints.count(), 0);
  std::vector<Table> tables;
  std::vector<bool> open(joints.count(), true);
  for (size_t f = 0; f < problem.factors.size(); ++f)
    addTables(problem, joints, f, bytePrice, tables);
  struct Step {
    unsigned joint;
    std::vector<Table> tables; ///< that it was in
  };
  std::vector<Step> steps;
  auto neighbours = [&](unsigned j) {
    std::set<unsigned> set;
    for (const Table &t : tables)
      if (std::count(t.joints.begin(), t.joints.end(), j))
        set.insert(t.joints.begin(), t.joints.end());
    set.erase(j);
    return set;
  };
  for (size_t left = joints.count(); left > 0; --left) {
    unsigned best = 0;
    size_t least = SIZE_MAX;
    for (unsigned j = 0; j < open.size(); ++j)
      if (open[j])
        if (const size_t size = joints.sizeOf(neighbours(j)) * joints.sizeOf(j); size < least)
          least = size, best = j;
    open[best] = false;
    if (least > kLargestElimination) { // left as it is, plain, and improved afterwards
      for (Table &t : tables) {
        auto place = std::find(t.joints.begin(), t.joints.end(), best);
        if (place == t.joints.end())
          continue;
        Table rest;
        for (unsigned j : t.joints)
          if (j != best)
            rest.joints.push_back(j);
        choice[best] = 0;
        forEachChoice(joints, rest.joints, choice,
                      [&] { rest.costs.push_back(at(joints, t, choice)); });
        t = std::move(rest);
      }
      continue;
    }
    const std::set<unsigned> around = neighbours(best);
    Step step{best, {}};
    Table message{{around.begin(), around.end()}, {}};
    for (size_t t = tables.size(); t-- > 0;)
      if (std::count(tables[t].joints.begin(), tables[t].joints.end(), best)) {
        step.tables.push_back(std::move(tables[t]));
        tables.erase(tables.begin() + ptrdiff_t(t));
      }
    forEachChoice(joints, message.joints, choice, [&] {
      double cheapest = kImpossible;
      for (unsigned c = 0; c < joints.sizeOf(best); ++c) {
        choice[best] = c;
        double sum = 0;
        for (const Table &t : step.tables)
          sum += at(joints, t, choice);
        cheapest = std::min(cheapest, sum);
      }
      message.costs.push_back(cheapest);
    });
    tables.push_back(std::move(message));
    steps.push_back(std::move(step));
  }
  std::fill(choice.begin(), choice.end(), 0);
  for (size_t s = steps.size(); s-- > 0;) {
    double cheapest = kImpossible;
    unsigned best = 0;
    for (unsigned c = 0; c < joints.sizeOf(steps[s].joint); ++c) {
      choice[steps[s].joint] = c;
      double sum = 0;
      for (const Table &t : steps[s].tables)
        sum += at(joints, t, choice);
      if (sum < cheapest)
        cheapest = sum, best = c;
    }
    choice[steps[s].joint] = best;
  }
  Choice candidates(problem.variables.size(), 0);
  for (unsigned v = 0; v < candidates.size(); ++v)
    candidates[v] = joints.candidate(v, choice);
  improve(problem, candidates, bytePrice);
  return problem.cost(candidates, bytePrice) <= problem.cost(plain(problem), bytePrice)
             ? candidates
             : plain(problem);
}

/// Weights of packed tensors are bands with zeros. Where they are too many, a byte gets a price.
Choice exact(const LayoutProblem &problem, uint64_t) {
  constexpr unsigned kMostPrices = 12;
  const Joints joints(problem);
  Choice choice = eliminate(problem, joints, 0);
  double price = 1e-4;
  for (unsigned i = 0; i < kMostPrices && problem.weightBytes(choice) > problem.mostWeightBytes();
       ++i, price *= 2)
    choice = eliminate(problem, joints, price);
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
