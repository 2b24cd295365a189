// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A layout problem as tables for variable elimination, and what improves a choice by exchange where
// the tables are too large: what the solver `exact` and the explanation of a choice share.
#pragma once

#include "compiler/Layouts/Elimination.h"
#include "compiler/Layouts/LayoutProblem.h"

namespace millrace::layouts {

/// Variables of the problem that maps allow few candidates together (bands, and bands with what a
/// window reads beyond them): one variable of the elimination. Its first value is plain.
struct Joint {
  std::vector<unsigned> variables;
  std::vector<std::vector<unsigned>> values; ///< a candidate of each
};

/// All variables, each in one joint.
class Joints {
public:
  explicit Joints(const LayoutProblem &problem);

  size_t count() const { return joints.size(); }
  std::vector<unsigned> sizes() const;
  size_t sizeOf(unsigned joint) const { return joints[joint].values.size(); }
  unsigned jointOf(unsigned variable) const { return places[variable].first; }
  /// The candidate of a variable in a value of its joint.
  unsigned candidateIn(unsigned variable, unsigned value) const {
    return joints[places[variable].first].values[value][places[variable].second];
  }
  unsigned candidate(unsigned variable, const Values &values) const {
    return candidateIn(variable, values[places[variable].first]);
  }
  /// What the values of a joint cost by themselves.
  std::vector<double> costsOf(unsigned joint, const Prices &prices) const;
  Choice choiceOf(const Values &values) const;
  /// The other way; 0 for a joint that has no such value.
  Values valuesOf(const Choice &choice) const;

private:
  std::vector<Joint> joints;
  std::vector<std::pair<unsigned, unsigned>> places; ///< per variable: joint, place in it

  void join(const LayoutProblem &problem, size_t factor);
};

/// The costs of all factors as tables. A large one, of several operands, is taken to be the sum of
/// what each of them costs beside plain ones: then the tables are not exact.
struct CostTables {
  std::vector<Table> tables;
  bool isExact = true;
};
CostTables costTables(const LayoutProblem &problem, const Joints &joints, const Prices &prices);

constexpr size_t kLargestTable = 20'000;          ///< entries of a factor
constexpr size_t kLargestElimination = 1'200'000; ///< entries of a joint and its neighbours

/// The factors of each variable.
std::vector<std::vector<size_t>> factorsAround(const LayoutProblem &problem);
/// What a variable and these factors of it cost.
double costAround(const LayoutProblem &problem, unsigned variable,
                  const std::vector<size_t> &factors, const Choice &choice,
                  const Prices &prices = {});
/// Gives one joint after the other the value that is best beside the others', until nothing changes.
void improve(const LayoutProblem &problem, const Joints &joints, Choice &choice,
             const Prices &prices);

/// A choice, and the prices at which it is the one of least cost.
struct Priced {
  Choice choice;
  Prices prices;
};
/// The least cost. While it needs too much memory, the price of a byte rises from 0: of one of
/// weights and, where room is spared, of one of values, dealt to those places of the order at which
/// most was alive before. If it needs too much at the highest price, too, what needs least. Weights
/// that do not lie in both hemispheres, though they could, have to save cycles for it.
Priced leastCost(const LayoutProblem &problem);

} // namespace millrace::layouts
