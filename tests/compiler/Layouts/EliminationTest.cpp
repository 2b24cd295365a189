// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does elimination find the least sum of tables, and the least sum with each value of each
// variable, as trying all values does?
#include "compiler/Layouts/Elimination.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace millrace::layouts;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double sumOf(const std::vector<unsigned> &sizes, const std::vector<Table> &tables,
             const Values &values) {
  double sum = 0;
  for (const Table &table : tables) {
    size_t entry = 0;
    for (unsigned v : table.variables)
      entry = entry * sizes[v] + values[v];
    sum += table.costs[entry];
  }
  return sum;
}

/// The least sum with each value of each variable.
std::vector<std::vector<double>> byTrial(const std::vector<unsigned> &sizes,
                                         const std::vector<Table> &tables) {
  std::vector<std::vector<double>> least;
  std::vector<unsigned> all;
  for (unsigned v = 0; v < sizes.size(); ++v) {
    least.emplace_back(sizes[v], kNever);
    all.push_back(v);
  }
  Values values(sizes.size(), 0);
  forEachValue(sizes, all, values, [&] {
    const double sum = sumOf(sizes, tables, values);
    for (unsigned v : all)
      least[v][values[v]] = std::min(least[v][values[v]], sum);
  });
  return least;
}

TEST(Elimination, ThreeVariablesInARow) {
  // Each costs 1 for its value 1; neighbours that differ cost 5, and the last may not be 0.
  const std::vector<unsigned> sizes{2, 2, 2};
  const std::vector<double> differ{0, 5, 5, 0};
  std::vector<Table> tables{
      {{0}, {0, 1}}, {{1}, {0, 1}}, {{2}, {kNever, 1}}, {{0, 1}, differ}, {{1, 2}, differ}};
  Elimination elimination(sizes, tables, {0, 0, 0}, 1000);
  EXPECT_TRUE(elimination.isComplete());
  EXPECT_EQ(elimination.best(), (Values{1, 1, 1})); // 3; 0 0 1 takes 6, and 0 1 1 takes 7
  elimination.findMarginals();
  EXPECT_EQ(elimination.extra(0, 1), 0);
  EXPECT_EQ(elimination.extra(0, 0), 3);
  EXPECT_EQ(elimination.bestWith(0, 0), (Values{0, 0, 1}));
  EXPECT_EQ(elimination.extra(1, 0), 3);
  EXPECT_EQ(elimination.bestWith(1, 0), (Values{0, 0, 1}));
  EXPECT_EQ(elimination.extra(2, 0), kNever);
}

TEST(Elimination, AVariableOfALargeTableKeepsItsValue) {
  const std::vector<unsigned> sizes{3, 2};
  Elimination elimination(sizes, {{{0, 1}, {9, 9, 9, 9, 4, 3}}}, {1, 0}, 5);
  EXPECT_FALSE(elimination.isComplete());
  EXPECT_TRUE(elimination.isLeftOut(0));
  EXPECT_EQ(elimination.best()[0], 1u);
}

TEST(Elimination, ATableOfMoreEntriesThanCanBeCountedIsLarge) {
  constexpr unsigned kVariables = 17, kValues = 16; // 16^16 is 0 in 64 bits
  std::vector<Table> tables;                        // of all pairs; equal values cost nothing
  for (unsigned v = 0; v < kVariables; ++v)
    for (unsigned w = 0; w < v; ++w) {
      tables.push_back({{w, v}, std::vector<double>(kValues * kValues, 1)});
      for (unsigned value = 0; value < kValues; ++value)
        tables.back().costs[value * kValues + value] = 0;
    }
  const Values base(kVariables, 3);
  const Elimination elimination(std::vector<unsigned>(kVariables, kValues), tables, base, 10'000);
  EXPECT_FALSE(elimination.isComplete());
  EXPECT_EQ(elimination.best(), base);
}

class AnyTables : public testing::TestWithParam<unsigned> {};

TEST_P(AnyTables, CostWhatTrialFinds) {
  std::mt19937_64 draw(GetParam());
  std::vector<unsigned> sizes(2 + draw() % 6);
  for (unsigned &size : sizes)
    size = 1 + unsigned(draw() % 4);
  std::vector<Table> tables;
  for (size_t t = 0, count = 1 + draw() % 9; t < count; ++t) {
    Table table;
    for (size_t i = 0, arity = 1 + draw() % 3; i < arity; ++i)
      if (const auto v = unsigned(draw() % sizes.size());
          !std::count(table.variables.begin(), table.variables.end(), v))
        table.variables.push_back(v);
    size_t entries = 1;
    for (unsigned v : table.variables)
      entries *= sizes[v];
    // All zeros go together, as plain layouts do.
    for (size_t e = 0; e < entries; ++e)
      table.costs.push_back(e && draw() % 4 == 0 ? kNever : double(draw() % 50));
    tables.push_back(std::move(table));
  }
  const std::vector<std::vector<double>> least = byTrial(sizes, tables);
  const double best = *std::min_element(least[0].begin(), least[0].end());
  Elimination elimination(sizes, tables, Values(sizes.size(), 0), 1'000'000);
  EXPECT_EQ(sumOf(sizes, tables, elimination.best()), best);
  elimination.findMarginals();
  for (unsigned v = 0; v < sizes.size(); ++v)
    for (unsigned value = 0; value < sizes[v]; ++value) {
      EXPECT_EQ(elimination.extra(v, value), least[v][value] - best);
      if (least[v][value] == kNever)
        continue;
      const Values with = elimination.bestWith(v, value);
      EXPECT_EQ(with[v], value);
      EXPECT_EQ(sumOf(sizes, tables, with), least[v][value]);
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyTables, testing::Range(0u, 300u));

} // namespace
