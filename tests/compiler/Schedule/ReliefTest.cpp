// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does a program without its waits for a resource take the cycles that follow on paper, and is a
// record that does not give the program's own cycles found?
#include "compiler/Schedule/Relief.h"
#include "tests/compiler/Schedule/PieceFixture.h"

#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::schedule;

namespace {

class Reliefs : public test::PieceFixture {
protected:
  const Cycle slot = program.timing.writeSlot(), again = program.timing.readAfterWrite();

  void write(unsigned slice, unsigned bank, unsigned elements, Cycle from = 0) {
    Piece piece(program);
    add(piece, Opcode::Write, slice, bank * machine.memory.rowsPerBank, elements, 0);
    place(piece, from);
  }
  void place(Piece &piece, Cycle from = 0) {
    program.waits.kernel = 0;
    const Expected<Cycle> start = piece.place(from);
    ASSERT_TRUE(start) << start.error();
  }
  /// Of the program without its first `dropped` bursts.
  Expected<std::vector<int64_t>> relieved(const std::vector<Relief> &reliefs,
                                          uint32_t dropped = 0) {
    program.endGridStep();
    image = Image();
    auto numbers = program.finish(image);
    std::vector<Instruction> kept(image.instructions[0].begin() + dropped,
                                  image.instructions[0].end());
    numbers[0].erase(numbers[0].begin(), numbers[0].begin() + dropped);
    if (dropped) {
      image.steps[0].pes[0] = {0, uint32_t(kept.size())};
      image.instructions[0] = kept;
    }
    return relievedCycles(image, program, numbers, reliefs);
  }
  static Relief of(std::initializer_list<Cause> causes, double share = 0) {
    Relief relief{{}, share};
    for (const Cause cause : causes)
      relief.causes.set(unsigned(cause));
    return relief;
  }
  int64_t count(Cycle lastSlot) const { return program.timing.countFrom(lastSlot); }
  Image image;
};

TEST_F(Reliefs, WhatWaitsForAPortStartsAsSoonAsTheShareSays) {
  for (unsigned bank = 0; bank < 2; ++bank)
    write(0, bank, 10);
  const auto cycles =
      relieved({of({Cause::WritePort}), of({Cause::WritePort}, 0.5), of({Cause::WritePort}, 1)});
  ASSERT_TRUE(cycles) << cycles.error();
  EXPECT_EQ(*cycles, (std::vector<int64_t>{count(9 + slot), count(14 + slot), count(19 + slot)}));
}

TEST_F(Reliefs, AnotherResourceChangesNothing) {
  for (unsigned bank = 0; bank < 2; ++bank)
    write(0, bank, 10);
  const auto cycles = relieved({of({Cause::Stream, Cause::Alu, Cause::ReadPort})});
  ASSERT_TRUE(cycles) << cycles.error();
  EXPECT_EQ((*cycles)[0], count(19 + slot));
}

TEST_F(Reliefs, WhatWasWaitedForBehindAResourceStartsEarlierToo) {
  for (unsigned bank = 0; bank < 2; ++bank)
    write(0, bank, 10);
  Piece reader(program); // of the row that the second writes last
  add(reader, Opcode::Read, 0, machine.memory.rowsPerBank + 9, 1, 0);
  add(reader, Opcode::Write, 1, 0, 1, 50);
  place(reader);
  const auto cycles = relieved({of({Cause::WritePort})});
  ASSERT_TRUE(cycles) << cycles.error();
  EXPECT_EQ((*cycles)[0], count(9 + slot + again + 50 + slot));
}

TEST_F(Reliefs, RowsThatPassFromPieceToPieceAreKept) {
  write(0, 0, 10);
  Piece reader(program);
  add(reader, Opcode::Read, 0, 9, 1, 0);
  add(reader, Opcode::Write, 1, 0, 1, 50);
  place(reader);
  std::bitset<kCauses> all;
  const auto cycles = relieved({{all.set(), 0}});
  ASSERT_TRUE(cycles) << cycles.error();
  EXPECT_EQ((*cycles)[0], int64_t(image.steps[0].predictedCycles));
}

TEST_F(Reliefs, AnOrderMovesWithThePieceThatItFollows) {
  for (unsigned bank = 0; bank < 2; ++bank)
    write(0, bank, 10);
  write(1, 0, 10, /*from=*/10); // begins with the second
  const auto cycles = relieved({of({Cause::WritePort})});
  ASSERT_TRUE(cycles) << cycles.error();
  EXPECT_EQ((*cycles)[0], count(9 + slot));
}

TEST_F(Reliefs, WhatWaitedForAPieceThatWasPrunedStillDoes) {
  for (unsigned bank = 0; bank < 2; ++bank)
    write(0, bank, 10);
  const auto cycles = relieved({of({Cause::Stream}), of({Cause::WritePort})}, /*dropped=*/1);
  ASSERT_TRUE(cycles) << cycles.error();
  EXPECT_EQ(*cycles, (std::vector<int64_t>{count(19 + slot), count(9 + slot)}));
}

TEST_F(Reliefs, StepsAddUpAndTimeStartsAnewInEach) {
  for (int step = 0; step < 2; ++step) {
    write(0, 0, 10);
    write(0, 1, 10);
    if (step == 0) {
      program.endGridStep();
      program.addHostStep({});
    }
  }
  const auto cycles = relieved({of({Cause::WritePort})});
  ASSERT_TRUE(cycles) << cycles.error();
  EXPECT_EQ((*cycles)[0], 2 * count(9 + slot));
}

TEST_F(Reliefs, AWrongRecordIsFound) {
  write(0, 0, 10, /*from=*/5);
  program.waits.waits.back().until = 4;
  const auto cycles = relieved({of({Cause::WritePort})});
  ASSERT_FALSE(cycles);
  EXPECT_NE(cycles.error().find("played again it takes"), std::string::npos);
}

} // namespace
