// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does a piece say what kept it from starting earlier, until when, and who held it?

#include "tests/compiler/Schedule/PieceFixture.h"
#include <gtest/gtest.h>

using namespace millrace;
using schedule::Cause;
using schedule::Piece;
using schedule::Wait;

namespace {

class WaitsOfPieces : public test::PieceFixture {
protected:
  schedule::Resources resources{machine};

  static Unit slice(unsigned index) { return {UnitKind::Mem, Hemisphere::West, index}; }
  Instruction access(Opcode opcode, unsigned bank, unsigned row, unsigned elements) const {
    return PieceFixture::access(opcode, bank * machine.memory.rowsPerBank + row, elements);
  }
  /// A burst on a slice, placed from `from` on.
  Cycle place(unsigned index, const Instruction &i, Cycle from = 0) {
    Piece piece(program);
    piece.add(0, slice(index), i, 0);
    return start(piece, from);
  }
  Cycle placeAlu(unsigned elements, unsigned count) {
    Instruction i;
    i.opcode = Opcode::Alu;
    i.function = uint8_t(AluOp::Pass);
    i.n0 = uint16_t(elements);
    Piece piece(program);
    for (unsigned k = 0; k < count; ++k)
      piece.addAlu(piece.alu(0), i, 0);
    return start(piece, 0);
  }
  Cycle start(Piece &piece, Cycle from) {
    const Expected<Cycle> found = piece.place(from);
    EXPECT_TRUE(found) << (found ? "" : found.error());
    return found ? *found : -1;
  }
  /// Of the piece placed last: each begins where the one before ends, and the last at the start.
  std::vector<Wait> waits() {
    const schedule::PlacedPiece &last = program.waits.placements.back();
    std::vector<Wait> its(program.waits.waits.begin() + last.firstWait, program.waits.waits.end());
    EXPECT_FALSE(its.empty());
    for (size_t k = 1; k < its.size(); ++k)
      EXPECT_GT(its[k].until, its[k - 1].until);
    EXPECT_EQ(its.back().until, last.start);
    return its;
  }
};

TEST_F(WaitsOfPieces, TheFirstPieceWaitsForTheBeginOfTheStep) {
  EXPECT_EQ(place(0, access(Opcode::Read, 0, 0, 4)), 0);
  EXPECT_EQ(waits().back().cause, Cause::StepBegin);
}

TEST_F(WaitsOfPieces, WhatIsNeededBeforeTheStartIsDispatchedInCycle0) {
  Piece piece(program);
  piece.add(0, slice(0), access(Opcode::Read, 0, 0, 4), -7);
  EXPECT_EQ(start(piece, 0), 7);
  EXPECT_EQ(waits().back().cause, Cause::StepBegin);
}

TEST_F(WaitsOfPieces, AReadPortIsHeldByTheBurstBefore) {
  place(0, access(Opcode::Read, 0, 0, 10));
  EXPECT_EQ(place(0, access(Opcode::Read, 1, 0, 4)), 10);
  const std::vector<Wait> its = waits();
  ASSERT_EQ(its.size(), 2u);
  EXPECT_EQ(its[1].cause, Cause::ReadPort);
  EXPECT_EQ(its[1].resource, resources.readPort(Hemisphere::West, 0));
  EXPECT_EQ(its[1].heldAt, 9);
}

TEST_F(WaitsOfPieces, ABankIsHeldByAReadOfOtherRows) {
  place(0, access(Opcode::Read, 0, 0, 10));
  // The write slot comes `mem_write` cycles after the dispatch, and the bank is free in cycle 10.
  EXPECT_EQ(place(0, access(Opcode::Write, 0, 20, 4)), 10 - program.timing.writeSlot());
  EXPECT_EQ(waits().back().cause, Cause::Bank);
  EXPECT_EQ(waits().back().resource, resources.bank(Hemisphere::West, 0, 0));
}

TEST_F(WaitsOfPieces, AWritePortIsHeldByAWriteOfAnotherBank) {
  place(0, access(Opcode::Write, 0, 0, 10));
  EXPECT_EQ(place(0, access(Opcode::Write, 1, 0, 4)), 10);
  EXPECT_EQ(waits().back().cause, Cause::WritePort);
}

TEST_F(WaitsOfPieces, AQueueLetsOneInstructionGoInACycle) {
  place(0, access(Opcode::Read, 0, 0, 10));
  EXPECT_EQ(place(0, access(Opcode::Write, 1, 0, 4)), 1);
  EXPECT_EQ(waits().back().cause, Cause::Dispatch);
  EXPECT_EQ(waits().back().resource, resources.readPort(Hemisphere::West, 0));
  EXPECT_EQ(waits().back().heldAt, 0);
}

TEST_F(WaitsOfPieces, ARowIsReadAfterTheBurstThatWritesIt) {
  place(0, access(Opcode::Write, 0, 0, 10));
  const Cycle first = place(0, access(Opcode::Read, 0, 9, 1));
  EXPECT_EQ(first, 9 + program.timing.writeSlot() + program.timing.readAfterWrite());
  ASSERT_EQ(waits().size(), 1u);
  EXPECT_EQ(waits().back().cause, Cause::Dependence);
  EXPECT_EQ(waits().back().holder, 0u) << "the number of the write";
}

TEST_F(WaitsOfPieces, ARowIsWrittenAfterItsLastRead) {
  place(0, access(Opcode::Read, 0, 0, 10));
  place(0, access(Opcode::Write, 0, 9, 1));
  const Wait first = waits().front();
  EXPECT_EQ(first.cause, Cause::MemoryReuse);
  EXPECT_EQ(first.until, 10 - program.timing.writeSlot());
  EXPECT_EQ(first.resource, resources.readPort(Hemisphere::West, 0));
  EXPECT_EQ(first.heldAt, 9);
}

TEST_F(WaitsOfPieces, AnOrderOfTheCallerIsACauseOfItsOwn) {
  EXPECT_EQ(place(0, access(Opcode::Read, 0, 0, 4), 30), 30);
  ASSERT_EQ(waits().size(), 2u);
  EXPECT_EQ(waits()[0].cause, Cause::StepBegin);
  EXPECT_EQ(waits()[0].until, 0);
  EXPECT_EQ(waits()[1].cause, Cause::Order);
}

TEST_F(WaitsOfPieces, TheAluThatIsFreeFirstIsTheOneWaitedFor) {
  placeAlu(10, machine.vxm.alus - 1);
  placeAlu(6, 1);
  EXPECT_EQ(placeAlu(3, 1), 6);
  EXPECT_EQ(waits().back().cause, Cause::Alu);
  EXPECT_EQ(waits().back().resource,
            resources.unit(machine.queue({UnitKind::Alu, Hemisphere::West, machine.vxm.alus - 1})));
}

TEST_F(WaitsOfPieces, AStreamIsHeldByTheBurstThatTookItsLastVector) {
  machine.streams = 1;
  const auto move = [&](unsigned from, unsigned bank) {
    Piece piece(program);
    const Piece::StreamVar stream = piece.stream(0, Hemisphere::West, Direction::Inward, 1);
    const Cycle at = -program.timing.readTo(from, 0);
    piece.feed(piece.add(0, slice(from), access(Opcode::Read, bank, 0, 10), at), 0, stream, 0, 1,
               machine.position(from), program.timing.readInjects());
    Instruction pass;
    pass.opcode = Opcode::Alu;
    pass.function = uint8_t(AluOp::Pass);
    pass.n0 = 10;
    piece.tap(piece.addAlu(piece.alu(0), pass, 0), ProducerOf::A, stream, 0, 1, 0);
    return start(piece, 0);
  };
  const Cycle first = move(0, 0);
  EXPECT_EQ(move(1, 0), first + 10);
  EXPECT_EQ(waits().back().cause, Cause::Stream);
  EXPECT_EQ(waits().back().holder, 1u) << "the number of the ALU's burst";
}

TEST_F(WaitsOfPieces, BehindAHostStepTheBarrierIsTheCause) {
  place(0, access(Opcode::Read, 0, 0, 4));
  program.endGridStep();
  program.addHostStep({});
  place(0, access(Opcode::Read, 0, 0, 4));
  EXPECT_EQ(waits().back().cause, Cause::HostBarrier);
}

TEST_F(WaitsOfPieces, WhoHoldsWhatIsOnRecord) {
  place(0, access(Opcode::Write, 1, 0, 4));
  const std::vector<schedule::Held> &held = program.waits.held.back()[0];
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0].resource, resources.writePort(Hemisphere::West, 0));
  EXPECT_EQ(held[0].last, 3);
  EXPECT_EQ(held[1].resource, resources.bank(Hemisphere::West, 0, 1));
  EXPECT_EQ(held[1].first, program.timing.writeSlot());
}

} // namespace
