// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sends and receives of a ring of three: by hand, and random ones in both simulators.
#include "tests/simulator/system/Program.h"

#include <random>

namespace millrace::sim::test {
namespace {

constexpr unsigned kLanes = 32;

Machine ring(unsigned latency, unsigned slot) {
  Expected<Machine> m = loadMachine(
      "tsp-small", {"fabric.topology=ring", "fabric.rows=1", "fabric.columns=3", "c2c.ports=2",
                    "fabric.link.latency=" + std::to_string(latency) + " cycles",
                    "fabric.link.slot=" + std::to_string(slot) + " cycles"});
  EXPECT_TRUE(m) << (m ? "" : m.error());
  return *m;
}

class Ring : public Program {
public:
  Ring(unsigned latency, unsigned slot) : Program(ring(latency, slot)) {
    for (pe = 0; pe < 3; ++pe) {
      std::vector<Row> contents;
      for (unsigned k = 0; k < 8; ++k)
        contents.push_back(Row(kLanes, uint8_t(100 * pe + k)));
      for (unsigned port = 0; port < 2; ++port) {
        rows(W, port, 0, contents);
        tensor(W, 4 + port, 0, 64);
      }
    }
  }
  /// Rows of the slice that the port has at its own position leave by `port` from cycle `at` on.
  void send(unsigned from, Cycle at, unsigned port, unsigned row, Loops l = {}) {
    pe = from;
    Loops rows = l;
    rows.s0 = 1;
    read(at - 1, W, port, row, stream(W, Out, port), rows);
    add(at, {UnitKind::Send, W, port}, Opcode::Send, l).a = on(W, Out, port);
  }
  void receive(unsigned to, Cycle at, unsigned port, uint32_t row, Loops l = {}) {
    pe = to;
    add(at, {UnitKind::Receive, W, port}, Opcode::Receive, l).out[0] = stream(W, Out, 8 + port);
    Loops rows = l;
    rows.s0 = 1;
    write(at + 2, W, 4 + port, row, on(W, Out, 8 + port), rows);
  }
};

TEST(Links, DeliverInOrderToTheNextPeAndToThePreviousOne) {
  Ring p(20, 6);
  p.send(0, 50, 0, 2, {3, 1, 6}); // to pe 1, its port 1
  p.receive(1, 70, 1, 10, {3, 1, 6});
  p.send(0, 52, 1, 5); // to pe 2, its port 0
  p.receive(2, 72, 0, 20);
  const SimulationResult r = p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  for (unsigned k = 0; k < 3; ++k)
    EXPECT_EQ((p.pe = 1, p.row(W, 5, 10 + k)), Row(kLanes, uint8_t(2 + k)));
  EXPECT_EQ((p.pe = 2, p.row(W, 4, 20)), Row(kLanes, 5));
  EXPECT_EQ(r.total.linkVectors, 4u);
  EXPECT_EQ(r.pes[0].linkVectors, 4u);
}

TEST(Links, CarryOneVectorASlotAndEachIsReceivedInItsCycle) {
  for (auto [second, received, broken] :
       {std::tuple(56, 76, false), std::tuple(55, 75, true), std::tuple(56, 75, true), std::tuple(56, 77, true)}) {
    Ring p(20, 6);
    p.send(0, 50, 0, 0), p.send(0, second, 0, 1);
    p.receive(1, 70, 1, 0), p.receive(1, received, 1, 1);
    const SimulationResult r = p.run();
    EXPECT_EQ(r.violation.has_value(), broken) << second << ", " << received << ": " << verdict(r);
    if (r.violation) {
      EXPECT_EQ(r.violation->invariant, Invariant::S9) << verdict(r);
    }
  }
}

TEST(Links, AVectorThatNobodyReceivesIsMissedWhenItArrives) {
  Ring p(20, 1);
  p.send(0, 50, 0, 0), p.send(0, 60, 0, 1);
  p.receive(1, 80, 1, 1);
  const SimulationResult r = p.run();
  ASSERT_TRUE(r.violation);
  EXPECT_EQ(r.violation->invariant, Invariant::S9);
  EXPECT_EQ(r.violation->cycle, 70);
  EXPECT_EQ(r.violation->pe, 1u);
}

TEST(Links, RandomTrafficIsThatOfTheSlowSimulator) {
  unsigned legal = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return unsigned(random() % n); };
    const unsigned latency = 1 + below(30), slot = 1 + below(8);
    Ring p(latency, slot);
    for (unsigned from = 0; from < 3; ++from)
      for (unsigned port = 0; port < 2; ++port) {
        const unsigned to = (from + (port ? 2 : 1)) % 3;
        Cycle at = 40 + below(10);
        for (unsigned k = 0; k < 3; ++k) {
          const unsigned n = 1 + below(3), every = slot + (below(30) ? below(3) : 0) - (below(60) == 0);
          const Loops l{uint16_t(n), 1, std::max(1u, every)};
          p.send(from, at, port, below(6), l);
          p.receive(to, at + Cycle(latency) + (below(60) ? 0 : 1), 1 - port, 10 * k, l);
          at += Cycle(n * every + slot + below(6));
        }
      }
    legal += !p.run().violation;
  }
  EXPECT_GE(legal, 40u);
}

} // namespace
} // namespace millrace::sim::test
