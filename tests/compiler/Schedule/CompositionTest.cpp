// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// "Checks by composition" of docs/spec/machine.md as distances of the scheduler: pieces are built
// with its Timing and placed; the cycles at which they land are the published ones. The simulator
// has the same rows as hand-written programs; the two share no formula.
#include "compiler/Schedule/Piece.h"

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>
#include <optional>
#include <stdexcept>

using namespace millrace;
using namespace millrace::schedule;

namespace {

constexpr Hemisphere E = Hemisphere::East, W = Hemisphere::West;

class Composition : public testing::Test {
protected:
  Machine m = *loadMachine("tsp-v1");
  std::optional<Program> program{std::in_place, m};
  unsigned last = m.lastPosition();

  /// Rows [0, count) of a slice, loaded with the program or to be written.
  uint32_t rows(Hemisphere h, unsigned slice, unsigned row, unsigned count, bool loaded) {
    for (unsigned r = row; loaded && r < row + count; ++r)
      program->state[0].row(h, slice, r).origin = {kInitialContents, r - row, 0};
    RegionState region;
    region.hemisphere = h;
    region.slice = slice;
    region.row = row;
    region.rows = count;
    return program->addRegion(region);
  }
  static Instruction burst(Opcode opcode, unsigned n) {
    Instruction i;
    i.opcode = opcode;
    i.n0 = uint16_t(n);
    i.s0 = 1;
    return i;
  }
  /// Reads rows from `row` on so that the first is at `position` in cycle `at` of the piece.
  Piece::BurstId readTo(Piece &piece, Hemisphere h, unsigned slice, unsigned row, unsigned n,
                        Piece::StreamVar stream, unsigned byte, unsigned position, Cycle at,
                        uint32_t region) {
    Instruction i = burst(Opcode::Read, n);
    i.address = row;
    i.tensor = region;
    auto id =
        piece.add(0, {UnitKind::Mem, h, slice}, i, at - program->timing.readTo(slice, position));
    piece.feed(id, 0, stream, byte, 1, m.position(slice), program->timing.readInjects());
    return id;
  }
  /// `count` chained operations from `in` at the piece's cycle `at`; their result goes to row `row`
  /// of the slice.
  void computeAndWrite(Piece &piece, Piece::StreamVar in, unsigned width, Cycle at, unsigned count,
                       unsigned n, unsigned slice, unsigned row) {
    Piece::BurstId before = 0;
    for (unsigned k = 0; k < count; ++k) {
      Instruction i = burst(Opcode::Alu, n);
      i.function = uint8_t(AluOp::AddI32);
      i.b.kind = OperandKind::Immediate;
      i.outWidth = 1;
      auto id = piece.addAlu(piece.alu(0), i, at);
      if (k)
        piece.chain(id, ProducerOf::A, before);
      else
        piece.tap(id, ProducerOf::A, in, 0, width, 0);
      before = id;
      at += k + 1 < count ? program->timing.aluToChained(AluOp::AddI32) : 0;
    }
    auto out = piece.stream(0, E, Direction::Outward, 1);
    piece.feed(before, 1, out, 0, 1, 0, program->timing.aluToStream(AluOp::AddI32));
    Instruction i = burst(Opcode::Write, n);
    i.address = row;
    i.tensor = rows(E, slice, row, n, false);
    auto write = piece.add(0, {UnitKind::Mem, E, slice}, i,
                           at + program->timing.aluToStream(AluOp::AddI32) +
                               program->timing.hops(0, m.position(slice)));
    piece.tap(write, ProducerOf::A, out, 0, 1, m.position(slice));
  }
  /// Read, `operations`, write back in one piece; the cycle of its first ALU dispatch.
  Cycle pass(unsigned operations, unsigned n, unsigned from, unsigned to, unsigned row) {
    Piece piece(*program);
    auto in = piece.stream(0, E, Direction::Inward, 1);
    readTo(piece, E, from, 0, n, in, 0, 0, 0, rows(E, from, 0, n, true));
    computeAndWrite(piece, in, 1, 0, operations, n, to, row);
    Expected<Cycle> start = piece.place(0);
    EXPECT_TRUE(start) << start.error();
    return *start;
  }
  /// Earliest dispatch of a read of these rows.
  Cycle dependentRead(unsigned slice, unsigned row, unsigned n) {
    Piece piece(*program);
    auto stream = piece.stream(0, E, Direction::Inward, 1);
    readTo(piece, E, slice, row, n, stream, 0, 0, 0, 0);
    Expected<Cycle> start = piece.place(0);
    EXPECT_TRUE(start) << start.error();
    return Cycle(program->pes[0].instructions.back().cycle);
  }
  const Instruction &placed(Opcode opcode) const {
    for (const Instruction &i : program->pes[0].instructions)
      if (i.opcode == opcode)
        return i;
    throw std::runtime_error("no such instruction");
  }
  Cycle cycleOf(Opcode opcode) const { return Cycle(placed(opcode).cycle); }

