// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Is a piece that needs one resource twice at a time refused by name, and one that just fits
// placed?
#include "compiler/Schedule/Piece.h"

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

using namespace millrace;
using schedule::Piece;

namespace {

class Pieces : public testing::Test {
protected:
  Machine machine = *loadMachine("tsp-small");
  schedule::Program program{machine};
  Piece piece{program};

  static constexpr Unit kSlice{UnitKind::Mem, Hemisphere::West, 3};

  Instruction access(Opcode opcode, unsigned bank) {
    Instruction i;
    i.opcode = opcode;
    i.address = bank * machine.memory.rowsPerBank;
    i.tensor = region;
    return i;
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

private:
  uint32_t region = program.addRegion({});
};

TEST_F(Pieces, AReadAndAWriteOfTwoBanksLeaveTheirQueueOneAfterTheOther) {
  piece.add(0, kSlice, access(Opcode::Read, 0), 0);
  piece.add(0, kSlice, access(Opcode::Write, 1), 1);
  EXPECT_EQ(refusal(), "placed");
}

TEST_F(Pieces, NoTwoBurstsLeaveOneMemQueueInOneCycle) {
  piece.add(0, kSlice, access(Opcode::Read, 0), 0);
  piece.add(0, kSlice, access(Opcode::Write, 1), 0);
  EXPECT_EQ(refusal(), "two bursts that belong together leave one MEM queue in one cycle");
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
                               " ALUs at once, the VXM has " + std::to_string(alus));
}

TEST_F(Pieces, AnAluThatIsFreeAgainServesASecondTime) {
  // One more than there are, but the last begins when the first is over.
  for (unsigned k = 0; k <= machine.vxm.alus; ++k)
    piece.addAlu(piece.alu(0), multiplication(4), k < machine.vxm.alus ? 0 : 1000);
  EXPECT_EQ(refusal(), "placed");
}

} // namespace
