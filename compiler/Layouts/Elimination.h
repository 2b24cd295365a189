// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Variable elimination: the least sum of tables over variables of few values, and what each value
// of each variable costs beside the best of all others (its min-marginal; Dechter, "Bucket
// elimination", 1999).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace millrace::layouts {

/// Costs over some variables: one number for each combination of their values, the last variable's
/// fastest. Infinity: they do not go together.
struct Table {
  std::vector<unsigned> variables;
  std::vector<double> costs;
};

/// A value of each variable.
using Values = std::vector<unsigned>;

/// Calls f for every combination of values of some variables, the last fastest; others keep theirs.
template <class F>
void forEachValue(const std::vector<unsigned> &sizes, const std::vector<unsigned> &some,
                  Values &values, F f) {
  for (unsigned v : some)
    values[v] = 0;
  for (;;) {
    f();
    size_t i = some.size();
    while (i > 0 && ++values[some[i - 1]] == sizes[some[i - 1]])
      values[some[--i]] = 0;
    if (i == 0)
      return;
  }
}

class Elimination {
public:
  /// `sizes`: values per variable. A variable whose table with its neighbours would have more than
  /// `largest` entries keeps its value of `base`.
  Elimination(std::vector<unsigned> sizes, std::vector<Table> tables, Values base, size_t largest);

  /// Of least cost, but for the variables that are left out.
  Values best() const;
  bool isLeftOut(unsigned variable) const { return bucketOf[variable] < 0; }
  bool isComplete() const;

  /// Prepares the two below: as much work again as the elimination, for each table that a variable
  /// left behind.
  void findMarginals();
  /// What a value of a variable costs more than the best one, all others chosen for it.
  double extra(unsigned variable, unsigned value) const;
  /// The values of all variables that go with it.
  Values bestWith(unsigned variable, unsigned value) const;

private:
  struct Held : Table {
    int from = -1; ///< the bucket that left it behind; -1: given
  };
  /// A variable, the tables that it was in when it was eliminated, and what that left behind.
  struct Bucket {
    unsigned variable = 0;
    std::vector<unsigned> scope; ///< its neighbours, then itself
    std::vector<Held> tables;
    int parent = -1; ///< the bucket that took what it left; -1: none
    // For each entry of what it left: the least cost of all else, and the parent's entry for it.
    Held above;
    std::vector<uint32_t> parentEntries;
    // For each value of the variable: the least cost of all, and the entry of the scope for it.
    std::vector<double> least;
    std::vector<uint32_t> entries;
  };

  std::vector<unsigned> sizes;
  Values base;
  std::vector<Bucket> buckets; ///< in the order of elimination
  std::vector<int> bucketOf;   ///< per variable; -1: left out

  size_t entryOf(const std::vector<unsigned> &variables, const Values &values) const;
  double at(const Table &table, const Values &values) const;
  std::vector<unsigned> neighbours(const std::vector<Held> &tables, unsigned variable) const;
  size_t entries(const std::vector<unsigned> &variables) const;
  void leaveOut(std::vector<Held> &tables, unsigned variable);
  void eliminate(std::vector<Held> &tables, unsigned variable);
  void findMarginals(Bucket &bucket);
  void complete(Values &values, std::vector<bool> &known) const;
  void take(const Bucket &bucket, size_t entry, Values &values, std::vector<bool> &known) const;
};

} // namespace millrace::layouts
