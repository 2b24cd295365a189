// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does the simulator notice damage of every kind that the instruction table offers? Every invariant
// must catch some, nothing may hang or crash, few may be harmless, and every one
// of those has a reason that a program found.
#include "tests/contract/Subjects.h"
#include "tests/contract/Tally.h"

#include <gtest/gtest.h>

using namespace millrace;

TEST(Mutants, AreRejectedOrVisiblyDifferentOrExplained) {
  test::Tally tally;
  for (const test::Subject &subject : test::mutationSubjects()) {
    Expected<test::Program> program = test::compiled(subject);
    ASSERT_TRUE(program) << program.error();
    test::Judge judge(program->image, program->machine);
    ASSERT_EQ(judge.error, "") << program->name;
    test::forEachMutant(program->image, program->machine, 1, 1, [&](const test::Mutant &mutant) {
      tally.add(program->name, mutant, judge.judge(mutant.image),
                [&] { return test::explain(program->image, program->machine, mutant, judge); });
    });
  }
  std::printf("%s", tally.text().c_str());
  EXPECT_GE(tally.total.mutants, 300u);
  EXPECT_EQ(tally.total.hung, 0u);
  EXPECT_EQ(tally.total.crashed, 0u);
  EXPECT_EQ(tally.unexplained, 0u);
  // The campaign kills 95 in 100 (docs/results); a few hundred mutants scatter around that.
  EXPECT_GE(100 * tally.total.killed, 92 * tally.total.mutants);
  for (unsigned s = 1; s < 12; ++s)
    EXPECT_GT(tally.total.rejected[s], 0u) << "S" << s << " caught nothing";
}
