// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Has each idle cycle one cause, what pruning left out none of them, and is a wrong account found?
#include "compiler/Schedule/Ledger.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Schedule/Piece.h"

#include <gtest/gtest.h>
#include <set>

using namespace millrace;
using namespace millrace::schedule;

namespace {

/// Passes on all ALUs; each piece is a kernel.
class Ledgers : public testing::Test {
protected:
  Machine machine = *loadMachine("tsp-small");
  Program program{machine};

  Cycle place(uint32_t kernel, unsigned elements, Cycle from, unsigned pace = 1) {
    Instruction i;
    i.opcode = Opcode::Alu;
    i.function = uint8_t(AluOp::Pass);
    i.n0 = uint16_t(elements);
    i.c0 = pace;
    Piece piece(program);
    for (unsigned k = 0; k < machine.vxm.alus; ++k)
      piece.addAlu(piece.alu(0), i, 0);
    program.waits.kernel = kernel;
    const Expected<Cycle> start = piece.place(from);
    EXPECT_TRUE(start);
    return *start;
  }
  /// Of the program as one step, without the bursts of kernel `dropped`.
  Expected<Ledger> ledger(uint32_t dropped = kNobody, bool withGaps = false) {
    program.endGridStep();
    Image image;
    auto numbers = program.finish(image);
    std::vector<Instruction> kept;
    std::vector<uint32_t> keptNumbers;
    for (size_t k = 0; k < image.instructions[0].size(); ++k)
      if (const uint32_t number = numbers[0][k];
          program.waits.placements[program.pes[0].placements[number]].kernel != dropped) {
        kept.push_back(image.instructions[0][k]);
        keptNumbers.push_back(number);
      }
    image.steps[0].pes[0] = {0, uint32_t(kept.size())};
    image.instructions[0] = kept;
    numbers[0] = keptNumbers;
    predicted = int64_t(image.steps[0].predictedCycles);
    return account(image, program, numbers, withGaps);
  }
  int64_t predicted = 0;
};

TEST_F(Ledgers, BusyAndIdleCyclesAreAllThatThereAre) {
  place(0, 10, 0);
  place(1, 5, 20);
  const Expected<Ledger> l = ledger();
  ASSERT_TRUE(l) << l.error();
  EXPECT_EQ(l->cycles, predicted);
  EXPECT_EQ(l->busyOf(Engine::Vxm), 15);
  EXPECT_EQ(l->idleOf(Engine::Vxm, Cause::Order), 10);
  EXPECT_EQ(l->idleOf(Engine::Vxm, Cause::NothingLeft), predicted - 25);
  EXPECT_EQ(l->idleOf(Engine::Vxm), predicted - 15);
  EXPECT_EQ(l->idleOf(Engine::Mxm, Cause::NothingLeft),
            predicted * kHemispheres * machine.mxm.planes)
      << "planes that get no work";
}

TEST_F(Ledgers, CyclesBetweenElementsOfAPieceAreItsPace) {
  place(0, 4, 0, 3);
  const Expected<Ledger> l = ledger();
  ASSERT_TRUE(l) << l.error();
  EXPECT_EQ(l->busyOf(Engine::Vxm), 4);
  EXPECT_EQ(l->idleOf(Engine::Vxm, Cause::Pace), 6);
}

TEST_F(Ledgers, WaitsForWhatWasLeftOutCountAsDroppedWork) {
  place(0, 5, 0);
  place(1, 8, 0); // holds all ALUs in cycles 5 to 12
  EXPECT_EQ(place(2, 5, 0), 13);
  const Expected<Ledger> l = ledger(/*dropped=*/1, /*withGaps=*/true);
  ASSERT_TRUE(l) << l.error();
  EXPECT_EQ(l->idleOf(Engine::Vxm, Cause::Dropped), 8);
  EXPECT_EQ(l->idleOf(Engine::Vxm, Cause::Alu), 0);
  for (const Gap &gap : l->gaps)
    if (gap.engine == Engine::Vxm && gap.kernel == 2) {
      EXPECT_EQ(gap.from, 5);
      EXPECT_EQ(gap.to, 13);
      EXPECT_EQ(gap.holder, 1u);
    }
}

TEST_F(Ledgers, APieceWithoutAReasonToStartIsFound) {
  place(0, 5, 7);
  program.waits.waits.back().until -= 2;
  const Expected<Ledger> l = ledger();
  ASSERT_FALSE(l);
  EXPECT_NE(l.error().find("no reason to start in cycle 7"), std::string::npos) << l.error();
}

TEST_F(Ledgers, AResourceThatNobodyHeldIsFound) {
  place(0, 5, 0);
  place(1, 5, 20);
  Wait &wait = program.waits.waits.back();
  wait.cause = Cause::Alu;
  wait.resource = Resources(machine).unit(machine.queue({UnitKind::Alu, Hemisphere::West, 0}));
  wait.heldAt = 15;
  const Expected<Ledger> l = ledger();
  ASSERT_FALSE(l);
  EXPECT_NE(l.error().find("nobody held what a piece waited for in cycle 15 (alu)"),
            std::string::npos)
      << l.error();
}

TEST_F(Ledgers, EveryCauseHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (unsigned c = 0; c < kCauses; ++c)
    names.insert(nameOf(Cause(c)));
  EXPECT_EQ(names.size(), kCauses);
  EXPECT_EQ(nameOf(Cause::NothingLeft), "nothing_left");
  EXPECT_EQ(nameOf(Cause::ReadPort), "read_port");
}

} // namespace
