// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Several PEs: links, windows, and the order in which things are built.
#include "tests/simulator/system/Program.h"

#include <random>

namespace millrace::sim::test {

/// A ring of `count` small PEs with links of some cycles.
static Machine ring(unsigned count, unsigned latency, unsigned slot) {
  auto m = loadMachine("tsp-small", {"fabric.topology=ring", "fabric.rows=1",
                                     "fabric.columns=" + std::to_string(count), "c2c.ports=2",
                                     "fabric.link.latency=" + std::to_string(latency) + " cycles",
                                     "fabric.link.slot=" + std::to_string(slot) + " cycles"});
  EXPECT_TRUE(m) << (m ? "" : m.error());
  return *m;
}

static const Link &linkBetween(const Machine &m, unsigned from, unsigned to) {
  for (const Link &link : m.links)
    if (link.from == from && link.to == to)
      return link;
  ADD_FAILURE() << "no link";
  return m.links[0];
}

/// A row of pe 0 travels to pe 1, which adds 1 and keeps it. `late` moves the Receive.
static Program transfer(Cycle late, Cycle secondSend = 0) {
  Program p(ring(2, 20, 6));
  const Link &link = linkBetween(p.machine, 0, 1);
  const unsigned lanes = p.machine.lanes();
  p.pe = 0;
  p.rows(E, 4, 0, {Row(lanes, 41), Row(lanes, 51)});
  p.read(100, E, 4, 0, p.stream(E, In, 0)); // position 2 in cycle 101, C2C is at 1
  p.add(102, {UnitKind::Send, W, link.port}, Opcode::Send).a = p.on(E, In, 0);
  if (secondSend) {
    p.read(100 + secondSend, E, 4, 1, p.stream(E, In, 0));
    p.add(102 + secondSend, {UnitKind::Send, W, link.port}, Opcode::Send).a = p.on(E, In, 0);
  }
  p.pe = 1;
  const Cycle arrives = 102 + 20;
  p.add(arrives + late, {UnitKind::Receive, W, link.toPort}, Opcode::Receive).out[0] =
      p.stream(W, In, 3);
  if (secondSend)
    p.add(arrives + late + secondSend, {UnitKind::Receive, W, link.toPort}, Opcode::Receive)
        .out[0] = p.stream(W, In, 3);
  p.compute(arrives + late + 1 + 1, 0, AluOp::AddI32, p.on(W, In, 3), Program::immediate(),
            p.stream(E, Out, 0))
      .immediate = 1;
  p.tensor(E, 0, 0, 1);
  p.write(arrives + late + 2 + 7 + 1, E, 0, 0, p.on(E, Out, 0));
  return p;
}

TEST(S9, AReceiveIsDispatchedLinkLatencyAfterItsSend) {
  Program right = transfer(0);
  SimulationResult r = right.run();
  EXPECT_FALSE(r.violation) << verdict(r);
  EXPECT_EQ(right.row(E, 0, 0), Row(right.machine.lanes(), 42));
  EXPECT_EQ(r.total.linkVectors, 1u);
  for (Cycle late : {-1, 1}) {
    SimulationResult wrong = transfer(late).run();
    ASSERT_TRUE(wrong.violation);
    EXPECT_EQ(wrong.violation->invariant, Invariant::S9) << verdict(wrong);
    EXPECT_EQ(wrong.violation->pe, 1u);
    EXPECT_EQ(wrong.violation->cycle,
              late < 0 ? 121 : 122); // nothing there; or the vector was not taken
  }
}

TEST(S9, ALinkCarriesOneVectorPerSlot) {
  for (Cycle apart : {5, 6}) {
    Program p = transfer(0, apart);
    SimulationResult r = p.run();
    EXPECT_EQ(!r.violation, apart == 6) << verdict(r);
    if (r.violation) {
      EXPECT_EQ(r.violation->invariant, Invariant::S9) << verdict(r);
      EXPECT_EQ(r.violation->cycle, 107);
      EXPECT_EQ(r.violation->pe, 0u);
    }
  }
}

/// Rows travel around the ring, each PE adding its number; some programs are damaged.
static Program around(unsigned seed, bool damaged) {
  Program p(ring(4, 7, 1));
  std::mt19937 random(seed);
  const unsigned lanes = p.machine.lanes(), hops = 9;
  Cycle t = 50;
  p.pe = 0;
  Row first(lanes);
  for (uint8_t &b : first)
    b = uint8_t(random());
  p.rows(E, 4, 0, {first, first, first});
  p.read(t - 2, E, 4, 0, p.stream(E, In, 0), times(3));
  for (unsigned hop = 0; hop < hops; ++hop) {
    const unsigned from = hop % 4, to = (hop + 1) % 4;
    const Link &link = linkBetween(p.machine, from, to);
    p.pe = from;
    p.add(t, {UnitKind::Send, W, link.port}, Opcode::Send, times(3)).a =
        hop ? p.on(E, Out, hop) : p.on(E, In, 0);
    p.pe = to;
    p.add(t + 7, {UnitKind::Receive, W, link.toPort}, Opcode::Receive, times(3)).out[0] =
        p.stream(W, In, hop);
    p.compute(t + 9, hop, AluOp::AddI32, p.on(W, In, hop), Program::immediate(),
              p.stream(E, Out, hop + 1), 1, times(3))
        .immediate = to + 1;
    t += 9 + 7 + 1; // on position 1 of the next PE
  }
  p.tensor(E, 0, 0, 3); // position 1
  p.write(t, E, 0, 0, p.on(E, Out, hops), times(3));
  if (damaged) {
    auto &list = p.image.instructions[random() % 4].edit();
    if (!list.empty())
      list[random() % list.size()].cycle += 1 + random() % 3;
    Instruction &other = p.image.instructions[2].edit()[random() % 2];
    if (other.opcode == Opcode::Receive)
      other.out[0] = p.stream(W, In, 30);
  }
  return p;
}

static std::string summary(const SimulationResult &r) {
  std::string text = verdict(r) + " cycles " + std::to_string(r.measuredCycles);
  for (uint64_t value : {r.total.streamHops, r.total.streamVectors, r.total.linkVectors,
                         r.total.sramReads, r.total.sramWrites})
    text += " " + std::to_string(value);
  return text;
}

TEST(Windows, ResultsAreTheSameForAnyWindowAndOrderOfConstruction) {
  for (unsigned seed = 0; seed < 24; ++seed) {
    const bool damaged = seed % 4 != 0;
    Program p = around(seed, damaged);
    SimulationOptions options = handWritten();
    const SimulationResult truth = p.run(options);
    const auto rows = p.memory;
    EXPECT_TRUE(damaged || !truth.violation) << verdict(truth);
    for (Cycle window : {1, 2, 3, 7, 100}) {
      for (bool reverse : {false, true}) {
        options.window = window, options.reverseConstruction = reverse;
        SimulationResult r = p.run(options);
        // Counters beyond a violation are nobody's business.
        EXPECT_EQ(truth.violation ? verdict(r) : summary(r),
                  truth.violation ? verdict(truth) : summary(truth))
            << "seed " << seed << " window " << window;
        EXPECT_EQ(p.memory, rows);
      }
    }
  }
}

TEST(CyclesOnly, CountsAndVerdictsAreThoseOfARunWithValues) {
  for (unsigned seed = 0; seed < 24; ++seed) {
    Program p = around(seed, seed % 2);
    SimulationOptions options = handWritten();
    const SimulationResult values = p.run(options);
    options.values = false;
    const SimulationResult cycles = p.run(options);
    EXPECT_EQ(summary(cycles), summary(values)) << "seed " << seed;
  }
}

} // namespace millrace::sim::test