  /// Weights from 16 slices from `slice` on into a plane, as early as possible.
  void install(Hemisphere h, unsigned plane, unsigned slice) {
    Piece piece(*program);
    auto stream = piece.stream(0, h, Direction::Outward, 16);
    for (unsigned s = 0; s < 16; ++s)
      readTo(piece, h, slice + s, 0, 20, stream, s, last, 0, rows(h, slice + s, 0, 20, true));
    auto id = piece.add(0, {UnitKind::MxmInstall, h, plane}, burst(Opcode::Install, 20), 0);
    piece.tap(id, ProducerOf::A, stream, 0, 16, last);
    Expected<Cycle> start = piece.place(0);
    ASSERT_TRUE(start) << start.error();
  }
  /// One activation row from `slice`, its sum through `operations` ALU operations back to row 4096.
  void step(unsigned slice, unsigned operations) {
    Piece piece(*program);
    auto in = piece.stream(0, E, Direction::Outward, 1);
    readTo(piece, E, slice, 7, 1, in, 0, last, 0, rows(E, slice, 7, 1, true));
    Instruction i = burst(Opcode::Activate, 1);
    i.k1 = uint16_t(m.lanes());
    i.g1 = 20;
    auto act = piece.add(0, {UnitKind::MxmActivate, E, 0}, i, 0);
    piece.tap(act, ProducerOf::A, in, 0, 1, last);
    Instruction sum = burst(Opcode::Accumulate, 1);
    sum.function = AccumulateMode::Emit;
    auto acc =
        piece.add(0, {UnitKind::MxmAccumulate, E, 0}, sum, program->timing.activateToAccumulate());
    piece.product(acc, act);
    auto out = piece.stream(0, E, Direction::Inward, 4);
    piece.feed(acc, 0, out, 0, 4, last, program->timing.accumulateToStream());
    computeAndWrite(piece, out, 4, program->timing.activateToAlu(), operations, 1, slice, 4096);
    Expected<Cycle> start = piece.place(0);
    ASSERT_TRUE(start) << start.error();
  }
};

TEST_F(Composition, ReadOneOperationWriteBackTakes12Plus2gCycles) {
  for (unsigned g = 0; g < m.groups(); ++g) {
    program.emplace(m);
    pass(1, 1, 4 * g, 4 * g, 4096);
    EXPECT_EQ(cycleOf(Opcode::Write) + program->timing.writeSlot() - cycleOf(Opcode::Read),
              12 + 2 * g);
  }
}

TEST_F(Composition, FourChainedOperationsToTheDependentReadTake24Cycles) {
  pass(4, 1, 4, 4, 4096);
  const Cycle first = cycleOf(Opcode::Read);
  EXPECT_EQ(dependentRead(4, 4096, 1) - first, 24);
}

/// From the first operation's start to the result of an ADD on the rows, all written before the
/// first is read (they lie in one bank).
TEST_F(Composition, ACarryPassOfTenRowsTakes27Cycles) {
  for (unsigned operations : {1u, 2u}) {
    program.emplace(m);
    const Cycle start = pass(operations, 10, 4, 5, 0);
    const Cycle add = dependentRead(5, 0, 10) + program->timing.readTo(5, 0);
    const Cycle entry = m.latency.aluEntry;
    EXPECT_EQ(add + program->timing.aluToStream(AluOp::AddI32) - (start + entry),
              24 + 3 * operations);
  }
}

TEST_F(Composition, SwitchDistancesAddUp) {
  const Cycle transposer = program->timing.switchToStream(UnitKind::Transposer);
  const Cycle distributor = program->timing.switchToStream(UnitKind::Distributor);
  EXPECT_EQ(transposer + distributor, 15);
  EXPECT_EQ(program->timing.gatherTo(43, last) + distributor, 7);
  EXPECT_EQ(
      transposer + program->timing.hops(last, 0) + 2 * program->timing.aluToChained(AluOp::AddI32) +
          program->timing.aluToStream(AluOp::AddI32) + program->timing.hops(0, last) + distributor,
      50);
}

TEST_F(Composition, MatrixDistancesAddUp) {
  const Cycle entry = m.latency.mxmEntry,
              array = entry + m.latency.mxmMultiply + m.latency.mxmAccumulate;
  EXPECT_EQ(program->timing.activateToAlu() - array + Cycle(m.latency.aluEntry), 19);
  EXPECT_EQ(program->timing.readTo(25, last) + entry, 13);
  EXPECT_EQ(program->timing.readTo(43, last) + entry, 9);
}

TEST_F(Composition, FromInstallAtTheArrayToTheProductAtTheVxmOperationIs69Cycles) {
  install(E, 0, 25);
  step(43, 1);
  EXPECT_EQ(cycleOf(Opcode::Activate) - cycleOf(Opcode::Install), 3);
  EXPECT_EQ(cycleOf(Opcode::Alu) + m.latency.aluEntry -
                (cycleOf(Opcode::Install) + m.latency.mxmEntry),
            69);
}

TEST_F(Composition, FourPlanesAreInstalledWithin36Cycles) {
  for (Hemisphere h : {W, E})
    for (unsigned plane : {0u, 1u})
      install(h, plane, 12 + 16 * plane);
  Cycle first = INT64_MAX, end = 0;
  for (const Instruction &i : program->pes[0].instructions) {
    first = std::min(first, Cycle(i.cycle));
    if (i.opcode == Opcode::Install)
      end = std::max(end, Cycle(i.lastCycle() + m.latency.mxmEntry + 1));
  }
  EXPECT_EQ(end - first, 36);
}

TEST_F(Composition, ADependentStepTakes89Plus3qCyclesFromAnyGroup) {
  for (unsigned g : {0u, 3u, 10u})
    for (unsigned q : {1u, 2u, 4u}) {
      program.emplace(m);
      step(4 * g, q);
      const Cycle read = cycleOf(Opcode::Read), h = 10 - g;
      EXPECT_EQ(cycleOf(Opcode::Alu) + m.latency.aluEntry - read, 75 + h);
      EXPECT_EQ(dependentRead(4 * g, 4096, 1) - read, 89 + 3 * q);
    }
}

} // namespace
