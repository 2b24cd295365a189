// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does a burst start in the first cycle that what was placed before leaves free, and not before?
#include "compiler/Schedule/Piece.h"

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

using namespace millrace;
using schedule::Piece;
using schedule::RegionState;

namespace {

constexpr Hemisphere W = Hemisphere::West, E = Hemisphere::East;
constexpr Unit kSlice{UnitKind::Mem, W, 3};

class Hazards : public testing::Test {
protected:
  Machine machine;
  std::unique_ptr<schedule::Program> program;

  explicit Hazards(const std::vector<std::string> &set = {}) : machine(*loadMachine("tsp-small", set)) {
    program = std::make_unique<schedule::Program>(machine);
    for (Hemisphere h : {W, E}) // so that all rows can be read
      for (unsigned r = 0; r < machine.rowsPerSlice(); ++r)
        program->state[0].row(h, kSlice.index, r).origin = {kInitialContents, r, 0};
  }

  uint32_t region(unsigned row, unsigned rows, Cycle notBefore = schedule::kNever) {
    RegionState r;
    r.slice = kSlice.index, r.row = row, r.rows = rows, r.notBefore = notBefore;
    return program->addRegion(r);
  }
  static Instruction access(Opcode opcode, unsigned row, uint32_t region, unsigned elements = 1) {
    Instruction i;
    i.opcode = opcode, i.address = row, i.tensor = region, i.n0 = uint16_t(elements), i.s0 = 1;
    return i;
  }
  schedule::RowState &row(unsigned address) {
    return program->state[0].row(W, kSlice.index, address);
  }
  /// Where a burst alone is placed.
  Cycle placed(Unit unit, const Instruction &i, Cycle from = 0) {
    Piece piece(*program);
    piece.add(0, unit, i, 0);
    const Expected<Cycle> start = piece.place(from);
    EXPECT_TRUE(start) << (start ? "" : start.error());
    return start ? *start : -1;
  }
  Cycle slot() const { return program->timing.writeSlot(); }
};

TEST_F(Hazards, ARowIsWrittenAfterItsLastReadAndAfterItsLastWrite) {
  const uint32_t r = region(0, 4);
  row(1).lastRead = 100;
  EXPECT_EQ(placed(kSlice, access(Opcode::Write, 1, r)), 101 - slot());
  row(2).writeSlot = 200;
  EXPECT_EQ(placed(kSlice, access(Opcode::Write, 2, r)), 201 - slot());
  row(3).lastRead = 300;
  EXPECT_EQ(placed(kSlice, access(Opcode::Write, 0, r, 4)), 301 - 3 - slot()) << "its fourth element";
}

TEST_F(Hazards, ARegionBeginsInTheCycleAfterTheLastUseOfItsRowsBefore) {
  EXPECT_EQ(placed(kSlice, access(Opcode::Write, 8, region(8, 1, 50))), 51 - slot());
}

TEST_F(Hazards, ReadsAndWritesLeaveTheirTraceInTheRows) {
  const uint32_t r = region(0, 8);
  EXPECT_EQ(placed(kSlice, access(Opcode::Write, 0, r, 3), 10), 10);
  for (unsigned k = 0; k < 3; ++k)
    EXPECT_EQ(row(k).writeSlot, 10 + slot() + Cycle(k));
  EXPECT_EQ(placed(kSlice, access(Opcode::Read, 0, r, 3), 40), 40);
  for (unsigned k = 0; k < 3; ++k)
    EXPECT_EQ(row(k).lastRead, 40 + Cycle(k));
  EXPECT_EQ(row(3).lastRead, schedule::kNever);
  EXPECT_EQ(program->regions[r].from, 10 + slot());
  EXPECT_EQ(program->regions[r].to, 42);
}

TEST_F(Hazards, AGatherReadsEveryRowOfItsTensorTheLastOneToo) {
  const uint32_t r = region(0, 4);
  EXPECT_EQ(placed(kSlice, access(Opcode::Gather, 0, r), 20), 20);
  for (unsigned k = 0; k < 4; ++k)
    EXPECT_EQ(row(k).lastRead, 20) << "row " << k;
  EXPECT_EQ(placed(kSlice, access(Opcode::Write, 3, r)), 21 - slot());
}

TEST_F(Hazards, AGatherWaitsForEveryRowOfItsTensor) {
  const uint32_t r = region(0, 4);
  row(3).writeSlot = 70;
  EXPECT_EQ(placed(kSlice, access(Opcode::Gather, 0, r)), 70 + program->timing.readAfterWrite());
}

TEST_F(Hazards, AGatherHoldsAllBanksOfItsTensor) {
  const unsigned bank = machine.memory.rowsPerBank;
  EXPECT_EQ(placed(kSlice, access(Opcode::Gather, bank - 2, region(bank - 2, 4)), 20), 20);
  // A row of the second bank that is not of the table: only the bank keeps it out of cycle 20.
  EXPECT_EQ(placed(kSlice, access(Opcode::Write, bank + 9, region(bank + 9, 1)), 20 - slot()),
            21 - slot());
}

TEST_F(Hazards, WeightsAreReplacedAfterTheirLastUseAndAfterTheirInstallEvenIfUnused) {
  Instruction install;
  install.opcode = Opcode::Install, install.address = 1;
  const Unit unit{UnitKind::MxmInstall, W, 0};
  schedule::BufferState &buffer = program->state[0].buffer(W, 0, 0);
  buffer.installed[1] = 80;
  EXPECT_EQ(placed(unit, install), 81) << "nobody has used what was installed in 80";
  EXPECT_EQ(buffer.installed[1], 81);
  buffer.lastActivate[1] = 90;
  EXPECT_EQ(placed(unit, install), 92) << "the activation of 90 passes group 1 in 91";
}

TEST_F(Hazards, AnActivationWaitsForBothPlanesOfItsPair) {
  Instruction activate;
  activate.opcode = Opcode::Activate, activate.format = ElementType::Fp16;
  activate.k1 = 16, activate.g0 = 0, activate.g1 = 2;
  const Unit unit{UnitKind::MxmActivate, W, 0};
  const Cycle wait = program->timing.installToActivate();
  program->state[0].buffer(W, 1, 0).installed[0] = 60;
  EXPECT_EQ(placed(unit, activate), 60 + wait);
  EXPECT_EQ(program->state[0].buffer(W, 1, 0).lastActivate[1], 60 + wait);
  program->state[0].buffer(W, 0, 0).installed[1] = 90;
  EXPECT_EQ(placed(unit, activate), 89 + wait) << "group 1 is passed a cycle after group 0";
}

TEST_F(Hazards, AnAccumulatorRowRestsForItsInterval) {
  Instruction accumulate;
  accumulate.opcode = Opcode::Accumulate, accumulate.address = 5, accumulate.format = ElementType::Int8;
  const Unit unit{UnitKind::MxmAccumulate, W, 0};
  EXPECT_EQ(placed(unit, accumulate, 7), 7);
  EXPECT_EQ(placed(unit, accumulate), 7 + program->timing.accumulateInterval());
}

TEST_F(Hazards, AStepBeginsWithoutTimesWeightsAndSums) {
  const uint32_t r = region(0, 4);
  row(1).lastRead = 100, row(1).writeSlot = 90, row(1).origin = {7, 3, 0};
  program->state[0].buffer(W, 0, 0).installed[1] = 80;
  program->state[0].accumulator(W, 0, 5) = 70;
  EXPECT_EQ(placed(kSlice, access(Opcode::Read, 1, r), 95), 95);
  program->endGridStep();
  EXPECT_EQ(placed(kSlice, access(Opcode::Read, 1, r)), 0);
  EXPECT_EQ(row(1).writeSlot, schedule::kNever);
  EXPECT_EQ(row(1).origin, (schedule::Origin{7, 3, 0})) << "memory keeps its values";
  EXPECT_EQ(program->state[0].buffer(W, 0, 0).installed[1], schedule::kNever);
  EXPECT_EQ(program->state[0].accumulator(W, 0, 5), schedule::kNever);
  EXPECT_EQ(program->regions[r].step1, 1u);
}

/// Reads take twice as long as they must until their rows may be read again.
class LateReads : public Hazards {
protected:
  LateReads() : Hazards({"latency.read_after_write=5"}) {}
};
TEST_F(LateReads, ComeAsLateAsTheMachineSays) {
  row(0).writeSlot = 100;
  EXPECT_EQ(placed(kSlice, access(Opcode::Read, 0, region(0, 1))), 105);
}

class OneAlu : public Hazards {
protected:
  OneAlu() : Hazards({"vxm.alus=1", "latency.alu_ops.exp.f32=9", "latency.alu_op=3"}) {}
  Cycle placedAlu(AluOp op, Cycle from) {
    Piece piece(*program);
    Instruction i;
    i.opcode = Opcode::Alu, i.function = uint8_t(op), i.n0 = 4;
    piece.addAlu(piece.alu(0), i, 0);
    return *piece.place(from);
  }
};
TEST_F(OneAlu, IsHeldByASlowOperationUntilAFastOneCannotLeaveBeforeIt) {
  EXPECT_EQ(placedAlu(AluOp::ExpF32, 0), 0);
  // The last of four leaves in 3 + 9; a fast one of cycle t in t + 3, which must be later.
  EXPECT_EQ(placedAlu(AluOp::AddF32, 0), 10);
  EXPECT_EQ(placedAlu(AluOp::AddF32, 0), 14) << "a fast one holds it for its four cycles alone";
}

class Ring : public Hazards {
protected:
  Ring()
      : Hazards({"fabric.topology=ring", "fabric.rows=1", "fabric.columns=2", "c2c.ports=2",
                 "fabric.link.latency=20 cycles", "fabric.link.slot=6 cycles"}) {}
};
TEST_F(Ring, ALinkCarriesAVectorForItsWholeSlot) {
  Instruction send;
  send.opcode = Opcode::Send;
  EXPECT_EQ(placed({UnitKind::Send, W, 0}, send, 3), 3);
  EXPECT_EQ(placed({UnitKind::Send, W, 0}, send, 3), 9);
  EXPECT_EQ(placed({UnitKind::Send, W, 1}, send, 3), 3) << "another port";
}

TEST_F(Hazards, OneAluTakesNoStreamsOfOneNumberFromBothSides) {
  const uint32_t tensor = region(0, 2);
  for (Direction direction : {Direction::Inward, Direction::Outward}) {
    Piece piece(*program);
    Instruction add;
    add.opcode = Opcode::Alu, add.function = uint8_t(AluOp::AddI32);
    const Piece::BurstId sum = piece.addAlu(piece.alu(0), add, 20);
    Piece::StreamVar stream[2];
    for (Hemisphere h : {W, E}) {
      // Whoever feeds it: the burst that injects at position 0 when the ALU takes it.
      const Piece::BurstId read =
          piece.add(0, {UnitKind::Mem, h, 3}, access(Opcode::Read, 0, tensor), 10);
      stream[unsigned(h)] = piece.stream(0, h, direction, 1);
      piece.feed(read, 0, stream[unsigned(h)], 0, 1, 0, 10);
      piece.tap(sum, h == W ? ProducerOf::A : ProducerOf::B, stream[unsigned(h)], 0, 1, 0);
    }
    ASSERT_TRUE(piece.place(100));
    const Instruction &i = program->pes[0].instructions[piece.idOf(sum)];
    EXPECT_NE(machine.indexOf(i.a.index), machine.indexOf(i.b.index));
    EXPECT_NE(machine.hemisphereOf(i.a.index), machine.hemisphereOf(i.b.index));
  }
}

} // namespace
