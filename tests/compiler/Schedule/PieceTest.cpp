// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Is a piece that needs one resource twice at a time refused by name, and one that just fits
// placed?

#include "tests/compiler/Schedule/PieceFixture.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>

using namespace millrace;
using schedule::Piece;

namespace {

class Pieces : public test::PieceFixture {
protected:
  Piece piece{program};

  static constexpr Unit kSlice{UnitKind::Mem, Hemisphere::West, 3};

  Instruction access(Opcode opcode, unsigned bank) const {
    return PieceFixture::access(opcode, bank * machine.memory.rowsPerBank, 1);
  }
  static Instruction multiplication(unsigned elements) {
    Instruction i;
    i.opcode = Opcode::Alu;
    i.function = uint8_t(AluOp::MulI32);
    i.n0 = uint16_t(elements);
    return i;
  }
  std::string refusal() {
    const Expected<Cycle> start = piece.place(0);
    return start ? "placed" : start.error();
  }
};

TEST_F(Pieces, AReadAndAWriteOfTwoBanksLeaveTheirQueueOneAfterTheOther) {
  piece.add(0, kSlice, access(Opcode::Read, 0), 0);
  piece.add(0, kSlice, access(Opcode::Write, 1), 1);
  EXPECT_EQ(refusal(), "placed");
}

TEST_F(Pieces, NoTwoBurstsLeaveOneMemQueueInOneCycle) {
  piece.add(0, kSlice, access(Opcode::Read, 0), 0);
  piece.add(0, kSlice, access(Opcode::Write, 1), 0);
  EXPECT_EQ(refusal(),
            "two bursts that belong together leave one MEM queue in one cycle; use a machine "
            "with more slices, or cut the node into several");
}

TEST_F(Pieces, NoTwoReadsHoldOnePort) {
  piece.add(0, kSlice, access(Opcode::Read, 0), 0);
  Instruction second = access(Opcode::Read, 1);
  second.address += 5;
  piece.add(0, kSlice, second, 0);
  const std::string text = refusal();
  EXPECT_NE(text.find("mem.w.3 at once (read of row 0, read of row " +
                      std::to_string(second.address) + ")"),
            std::string::npos)
      << text;
}

TEST_F(Pieces, AsManyAlusAsTheVxmHasServeAtOnceAndNoMore) {
  const unsigned alus = machine.vxm.alus;
  for (unsigned k = 0; k < alus; ++k)
    piece.addAlu(piece.alu(0), multiplication(4), 0);
  EXPECT_EQ(refusal(), "placed");
  Piece larger(program);
  for (unsigned k = 0; k <= alus; ++k)
    larger.addAlu(larger.alu(0), multiplication(4), 0);
  const Expected<Cycle> start = larger.place(0);
  ASSERT_FALSE(start);
  EXPECT_EQ(start.error(), "a kernel's epilogue needs " + std::to_string(alus + 1) +
                               " ALUs at once, the VXM has " + std::to_string(alus) +
                               "; use a machine with more, or cut the node into several");
}

TEST_F(Pieces, AnAluThatIsFreeAgainServesASecondTime) {
  // One more than there are, but the last begins when the first is over.
  for (unsigned k = 0; k <= machine.vxm.alus; ++k)
    piece.addAlu(piece.alu(0), multiplication(4), k < machine.vxm.alus ? 0 : 1000);
  EXPECT_EQ(refusal(), "placed");
}

TEST_F(Pieces, AlusThatComeInAnyOrderTakeNoMoreThanAreHeldAtOnce) {
  // Two are held at once at most; first fit in this order would take a third.
  const auto hold = [&](Cycle at, unsigned cycles) {
    piece.addAlu(piece.alu(0), multiplication(cycles), at);
  };
  machine.vxm.alus = 2;
  hold(100, 10), hold(0, 10), hold(5, 100);
  EXPECT_EQ(refusal(), "placed");
}

/// `count` fp32 rows that arrive at the VXM together.
void readTogether(Piece &piece, const Machine &machine, Instruction read, unsigned count) {
  read.n0 = 100;
  for (unsigned k = 0; k < count; ++k) {
    const Piece::StreamVar stream = piece.stream(0, Hemisphere::West, Direction::Inward, 4);
    for (unsigned byte = 0; byte < 4; ++byte) {
      const unsigned slice = 4 * k + byte;
      const Cycle at =
          -Cycle(machine.latency.memRead + machine.position(slice) * machine.latency.hop);
      const Piece::BurstId burst = piece.add(0, {UnitKind::Mem, Hemisphere::West, slice}, read, at);
      piece.feed(burst, 0, stream, byte, 1, machine.position(slice), machine.latency.memRead);
    }
    Instruction pass;
    pass.opcode = Opcode::Alu;
    pass.function = uint8_t(AluOp::Pass);
    pass.n0 = read.n0;
    piece.tap(piece.addAlu(piece.alu(0), pass, 0), ProducerOf::A, stream, 0, 4, 0);
  }
}

TEST_F(Pieces, AsManyStreamsAsAHemisphereHasServeAtOnceAndOneMoreIsRefusedNotSoughtForEver) {
  machine.streams = 8; // two groups of four
  readTogether(piece, machine, access(Opcode::Read, 0), 2);
  EXPECT_EQ(refusal(), "placed");
  Piece larger(program);
  readTogether(larger, machine, access(Opcode::Read, 1), 3);
  const Expected<Cycle> start = larger.place(0);
  ASSERT_FALSE(start);
  EXPECT_EQ(start.error(),
            "bursts that belong together need 12 inward streams of one hemisphere at once, in "
            "aligned groups; the machine has streams = 8");
}

TEST_F(Pieces, ARowThatNothingWroteIsNotRead) {
  program.state[0].row(Hemisphere::West, 3, 0).origin = {};
  Piece::StreamVar stream = piece.stream(0, Hemisphere::West, Direction::Inward, 1);
  const Piece::BurstId burst = piece.add(0, kSlice, access(Opcode::Read, 0), 0);
  piece.feed(burst, 0, stream, 0, 1, machine.position(3), machine.latency.memRead);
  piece.tap(piece.addAlu(piece.alu(0), multiplication(1), 1000), ProducerOf::A, stream, 0, 1, 0);
  EXPECT_NE(refusal().find("which nothing has written"), std::string::npos);
}

TEST(Intervals, TheFirstFreeRunIsThatOfASearchWithoutMemory) {
  std::mt19937 draw(7);
  schedule::IntervalSet set;
  std::vector<bool> held(4000, false);
  for (int step = 0; step < 3000; ++step) {
    const Cycle start = draw() % 2000, length = 1 + draw() % (step % 3 ? 4 : 40);
    Cycle first = start;
    for (Cycle run = 0; run < length;)
      if (held[size_t(first + run)])
        first += run + 1, run = 0;
      else
        ++run;
    ASSERT_EQ(set.firstFree(start, length), first) << "step " << step;
    if (first + length > 3000 || draw() % 2)
      continue;
    set.reserve(first, length);
    std::fill_n(held.begin() + first, length, true);
  }
}

TEST(Cycles, ASetHoldsWhatWasPutIntoIt) {
  std::mt19937 draw(11);
  schedule::CycleSet set;
  std::set<Cycle> known;
  for (int step = 0; step < 2000; ++step) {
    const auto cycle = Cycle(draw() % 5000) * (step % 5 ? 1 : 1'000'000);
    ASSERT_EQ(set.has(cycle), known.contains(cycle)) << cycle;
    if (draw() % 2) {
      set.insert(cycle);
      known.insert(cycle);
    }
  }
  for (Cycle cycle = 0; cycle < 6000; ++cycle)
    ASSERT_EQ(set.has(cycle), known.contains(cycle)) << cycle;
}

} // namespace
