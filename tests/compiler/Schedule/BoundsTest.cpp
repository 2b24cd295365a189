// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Are bounds those that follow on paper, met by schedules that lose nothing and below all others?
#include "compiler/Schedule/Bounds.h"
#include "tests/compiler/Schedule/PieceFixture.h"

#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::schedule;

namespace {

class BoundsOfPieces : public test::PieceFixture {
protected:
  const Cycle slot = program.timing.writeSlot(), again = program.timing.readAfterWrite();
  Image image;

  void place(Piece &piece, uint32_t kernel, Cycle from = 0) {
    program.waits.kernel = kernel;
    const Expected<Cycle> start = piece.place(from);
    ASSERT_TRUE(start) << start.error();
  }
  Bounds bounds() {
    program.endGridStep();
    image = Image();
    const auto numbers = program.finish(image);
    return boundsOf(image, program, numbers);
  }
  int64_t predicted() const { return int64_t(image.steps.back().predictedCycles); }
  int64_t by(const Bounds &b, BoundKind kind) const { return b.byKind[unsigned(kind)]; }
};

TEST_F(BoundsOfPieces, APortTakesItsWorkAndTheWayToTheLastSlot) {
  for (uint32_t kernel = 0; kernel < 3; ++kernel) {
    Piece piece(program);
    add(piece, Opcode::Write, 0, kernel * machine.memory.rowsPerBank, 10, 0);
    place(piece, kernel);
  }
  const Bounds b = bounds();
  EXPECT_EQ(b.cycles, program.timing.countFrom(30 - 1 + slot));
  EXPECT_EQ(b.cycles, predicted()) << "the schedule loses nothing";
  const std::vector<BoundPart> &parts = b.steps[0].parts;
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].kind, BoundKind::CriticalPath);
  EXPECT_EQ(parts[1].kind, BoundKind::WritePort);
  EXPECT_EQ(machine.queueName(parts[1].queue), "mem.w.0");
  EXPECT_EQ(parts[1].firstKernel, 0u);
  EXPECT_EQ(parts[1].lastKernel, 2u);
  EXPECT_EQ(parts[1].cycles, 30);
  EXPECT_EQ(parts[2].kind, BoundKind::CriticalPath);
  EXPECT_EQ(by(b, BoundKind::CriticalPath), program.timing.countFrom(9 + slot));
}

TEST_F(BoundsOfPieces, RowsThatPiecesPassOnMakeTheCriticalPath) {
  Piece first(program), second(program);
  add(first, Opcode::Write, 0, 0, 10, 0);
  place(first, 0);
  add(second, Opcode::Read, 0, 9, 1, 0); // the row that is written last
  add(second, Opcode::Write, 1, 0, 1, 50);
  place(second, 1);
  const Bounds b = bounds();
  EXPECT_EQ(by(b, BoundKind::CriticalPath), program.timing.countFrom(9 + slot + again + 50 + slot));
  EXPECT_EQ(b.cycles, predicted());
}

TEST_F(BoundsOfPieces, WorkThatOnlyBeginsLateCountsBehindItsEarliestStart) {
  Piece first(program);
  add(first, Opcode::Write, 0, 0, 10, 0);
  place(first, 0);
  for (uint32_t kernel = 1; kernel < 4; ++kernel) { // all read the last row and write one slice
    Piece piece(program);
    add(piece, Opcode::Read, 0, 9, 1, 0);
    add(piece, Opcode::Write, 1, kernel * machine.memory.rowsPerBank % machine.rowsPerSlice(), 20,
        50);
    place(piece, kernel);
  }
  const Bounds b = bounds();
  const Cycle head = 9 + slot + again + 50;
  EXPECT_EQ(by(b, BoundKind::WritePort), program.timing.countFrom(head + 60 - 1 + slot));
  EXPECT_LE(b.cycles, predicted());
}

TEST_F(BoundsOfPieces, UnitsThatWaitForEachOthersWorkAreBoundedOneBehindTheOther) {
  for (uint32_t kernel = 0; kernel < 3; ++kernel) {
    Piece piece(program);
    add(piece, Opcode::Write, 0, kernel * 20, 20, 0);
    place(piece, kernel);
  }
  Piece gate(program); // takes the last row of each
  for (unsigned n = 0; n < 3; ++n)
    add(gate, Opcode::Read, 0, n * 20 + 19, 1, Cycle(n));
  add(gate, Opcode::Write, 2, 0, 1, 50);
  place(gate, 3);
  for (uint32_t kernel = 4; kernel < 7; ++kernel) {
    Piece piece(program);
    add(piece, Opcode::Read, 2, 0, 1, 0);
    add(piece, Opcode::Write, 1, (kernel - 4) * 20, 20, 50);
    place(piece, kernel);
  }
  const Bounds b = bounds();
  // 60 writes to one slice, the gate, 60 to another; no kind alone sees both.
  const Cycle open = slot + again, more = 60 - 1 + slot;
  EXPECT_GE(b.cycles, program.timing.countFrom(60 - 1 - 2 + open + 50 + open + 50 + more));
  EXPECT_LE(b.cycles, predicted());
  EXPECT_LT(*std::max_element(b.byKind.begin(), b.byKind.end()), b.cycles - 30);
  Cycle sum = 0, works = 0;
  for (const BoundPart &part : b.steps[0].parts) {
    sum += part.cycles;
    if (part.kind == BoundKind::WritePort || part.kind == BoundKind::Bank) // each is as busy
      works += part.cycles;
  }
  EXPECT_EQ(sum, b.cycles);
  EXPECT_GE(works, 120);
}

TEST_F(BoundsOfPieces, CyclesLostToAnOrderAreTheGap) {
  Piece piece(program);
  add(piece, Opcode::Write, 0, 0, 10, 0);
  place(piece, 0, /*from=*/37);
  const Bounds b = bounds();
  EXPECT_EQ(predicted() - b.cycles, 37);
}

TEST_F(BoundsOfPieces, AStepWithoutPiecesTakesWhatAnyStepTakes) {
  const Bounds b = bounds();
  ASSERT_EQ(b.steps.size(), 1u);
  EXPECT_EQ(b.cycles, program.timing.countFrom(0));
  ASSERT_EQ(b.steps[0].parts.size(), 1u);
  EXPECT_EQ(b.steps[0].parts[0].cycles, b.cycles);
}

TEST_F(BoundsOfPieces, StepsAddUp) {
  for (int step = 0; step < 2; ++step) {
    Piece piece(program);
    add(piece, Opcode::Write, 0, 0, 10, 0);
    place(piece, 0);
    if (step == 0) {
      program.endGridStep();
      program.addHostStep({});
    }
  }
  const Bounds b = bounds();
  ASSERT_EQ(b.steps.size(), 2u);
  EXPECT_EQ(b.cycles, 2 * program.timing.countFrom(9 + slot));
}

} // namespace
