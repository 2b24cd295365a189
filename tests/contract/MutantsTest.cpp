// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does the simulator notice damage of every kind that the instruction table offers? Every invariant
// must catch some, nothing may hang or crash, and at most one mutant in twenty may be harmless.
#include "tests/contract/Mutants.h"

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

using namespace millrace;

TEST(Mutants, AreRejectedOrVisiblyDifferent) {
  test::Tally tally;
  for (const test::Subject &subject : test::mutationSubjects()) {
    Expected<Machine> machine = loadMachine(subject.machine);
    ASSERT_TRUE(machine) << machine.error();
    grid::CompileReport report;
    Expected<Image> image = grid::compile(subject.graph, *machine, {}, report);
    ASSERT_TRUE(image) << image.error();
    test::Judge judge(*image, subject.graph, *machine);
    ASSERT_EQ(judge.error, "");
    test::forEachMutant(*image, *machine, 2, 1, [&](const test::Mutant &mutant) {
      tally.add(mutant, judge.judge(mutant.image), subject.graph.name + " on " + subject.machine);
    });
  }
  std::printf("%s", tally.table().c_str());
  EXPECT_GE(tally.mutants, 300u);
  EXPECT_EQ(tally.hung, 0u);
  EXPECT_EQ(tally.crashed, 0u);
  EXPECT_GE(20 * tally.killed(), 19 * tally.mutants);
  for (unsigned s = 1; s < 12; ++s)
    EXPECT_GT(tally.rejected[s], 0u) << "S" << s << " caught nothing";
}
