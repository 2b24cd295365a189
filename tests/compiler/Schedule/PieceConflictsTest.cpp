// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Are two bursts of a piece that meet in a slice found, and does one that is moved elsewhere still
// meet its stream?

#include "tests/compiler/Schedule/PieceFixture.h"
#include <gtest/gtest.h>

#include <algorithm>

using namespace millrace;
using schedule::Piece;

namespace {

class Conflicts : public test::PieceFixture {
protected:
  Piece piece{program};

  bool fits(Piece::BurstId burst, unsigned slice, unsigned bank) {
    return Piece::Conflicts(piece).freePlaces(burst)[slice * machine.memory.banks + bank];
  }
  /// A Read that passes position 0 at `arrive`, and an ALU there.
  Piece::BurstId read(unsigned slice, unsigned address, unsigned rows, Cycle arrive) {
    const Piece::BurstId burst =
        piece.add(0, {UnitKind::Mem, Hemisphere::West, slice}, access(Opcode::Read, address, rows),
                  arrive - program.timing.readTo(slice, 0));
    const Piece::StreamVar stream = piece.stream(0, Hemisphere::West, Direction::Inward, 1);
    piece.feed(burst, 0, stream, 0, 1, machine.position(slice), program.timing.readInjects());
    Instruction pass;
    pass.opcode = Opcode::Alu;
    pass.function = uint8_t(AluOp::Pass);
    pass.n0 = uint16_t(rows);
    pass.c0 = 1;
    piece.tap(piece.addAlu(piece.alu(0), pass, arrive), ProducerOf::A, stream, 0, 1, 0);
    return burst;
  }
};

TEST_F(Conflicts, TwoReadsOfOneSliceMeetWhileTheyOverlapAndNoLonger) {
  read(3, 0, 10, 100);
  read(3, 50, 10, 110);
  EXPECT_FALSE(piece.conflict());
  read(3, 100, 10, 119);
  ASSERT_TRUE(piece.conflict());
  EXPECT_EQ(piece.proto(piece.conflict()->first).address, 50u);
  EXPECT_EQ(piece.proto(piece.conflict()->second).address, 100u);
}

TEST_F(Conflicts, AReadAndAWriteMeetInTheirBankInItsWriteSlot) {
  const unsigned bank = machine.memory.rowsPerBank;
  piece.add(0, {UnitKind::Mem, Hemisphere::West, 3}, access(Opcode::Read, 0, 1), 0);
  const Cycle slot = program.timing.writeSlot();
  ASSERT_GT(slot, 0);
  piece.add(0, {UnitKind::Mem, Hemisphere::West, 3}, access(Opcode::Write, bank, 1), -slot);
  EXPECT_FALSE(piece.conflict()); // another bank
  piece.add(0, {UnitKind::Mem, Hemisphere::West, 3}, access(Opcode::Write, bank - 1, 1), -slot - 1);
  EXPECT_FALSE(piece.conflict()); // a cycle earlier
  piece.add(0, {UnitKind::Mem, Hemisphere::West, 3}, access(Opcode::Write, 5, 1), -slot);
  EXPECT_TRUE(piece.conflict());
}

TEST_F(Conflicts, ABurstThatIsMovedMeetsItsStreamWhereItLiesNow) {
  const Piece::BurstId first = read(3, 0, 10, 100), second = read(3, 50, 10, 100);
  ASSERT_TRUE(piece.conflict());
  EXPECT_FALSE(fits(second, 3, 1)); // the port is the slice's
  const unsigned far = machine.memory.slices - 1;
  ASSERT_TRUE(fits(second, far, 0));
  piece.moveRows(second, far, 7, 1, 0, region);
  EXPECT_FALSE(piece.conflict());
  EXPECT_EQ(piece.at(first), 100 - program.timing.readTo(3, 0));
  EXPECT_EQ(piece.at(second), 100 - program.timing.readTo(far, 0));
  EXPECT_EQ(piece.proto(second).address, 7u);
  EXPECT_TRUE(piece.place(0)); // whose producers are looked for where streams meet
}

TEST_F(Conflicts, RowsDoNotMoveBehindThoseWhoSampleThem) {
  const Piece::BurstId burst =
      piece.add(0, {UnitKind::Mem, Hemisphere::West, 0}, access(Opcode::Read, 0, 1), 0);
  const Piece::StreamVar stream = piece.stream(0, Hemisphere::West, Direction::Outward, 1);
  piece.feed(burst, 0, stream, 0, 1, machine.position(0), program.timing.readInjects());
  const unsigned middle = machine.memory.slices / 2;
  const Piece::BurstId write =
      piece.add(0, {UnitKind::Mem, Hemisphere::West, middle}, access(Opcode::Write, 0, 1), 20);
  piece.tap(write, ProducerOf::A, stream, 0, 1, machine.position(middle));
  EXPECT_TRUE(fits(burst, middle - machine.memory.slicesPerRegister, 0));
  EXPECT_FALSE(fits(burst, machine.memory.slices - 1, 0));
  EXPECT_TRUE(fits(write, machine.memory.slices - 1, 0));
}

TEST_F(Conflicts, ASearchThatGoesOnFindsThePairsThatOneFromTheBeginningFinds) {
  std::vector<Piece::BurstId> reads;
  for (unsigned n = 0; n < 6; ++n) // pairs of neighbours meet, in two slices
    reads.push_back(read(n < 3 ? 3 : 7, 20 * n, 10, 100 + 8 * Cycle(n)));
  Piece::Conflicts conflicts(piece);
  unsigned moved = 0;
  while (const auto pair = conflicts.next()) {
    ASSERT_EQ(piece.conflict(), pair);
    const Piece::BurstId burst = moved % 2 ? pair->first : pair->second;
    const std::vector<bool> places = conflicts.freePlaces(burst);
    const size_t place =
        size_t(std::find(places.rbegin(), places.rend(), true).base() - places.begin()) - 1;
    conflicts.move(burst, unsigned(place) / machine.memory.banks, 200 + 20 * moved, 1, 0, region);
    ++moved;
    ASSERT_LT(moved, 7u);
  }
  EXPECT_EQ(moved, 3u); // the middle of the first three leaves both others alone
  EXPECT_FALSE(piece.conflict());
}

} // namespace
