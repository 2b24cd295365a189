// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

Machine small(std::vector<std::string> overrides) {
  Expected<Machine> machine = loadMachine("tsp-small", overrides);
  if (!machine) {
    ADD_FAILURE() << machine.error();
    return {};
  }
  return *machine;
}

const Link *find(const Machine &m, unsigned from, unsigned to) {
  auto found = std::find_if(m.links.begin(), m.links.end(),
                            [&](const Link &l) { return l.from == from && l.to == to; });
  return found == m.links.end() ? nullptr : &*found;
}

/// Every link has one of the opposite way between the same two ports.
void expectPaired(const Machine &m) {
  for (const Link &link : m.links)
    EXPECT_TRUE(std::any_of(m.links.begin(), m.links.end(),
                            [&](const Link &other) {
                              return other.from == link.to && other.to == link.from &&
                                     other.port == link.toPort && other.toPort == link.port;
                            }))
        << link.from << " to " << link.to;
}

TEST(Fabric, MeshOf4x4Has48LinksWithPortsNorthEastSouthWest) {
  Expected<Machine> loaded = loadMachine("mesh-4x4");
  ASSERT_TRUE(loaded) << loaded.error();
  const Machine &m = *loaded;
  EXPECT_EQ(m.links.size(), 2u * (3 * 4 + 3 * 4));
  const Link *east = find(m, 5, 6), *south = find(m, 5, 9), *north = find(m, 5, 1),
             *west = find(m, 5, 4);
  ASSERT_TRUE(east && south && north && west);
  EXPECT_EQ(north->port, 0u);
  EXPECT_EQ(east->port, 1u);
  EXPECT_EQ(south->port, 2u);
  EXPECT_EQ(west->port, 3u);
  EXPECT_EQ(east->toPort, 3u);
  EXPECT_EQ(north->toPort, 2u);
  EXPECT_EQ(find(m, 3, 4), nullptr)
      << "the end of a row and the start of the next are no neighbours";
  EXPECT_EQ(east->latency, 1u);
  EXPECT_EQ(east->slot, 1u);
  expectPaired(m);
}

TEST(Fabric, TorusJoinsTheEndsOfRowsAndColumns) {
  const Machine m = small({"fabric.topology=torus", "fabric.rows=3", "fabric.columns=4"});
  EXPECT_EQ(m.links.size(), 4u * 12);
  ASSERT_TRUE(find(m, 0, 3) && find(m, 0, 8));
  EXPECT_EQ(find(m, 0, 3)->port, 3u);
  EXPECT_EQ(find(m, 0, 8)->port, 0u);
  expectPaired(m);
}

TEST(Fabric, RingJoinsNeighboursBothWays) {
  const Machine m = small({"fabric.topology=ring", "fabric.columns=5"});
  EXPECT_EQ(m.links.size(), 10u);
  EXPECT_EQ(find(m, 4, 0)->port, 0u);
  EXPECT_EQ(find(m, 0, 4)->port, 1u);
  expectPaired(m);
}

TEST(Fabric, FullJoinsEveryPair) {
  const Machine m = small({"fabric.topology=full", "fabric.columns=8"});
  EXPECT_EQ(m.links.size(), 8u * 7);
  EXPECT_EQ(find(m, 2, 1)->port, 1u);
  EXPECT_EQ(find(m, 2, 3)->port, 2u);
  EXPECT_EQ(find(m, 2, 3)->toPort, 2u);
  EXPECT_EQ(find(m, 2, 3)->latency, 216u);
  expectPaired(m);
}

TEST(Fabric, ListTakesLinksAsGivenAndMissingTimesFromTheClass) {
  Expected<Machine> m =
      parseMachine("name: two\nbase: tsp-small\n"
                   "fabric:\n  topology: list\n  columns: 2\n"
                   "  links:\n"
                   "    - { from: 0, to: 1, port: 3, to_port: 5 }\n"
                   "    - { from: 1, to: 0, port: 5, to_port: 3, latency: 1 us, slot: 1 }\n");
  ASSERT_TRUE(m) << m.error();
  ASSERT_EQ(m->links.size(), 2u);
  EXPECT_EQ(m->links[0].port, 3u);
  EXPECT_EQ(m->links[0].latency, 216u);
  EXPECT_EQ(m->links[0].slot, 24u);
  EXPECT_EQ(m->links[1].latency, 900u);
  EXPECT_EQ(m->links[1].slot, 1u);
  Expected<Machine> again = parseMachine(toYaml(*m));
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(again->hash(), m->hash());
}

TEST(Fabric, ATopologyThatMakesItsOwnLinksReplacesTheListOfABase) {
  const std::string list = "name: two\nbase: tsp-small\n"
                           "fabric: { topology: list, columns: 2, links: [{ from: 1, to: 0 }] }\n";
  Expected<Machine> m = parseMachine(list, "two.yaml", {"fabric.topology=ring"});
  ASSERT_TRUE(m) << m.error();
  EXPECT_EQ(m->links.size(), 4u);
}

} // namespace
} // namespace millrace
