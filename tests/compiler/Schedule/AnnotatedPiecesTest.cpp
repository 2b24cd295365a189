// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does a placed piece say of every operand of every burst who made it, and of nothing else?
#include "compiler/Schedule/Piece.h"

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

using namespace millrace;
using schedule::Piece;

namespace {

constexpr Hemisphere W = Hemisphere::West;

class Annotated : public testing::Test {
protected:
  Machine machine = *loadMachine("tsp-small");
  schedule::Program program{machine};
  Piece piece{program};
  uint32_t region = program.addRegion({.slice = 3, .row = 0, .rows = 64});

  Annotated() {
    for (unsigned s = 0; s < 4; ++s)
      for (unsigned row = 0; row < 64; ++row)
        program.state[0].row(W, s, row).origin = {99, row, 0};
  }
  Instruction access(Opcode opcode, unsigned elements, unsigned address = 0) {
    Instruction i;
    i.opcode = opcode, i.n0 = uint16_t(elements), i.s0 = 1, i.tensor = region, i.address = address;
    return i;
  }
  static Instruction alu(unsigned n0, unsigned n1 = 1) {
    Instruction i;
    i.opcode = Opcode::Alu, i.function = uint8_t(AluOp::AddI32);
    i.n0 = uint16_t(n0), i.n1 = uint16_t(n1), i.c1 = n0;
    return i;
  }
  static Unit slice(unsigned index) { return {UnitKind::Mem, W, index}; }
  void place() {
    const Expected<Cycle> start = piece.place(0);
    ASSERT_TRUE(start) << start.error();
  }
  const std::vector<Producer> &of(Piece::BurstId burst, unsigned pe = 0) {
    return program.pes[pe].producers[piece.idOf(burst)];
  }
  /// Its only entry.
  Producer only(Piece::BurstId burst, unsigned pe = 0) {
    EXPECT_EQ(of(burst, pe).size(), 1u);
    return of(burst, pe).empty() ? Producer() : of(burst, pe)[0];
  }
};

TEST_F(Annotated, AReadNamesTheWritesOfItsRowsAndNothingElse) {
  for (unsigned row = 0; row < 3; ++row)
    program.state[0].row(W, 3, row).origin = {17, 10 + 2 * row, 0};
  const Piece::BurstId read = piece.add(0, slice(3), access(Opcode::Read, 3), 0);
  place();
  const Producer p = only(read);
  EXPECT_EQ(p.of, ProducerOf::Memory);
  EXPECT_EQ(p.instruction, 17u);
  EXPECT_EQ(p.first, 10u);
  EXPECT_EQ(p.step0, 2);
  EXPECT_EQ(p.count0, 3);
}

TEST_F(Annotated, ATapNamesTheElementThatMeetsIt) {
  // Element k is at position 1 in cycle k + 1, at 0 in k + 2: what is taken in cycle 3 is the second one.
  const Piece::BurstId read = piece.add(0, slice(3), access(Opcode::Read, 4), 0);
  const Piece::BurstId sum = piece.addAlu(piece.alu(0), alu(2), 3);
  const Piece::StreamVar s = piece.stream(0, W, Direction::Inward, 1);
  piece.feed(read, 0, s, 0, 1, 1, 1);
  piece.tap(sum, ProducerOf::B, s, 0, 1, 0);
  place();
  EXPECT_EQ(only(sum).of, ProducerOf::B);
  EXPECT_EQ(only(sum).instruction, piece.idOf(read));
  EXPECT_EQ(only(sum).first, 1u);
  EXPECT_EQ(only(sum).step0, 1);
  const Instruction &i = program.pes[0].instructions[piece.idOf(sum)];
  EXPECT_EQ(i.b.kind, OperandKind::Stream);
  EXPECT_EQ(i.b.index, program.pes[0].instructions[piece.idOf(read)].out[0]);
}

TEST_F(Annotated, BytesOfAGroupAreNamedOneByOneAndThoseThatNobodyUsesNotAtAll) {
  const Piece::BurstId sum = piece.addAlu(piece.alu(0), alu(2), 2);
  const Piece::StreamVar s = piece.stream(0, W, Direction::Inward, 4);
  Piece::BurstId read[4] = {};
  for (unsigned byte : {0u, 2u}) { // no 1, no 3
    read[byte] = piece.add(0, slice(byte), access(Opcode::Read, 2), 0);
    piece.feed(read[byte], 0, s, byte, 1, 1, 1);
    piece.tap(sum, byte ? ProducerOf::B : ProducerOf::A, s, byte, 1, 0);
  }
  place();
  ASSERT_EQ(of(sum).size(), 2u);
  for (const Producer &p : of(sum)) {
    EXPECT_EQ(p.instruction, piece.idOf(read[p.of == ProducerOf::A ? 0 : 2]));
    EXPECT_EQ(p.byte, 0) << "the only byte of its operand";
  }
}

TEST_F(Annotated, WhatIsChainedBehindARunningOperationIsItsLastRound) {
  Instruction running = alu(2, 3);
  running.flags = AluFlag::Running;
  const Piece::BurstId sums = piece.addAlu(piece.alu(0), running, 0);
  const Piece::BurstId after = piece.addAlu(piece.alu(0), alu(2), 7);
  piece.chain(after, ProducerOf::A, sums);
  const Piece::BurstId once = piece.addAlu(piece.alu(0), alu(2), 10);
  piece.chain(once, ProducerOf::B, after);
  place();
  EXPECT_EQ(only(after).instruction, piece.idOf(sums));
  EXPECT_EQ(only(after).first, 4u) << "of six elements the last two leave";
  EXPECT_EQ(only(once).instruction, piece.idOf(after));
  EXPECT_EQ(only(once).first, 0u);
  EXPECT_EQ(program.pes[0].instructions[piece.idOf(once)].b.kind, OperandKind::Alu);
}

TEST_F(Annotated, ALatchServesAllElements) {
  const Piece::AluVar one = piece.alu(0);
  Instruction load;
  load.opcode = Opcode::Latch;
  const Piece::BurstId latch = piece.addAlu(one, load, 0);
  const Piece::BurstId use = piece.addAlu(one, alu(5), 1);
  piece.latch(use, ProducerOf::B, latch);
  place();
  EXPECT_EQ(only(use).instruction, piece.idOf(latch));
  EXPECT_EQ(only(use).step0, 0);
  EXPECT_EQ(only(use).count0, 5);
  EXPECT_EQ(program.pes[0].instructions[piece.idOf(use)].b.kind, OperandKind::Latch);
}

TEST_F(Annotated, AnActivationNamesTheInstallsOfItsGroupsAndKeepsThoseAlone) {
  Instruction install;
  install.opcode = Opcode::Install, install.n0 = 2, install.s0 = 1, install.c0 = 5;
  const Piece::BurstId first = piece.add(0, {UnitKind::MxmInstall, W, 0}, install, 0);
  place();
  Piece next(program);
  Instruction activate;
  activate.opcode = Opcode::Activate, activate.format = ElementType::Int8, activate.n0 = 4;
  activate.k1 = 32, activate.g0 = 1, activate.g1 = 2;
  const Piece::BurstId use = next.add(0, {UnitKind::MxmActivate, W, 0}, activate, 0);
  Instruction accumulate;
  accumulate.opcode = Opcode::Accumulate, accumulate.format = ElementType::Int8, accumulate.n0 = 4, accumulate.s0 = 1;
  const Piece::BurstId sum = next.add(0, {UnitKind::MxmAccumulate, W, 0}, accumulate, 21);
  next.product(sum, use);
  next.weights(use, 0, {schedule::Origin{piece.idOf(first), 1, 0}});
  const Expected<Cycle> start = next.place(0);
  ASSERT_TRUE(start) << start.error();
  const schedule::BufferState &buffer = program.state[0].buffer(W, 0, 0);
  EXPECT_EQ(buffer.lastActivate[1], *start + 3);
  EXPECT_EQ(buffer.lastActivate[0], schedule::kNever) << "group 0 was not used";
  const std::vector<Producer> &weights = program.pes[0].producers[next.idOf(use)];
  ASSERT_EQ(weights.size(), 1u);
  EXPECT_EQ(weights[0].of, ProducerOf::Weights);
  EXPECT_EQ(weights[0].instruction, piece.idOf(first));
  EXPECT_EQ(weights[0].first, 1u);
  const std::vector<Producer> &products = program.pes[0].producers[next.idOf(sum)];
  ASSERT_EQ(products.size(), 1u);
  EXPECT_EQ(products[0].of, ProducerOf::Product);
  EXPECT_EQ(products[0].count0, 4);
  EXPECT_EQ(products[0].step0, 1);
}

TEST_F(Annotated, AnActivationOfTheFirstGroupLeavesTheNextFree) {
  Instruction activate;
  activate.opcode = Opcode::Activate, activate.format = ElementType::Int8, activate.k1 = 32, activate.g1 = 1;
  piece.add(0, {UnitKind::MxmActivate, W, 0}, activate, 0);
  place();
  EXPECT_NE(program.state[0].buffer(W, 0, 0).lastActivate[0], schedule::kNever);
  EXPECT_EQ(program.state[0].buffer(W, 0, 0).lastActivate[1], schedule::kNever);
}

} // namespace
