// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does the simulator notice damage of every kind that the instruction table offers? Every invariant
// must catch some, nothing may hang or crash, few may be harmless, and every one
// of those has a reason that a program found.
#include "tests/contract/Dataflow.h"
#include "tests/contract/Subjects.h"
#include "tests/contract/Tally.h"

#include "arch/isa/Fields.h"
#include "arch/isa/Print.h"
#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>
#include <set>

using namespace millrace;

namespace {

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

/// Two of every instruction of the table, on two units, with something in every field; never run.
Image everyInstruction(const Machine &m) {
  Image image;
  image.instructions.resize(m.pes());
  image.producers.resize(m.pes());
  for (const OpcodeInfo &opcode : opcodes())
    for (unsigned n = 0; n < 2; ++n) {
      const UnitKind kind = opcode.anyUnit ? UnitKind::Mem : opcode.unit;
      const bool sided =
          kind != UnitKind::Alu && kind != UnitKind::Send && kind != UnitKind::Receive;
      Instruction i;
      i.opcode = opcode.opcode;
      i.queue = uint16_t(m.queue({kind, sided ? Hemisphere(n) : Hemisphere::West, sided ? 0 : n}));
      i.cycle = 100 * image.instructions[0].size();
      i.n0 = i.n1 = 3, i.c0 = 2, i.c1 = 9, i.s0 = i.s1 = 2, i.address = 5;
      i.a = i.b = {OperandKind::Stream, 1,
                   uint16_t(m.stream(Hemisphere::West, Direction::Inward, 0))};
      if (n == 1)
        i.b = {OperandKind::Immediate, 0, 0};
      i.c = {OperandKind::Alu, 0, 0};
      i.out[0] = i.out[1] = m.stream(Hemisphere::West, Direction::Outward, 0);
      i.outWidth = 1, i.k0 = i.g0 = 1, i.k1 = i.g1 = 2;
      i.producers = uint32_t(image.producers[0].size()), i.producerCount = 1;
      Producer entry;
      entry.count0 = entry.count1 = 3;
      image.producers[0].edit().push_back(entry);
      image.instructions[0].edit().push_back(i);
    }
  Step step;
  step.pes.resize(m.pes());
  step.pes[0].end = uint32_t(image.instructions[0].size());
  image.steps.push_back(step);
  image.tensors.resize(1);
  image.blocks.resize(1);
  return image;
}

/// A new instruction brings its mutants along: every kind that the table offers is made, and every
/// slot, as the assembler knows it, is changed.
TEST(Kinds, FollowTheInstructionTable) {
  const Machine machine = *loadMachine("mesh-4x4");
  const Image right = everyInstruction(machine);
  std::set<std::string> made, changed;
  test::forEachMutant(right, machine, 100, 1, [&](const test::Mutant &mutant) {
    made.insert(mutant.kind);
    for (size_t k = 0; k < right.instructions[0].size(); ++k) {
      const Instruction &x = right.instructions[0][k], &y = mutant.image.instructions[0][k];
      for (const Slot *slot : slotsOf(x.opcode))
        if (x.opcode == y.opcode && slot->get(x) != slot->get(y))
          changed.insert(std::string(info(x.opcode).mnemonic) + "." + std::string(slot->name));
    }
  });
  for (const OpcodeInfo &opcode : opcodes()) {
    const std::vector<std::string> kinds = test::mutantKinds(opcode.opcode);
    EXPECT_GE(kinds.size(), 6 + 1u) << opcode.mnemonic;
    for (const std::string &kind : kinds)
      EXPECT_TRUE(made.contains(kind)) << kind;
    for (const Slot *slot : slotsOf(opcode.opcode))
      EXPECT_TRUE(changed.contains(std::string(opcode.mnemonic) + "." + std::string(slot->name)))
          << opcode.mnemonic << " " << slot->name;
  }
}

/// Dead work would survive every mutant: the compiler leaves none.
TEST(Programs, HaveNoBurstFromWhichNothingReachesAnOutput) {
  for (const test::Subject &subject : test::mutationSubjects()) {
    Expected<test::Program> program = test::compiled(subject);
    ASSERT_TRUE(program) << program.error();
    test::Dataflow flow(program->image, program->machine);
    ASSERT_EQ(flow.error, "") << program->name;
    flow.outputs();
    for (unsigned pe = 0; pe < program->image.instructions.size(); ++pe)
      for (uint32_t k = 0; k < program->image.instructions[pe].size(); ++k)
        EXPECT_TRUE(flow.reached(pe, k))
            << program->name << ": pe " << pe << ", "
            << print(program->machine, program->image.instructions[pe][k]);
  }
}

} // namespace
