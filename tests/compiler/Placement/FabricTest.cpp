// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Is a line of work laid along links, and do rows travel by shortest routes?
#include "compiler/Placement/Fabric.h"

#include <gtest/gtest.h>

using namespace millrace;

namespace {

void connect(Machine &m, unsigned a, unsigned b, unsigned latency = 1) {
  for (auto [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    Link link;
    link.from = from;
    link.to = to;
    link.latency = latency;
    m.links.push_back(link);
  }
}

Machine mesh(unsigned rows, unsigned columns) {
  Machine m;
  m.fabric.rows = rows;
  m.fabric.columns = columns;
  for (unsigned r = 0; r < rows; ++r)
    for (unsigned k = 0; k < columns; ++k) {
      if (k + 1 < columns)
        connect(m, r * columns + k, r * columns + k + 1);
      if (r + 1 < rows)
        connect(m, r * columns + k, (r + 1) * columns + k);
    }
  return m;
}

TEST(Placement, WalksAMeshWithoutAGap) {
  for (auto [rows, columns] : {std::pair(4u, 4u), {1u, 7u}, {2u, 3u}, {3u, 5u}, {1u, 1u}}) {
    const Machine m = mesh(rows, columns);
    const placement::Placement p = placement::solve(m);
    EXPECT_TRUE(placement::verify(m, p));
    EXPECT_EQ(p.gaps, 0u) << rows << " x " << columns;
  }
}

/// So that work for fewer PEs is laid out as on a fabric of so many columns.
TEST(Placement, BeginsWithWholeColumnsAsAFabricOfSoManyColumnsHasThem) {
  const Machine large = mesh(4, 5), small = mesh(4, 3);
  const placement::Placement line = placement::solve(large, 12);
  EXPECT_TRUE(placement::verify(large, line));
  std::vector<unsigned> first;
  for (size_t p = 0; p < 12; ++p)
    first.push_back(line.order[p] / 5 * 3 + line.order[p] % 5);
  EXPECT_EQ(first, placement::solve(small).order);
  EXPECT_EQ(placement::solve(large, 7).order, placement::solve(large).order) << "no whole columns";
}

TEST(Placement, CountsTheGapsOfAStar) { // around the middle each step but two leaves the links
  Machine m;
  m.fabric.columns = 5;
  for (unsigned pe = 1; pe < 5; ++pe)
    connect(m, 0, pe);
  const placement::Placement p = placement::solve(m);
  EXPECT_TRUE(placement::verify(m, p));
  EXPECT_EQ(p.gaps, 2u);
}

TEST(Placement, IsRefusedWhenAPeIsMissingOrTwice) {
  const Machine m = mesh(2, 2);
  placement::Placement p = placement::solve(m);
  p.order[0] = p.order[1];
  Status s = placement::verify(m, p);
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().find("exactly once"), std::string::npos) << s.error();
}

TEST(Routes, HaveTheManhattanDistanceOnAMesh) {
  const Machine m = mesh(4, 4);
  const placement::Routes routes(m);
  for (unsigned a = 0; a < 16; ++a)
    for (unsigned b = 0; b < 16; ++b) {
      if (a == b)
        continue;
      const auto path = routes.tree(a, {b});
      const int rows = std::abs(int(a / 4) - int(b / 4)),
                columns = std::abs(int(a % 4) - int(b % 4));
      ASSERT_EQ(path.size(), size_t(rows + columns));
      EXPECT_EQ(path.front()->from, a);
      EXPECT_EQ(path.back()->to, b);
    }
}

TEST(Routes, TakeFastLinksRatherThanFewLinks) {
  Machine m;
  m.fabric.columns = 3;
  connect(m, 0, 2, 100);
  connect(m, 0, 1, 10);
  connect(m, 1, 2, 10);
  EXPECT_EQ(placement::Routes(m).tree(0, {2}).size(), 2u);
}

TEST(Routes, ShareTheWayToSeveralTargets) {
  const Machine m = mesh(1, 4);
  EXPECT_EQ(placement::Routes(m).tree(0, {1, 2, 3}).size(), 3u);
}

TEST(Routes, AreEmptyToAPeThatNoLinkReaches) {
  Machine m;
  m.fabric.columns = 2;
  EXPECT_TRUE(placement::Routes(m).tree(0, {1}).empty());
}

} // namespace
