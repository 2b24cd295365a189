// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What leaves an ALU, is latched or runs on, on machines whose operations take other times.
#include "tests/simulator/system/Program.h"

namespace millrace::sim::test {
namespace {

constexpr unsigned kLanes = 32;

TEST(Vector, ChainsOfEveryLatencyKeepTheirElementsApart) {
  // Exits stand in a ring; bursts without a gap fill it.
  for (unsigned op = 1; op <= 9; ++op)
    for (unsigned chain : {0u, 1u, 3u}) {
      Expected<Machine> machine = loadMachine(
          "tsp-small", {"latency.alu_op=" + std::to_string(op), "latency.alu_chain=" + std::to_string(chain)});
      ASSERT_TRUE(machine) << machine.error();
      Program p(*machine);
      constexpr unsigned n = 12;
      std::vector<Row> in;
      for (unsigned k = 0; k < n; ++k)
        in.push_back(Row(kLanes, uint8_t(10 * k)));
      p.rows(W, 0, 0, in);
      p.read(98, W, 0, 0, p.stream(W, In, 0), times(n));
      p.compute(100, 0, AluOp::Pass, p.on(W, In, 0), {}, kNoStream, 0, times(n));
      const Cycle second = 100 + op + chain;
      p.compute(second, 1, AluOp::AddI32, Program::alu(0), Program::immediate(), p.stream(W, Out, 0), 1,
                times(n))
          .immediate = 7;
      p.tensor(W, 4, 100, n);
      const LatencySpec &l = p.machine.latency;
      p.write(second + l.aluEntry + op + l.aluExit + 2, W, 4, 100, p.on(W, Out, 0), times(n));
      const SimulationResult r = p.run();
      ASSERT_FALSE(r.violation) << op << ", " << chain << ": " << verdict(r);
      for (unsigned k = 0; k < n; ++k)
        EXPECT_EQ(p.row(W, 4, 100 + k), Row(kLanes, uint8_t(10 * k + 7))) << op << ", " << chain;
    }
}

TEST(Vector, GroupsOfDifferentWidthThatOverlapDoNotEnterAnAluFromBothSides) {
  for (unsigned index : {0u, 1u, 3u, 4u}) {
    Program p(machineNamed("tsp-small"));
    for (unsigned b = 0; b < 4; ++b) {
      p.rows(W, b, 0, {Row(kLanes, 1)});
      p.read(98, W, b, 0, p.stream(W, In, b));
    }
    p.rows(E, 0, 0, {Row(kLanes, 1)});
    p.read(98, E, 0, 0, p.stream(E, In, index));
    p.compute(100, 3, AluOp::AddI32, p.on(W, In, 0, 4), p.on(E, In, index), kNoStream, 0);
    const SimulationResult r = p.run();
    EXPECT_EQ(r.violation.has_value(), index < 4) << index << ": " << verdict(r);
    if (r.violation) {
      EXPECT_EQ(r.violation->invariant, Invariant::S2);
    }
  }
}

} // namespace
} // namespace millrace::sim::test
