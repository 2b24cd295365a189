// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Layouts/LeastCost.h"

#include <algorithm>

namespace millrace::layouts {

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

std::vector<unsigned> Joints::sizes() const {
  std::vector<unsigned> sizes;
  for (const Joint &joint : joints)
    sizes.push_back(unsigned(joint.values.size()));
  return sizes;
}

Choice Joints::choiceOf(const Values &values) const {
  Choice choice(places.size(), 0);
  for (unsigned v = 0; v < choice.size(); ++v)
    choice[v] = candidate(v, values);
  return choice;
}

Values Joints::valuesOf(const Choice &choice) const {
  Values values;
  for (const Joint &joint : joints) {
    std::vector<unsigned> own;
    for (unsigned v : joint.variables)
      own.push_back(choice[v]);
    const auto found = std::find(joint.values.begin(), joint.values.end(), own);
    values.push_back(found == joint.values.end() ? 0 : unsigned(found - joint.values.begin()));
  }
  return values;
}

std::vector<double> Joints::costsOf(unsigned joint, const Prices &prices) const {
  std::vector<double> costs;
  for (const std::vector<unsigned> &value : joints[joint].values) {
    double &cost = costs.emplace_back(0);
    for (size_t i = 0; i < value.size(); ++i)
      cost += prices.values[joints[joint].variables[i]][value[i]];
  }
  return costs;
}

CostTables costTables(const LayoutProblem &problem, const Joints &joints, const Prices &prices) {
  CostTables all;
  const std::vector<unsigned> sizes = joints.sizes();
  if (!prices.values.empty())
    for (unsigned j = 0; j < sizes.size(); ++j)
      all.tables.push_back({{j}, joints.costsOf(j, prices)});
  for (size_t f = 0; f < problem.factors.size(); ++f) {
    std::vector<unsigned> of;
    size_t entries = 1;
    for (unsigned v : problem.factors[f].variables)
      if (const unsigned j = joints.jointOf(v); !std::count(of.begin(), of.end(), j)) {
        of.push_back(j);
        entries *= sizes[j];
      }
    Values values(joints.count(), 0);
    auto cost = [&] {
      std::vector<unsigned> own;
      for (unsigned v : problem.factors[f].variables)
        own.push_back(joints.candidate(v, values));
      return problem.cost(f, own, prices.weightByte);
    };
    if (entries <= kLargestTable) {
      Table table{of, {}};
      forEachValue(sizes, of, values, [&] { table.costs.push_back(cost()); });
      all.tables.push_back(std::move(table));
      continue;
    }
    all.isExact = false;
    Table alone{{of[0]}, {}};
    forEachValue(sizes, alone.variables, values, [&] { alone.costs.push_back(cost()); });
    for (size_t i = 1; i < of.size(); ++i) {
      Table pair{{of[0], of[i]}, {}};
      std::fill(values.begin(), values.end(), 0);
      forEachValue(sizes, pair.variables, values, [&] {
        const double own = alone.costs[values[of[0]]];
        pair.costs.push_back(own == kImpossible ? kImpossible : cost() - own);
      });
      all.tables.push_back(std::move(pair));
    }
    all.tables.push_back(std::move(alone));
  }
  return all;
}

double costAround(const LayoutProblem &problem, unsigned variable,
                  const std::vector<size_t> &factors, const Choice &choice, const Prices &prices) {
  double sum = prices.values.empty() ? 0 : prices.values[variable][choice[variable]];
  std::vector<unsigned> own;
  for (size_t f : factors) {
    own.clear();
    for (unsigned u : problem.factors[f].variables)
      own.push_back(choice[u]);
    sum += problem.cost(f, own, prices.weightByte);
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

void improve(const LayoutProblem &problem, const Joints &joints, Choice &choice,
             const Prices &prices) {
  std::vector<std::vector<size_t>> around(joints.count()); // factors
  for (size_t f = 0; f < problem.factors.size(); ++f)
    for (unsigned v : problem.factors[f].variables)
      if (std::vector<size_t> &its = around[joints.jointOf(v)]; its.empty() || its.back() != f)
        its.push_back(f);
  Values values = joints.valuesOf(choice);
  std::vector<std::vector<double>> own; // per joint and value
  for (unsigned j = 0; j < joints.count() && !prices.values.empty(); ++j)
    own.push_back(joints.costsOf(j, prices));
  std::vector<unsigned> candidates;
  const auto costOf = [&](unsigned j) {
    double sum = own.empty() ? 0 : own[j][values[j]];
    for (size_t f : around[j]) {
      candidates.clear();
      for (unsigned v : problem.factors[f].variables)
        candidates.push_back(joints.candidate(v, values));
      sum += problem.cost(f, candidates, prices.weightByte);
    }
    return sum;
  };
  constexpr unsigned kMostRounds = 20;
  bool changed = true;
  for (unsigned round = 0; changed && round < kMostRounds; ++round) {
    changed = false;
    for (unsigned j = 0; j < joints.count(); ++j) {
      const unsigned before = values[j];
      double least = costOf(j);
      unsigned best = before;
      for (unsigned value = 0; value < joints.sizeOf(j); ++value) {
        values[j] = value;
        if (const double cost = costOf(j); cost < least)
          least = cost, best = value;
      }
      values[j] = best;
      changed |= best != before;
    }
  }
  choice = joints.choiceOf(values);
}

namespace {

Choice eliminate(const LayoutProblem &problem, const Joints &joints, const Prices &prices) {
  Choice plain(problem.variables.size(), 0);
  const Elimination elimination(joints.sizes(), costTables(problem, joints, prices).tables,
                                Values(joints.count(), 0), kLargestElimination);
  Choice choice = joints.choiceOf(elimination.best());
  improve(problem, joints, choice, prices);
  if (problem.cost(choice, prices) <= problem.cost(plain, prices))
    return choice;
  improve(problem, joints, plain, prices); // where what was approximated led to what cannot work
  return plain;
}

} // namespace

Priced leastCost(const LayoutProblem &problem) {
  constexpr unsigned kMostPrices = 12;
  constexpr double kWorthOnce = 0.97; // of a choice whose weights lie in both hemispheres
  const Joints joints(problem);
  Priced found{eliminate(problem, joints, {}), {}}, least = found;
  int64_t excess = problem.excessBytes(found.choice), leastExcess = excess;
  std::vector<double> peaks(problem.graph.order.size(), 0); ///< how often most was alive there
  double price = 1e-4;
  for (unsigned i = 0; i < kMostPrices && excess > 0; ++i, price *= 2) {
    Prices prices{price, {}};
    if (problem.sparesRoom) {
      const std::vector<int64_t> live = problem.liveBytes(found.choice);
      peaks[size_t(std::ranges::max_element(live) - live.begin())] += 1;
      std::vector<double> parts = peaks;
      for (double &part : parts)
        part /= i + 1;
      prices = problem.pricesOf(price, parts);
    }
    found.choice = eliminate(problem, joints, prices);
    found.prices = std::move(prices);
    excess = problem.excessBytes(found.choice);
    if (excess < leastExcess || !problem.sparesRoom) {
      least = found;
      leastExcess = excess;
    }
  }
  // Weights that lie in one hemisphere only keep the engines of the other waiting.
  const bool canBeTwice =
      !problem.sparesRoom &&
      problem.weightBytes(Choice(found.choice.size(), 0)) <= problem.twiceWeightBytes();
  for (unsigned i = 0; i < kMostPrices && canBeTwice &&
                       problem.weightBytes(found.choice) > problem.twiceWeightBytes();
       ++i, price *= 2) {
    found.prices = {price, {}};
    found.choice = eliminate(problem, joints, found.prices);
    if (problem.weightBytes(found.choice) <= problem.twiceWeightBytes() &&
        kWorthOnce * problem.graphCost(found.choice) <= problem.graphCost(least.choice))
      least = found;
  }
  return least;
}

} // namespace millrace::layouts
