// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long is a program let run that does not end when the image says?
#include "tests/simulator/system/Program.h"

namespace millrace::sim::test {
namespace {

constexpr Cycle kPatience = Cycle(1) << 23;

/// A Write whose slot is in cycle `slot`, in a step of `predicted` cycles.
SimulationResult endingAt(Cycle slot, uint64_t predicted) {
  Program p(machineNamed("tsp-small"));
  p.rows(W, 0, 0, {Row(32, 1)});
  p.tensor(W, 4, 0, 1);
  const Cycle write = slot - p.machine.latency.memWrite;
  p.read(write - 2, W, 0, 0, p.stream(W, Out, 0));
  p.write(write, W, 4, 0, p.on(W, Out, 0));
  return p.run(handWritten(), predicted);
}

TEST(Patience, LastsForTwiceTheStatedCountAndAWhile) {
  const uint64_t predicted = 10'000'000;
  const Cycle slot = kPatience + 2 * Cycle(predicted) - 10;
  const SimulationResult late = endingAt(slot, predicted);
  ASSERT_TRUE(late.violation);
  EXPECT_EQ(late.violation->invariant, Invariant::S11);
  EXPECT_EQ(late.violation->cycle, slot + 38) << "it ran to its end: " << verdict(late);
  const SimulationResult endless = endingAt(slot + 100, predicted);
  ASSERT_TRUE(endless.violation);
  EXPECT_EQ(endless.violation->invariant, Invariant::S11);
  EXPECT_LT(endless.violation->cycle, slot + 100) << "it was stopped: " << verdict(endless);
}

} // namespace
} // namespace millrace::sim::test
