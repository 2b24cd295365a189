// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Is a piece whose bursts meet in a slice led around itself, with every value where it is meant to
// be?
#include "compiler/Codegen/Grid/Detours.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"

#include <gtest/gtest.h>

using namespace millrace;
using schedule::Piece;

namespace {

constexpr unsigned kRows = 20;

/// Two columns of kRows vectors, one byte wide, through an ALU each: from (slice, row) to (slice,
/// row).
class Detours : public testing::Test {
protected:
  struct Place {
    unsigned slice, row;
  };
  Machine machine = *loadMachine("tsp-small");
  forms::KernelGraph graph = forms::buildMatmul({});
  schedule::Program program{machine};

  Instruction access(Opcode opcode, const Place &place) {
    schedule::RegionState state;
    state.slice = place.slice;
    state.row = place.row;
    state.rows = kRows;
    Instruction i = grid::instruction(opcode, grid::dense(kRows, 1));
    i.address = place.row;
    i.s0 = 1;
    i.tensor = program.addRegion(state);
    return i;
  }
  void addColumn(Piece &piece, const Place &from, const Place &to, Cycle later) {
    const Unit source{UnitKind::Mem, Hemisphere::West, from.slice},
        target{UnitKind::Mem, Hemisphere::West, to.slice};
    for (unsigned row = 0; row < kRows; ++row)
      program.state[0].row(Hemisphere::West, from.slice, from.row + row).origin = {kInitialContents,
                                                                                   row, from.row};
    const Piece::StreamVar in = piece.stream(0, Hemisphere::West, Direction::Inward, 1),
                           out = piece.stream(0, Hemisphere::West, Direction::Outward, 1);
    const Piece::BurstId read = piece.add(0, source, access(Opcode::Read, from),
                                          later - program.timing.readTo(from.slice, 0));
    piece.feed(read, 0, in, 0, 1, machine.position(from.slice), program.timing.readInjects());
    Instruction pass = grid::instruction(Opcode::Alu, grid::dense(kRows, 1));
    pass.function = uint8_t(AluOp::Pass);
    const Piece::BurstId alu = piece.addAlu(piece.alu(0), pass, later);
    piece.tap(alu, ProducerOf::A, in, 0, 1, 0);
    const Cycle leave = later + program.timing.aluToStream(AluOp::Pass);
    piece.feed(alu, 0, out, 0, 1, 0, leave - later);
    const Piece::BurstId write =
        piece.add(0, target, access(Opcode::Write, to),
                  leave + program.timing.hops(0, machine.position(to.slice)));
    piece.tap(write, ProducerOf::A, out, 0, 1, machine.position(to.slice));
  }
  /// Which initial row came to rest in a row: back through all copies.
  uint32_t sourceOf(const Place &place, unsigned row) {
    schedule::Origin at =
        program.state[0].row(Hemisphere::West, place.slice, place.row + row).origin;
    while (at.instruction != kInitialContents && at.instruction != schedule::kNoOrigin) {
      const Instruction &write = program.pes[0].instructions[at.instruction];
      EXPECT_EQ(write.opcode, Opcode::Write);
      // Write <- ALU <- Read: the Read that this ALU's operand names, element by element.
      at = through(through(at));
      const Instruction &read = program.pes[0].instructions[at.instruction];
      EXPECT_EQ(read.opcode, Opcode::Read);
      at = memoryOf(at);
    }
    return at.element;
  }
  schedule::Origin producer(const schedule::Origin &of, ProducerOf operand) {
    for (const Producer &p : program.pes[0].producers[of.instruction])
      if (p.of == operand && of.element >= p.from0 && of.element < unsigned(p.from0) + p.count0)
        return {p.instruction, p.first + (of.element - p.from0) * uint32_t(p.step0), 0};
    return {};
  }
  schedule::Origin through(const schedule::Origin &of) { return producer(of, ProducerOf::A); }
  schedule::Origin memoryOf(const schedule::Origin &of) { return producer(of, ProducerOf::Memory); }

  size_t bursts() const { return program.pes[0].instructions.size(); }
};

TEST_F(Detours, TwoReadsOfOneSliceAreRefusedWithoutThemAndOneIsCopiedBeforeWithThem) {
  for (bool detours : {false, true}) {
    grid::Context c(machine, graph, program, {.detours = detours});
    Piece piece(program);
    addColumn(piece, {3, 0}, {5, 0}, 0);
    addColumn(piece, {3, 100}, {6, 0}, 0);
    const Expected<Cycle> start = grid::place(c, piece, 0);
    EXPECT_EQ(bool(start), detours);
    EXPECT_EQ(program.crowded, true);
    EXPECT_EQ(bursts(), detours ? 6u + 3u : 0u); // Read, ALU, Write
  }
}

TEST_F(Detours, TwoWritesIntoOneSliceAreLedAroundAndBothArrive) {
  grid::Context c(machine, graph, program, {.detours = true});
  Piece piece(program);
  addColumn(piece, {3, 0}, {5, 0}, 0);
  addColumn(piece, {4, 100}, {5, 300}, 0);
  ASSERT_TRUE(grid::place(c, piece, 0));
  EXPECT_EQ(bursts(), 6u + 3u);
  for (unsigned row = 0; row < kRows; ++row) {
    EXPECT_EQ(sourceOf({5, 0}, row), row);
    EXPECT_EQ(sourceOf({5, 300}, row), row);
  }
}

TEST_F(Detours, APieceThatMeetsNothingIsPlacedAsItIs) {
  grid::Context c(machine, graph, program, {.detours = true});
  Piece piece(program);
  addColumn(piece, {3, 0}, {5, 0}, 0);
  addColumn(piece, {4, 100}, {6, 0}, 0);
  ASSERT_TRUE(grid::place(c, piece, 0));
  EXPECT_EQ(bursts(), 6u);
}

TEST_F(Detours, RowsThatWaitedAreFreeAgain) {
  grid::Context c(machine, graph, program, {.detours = true});
  const auto freeRows = [&] {
    return c.allocator(0, Hemisphere::West).freeRows(0, machine.memory.slices);
  };
  const uint64_t before = freeRows();
  Piece piece(program);
  addColumn(piece, {3, 0}, {5, 0}, 0);
  addColumn(piece, {3, 100}, {5, 300}, 0);
  ASSERT_TRUE(grid::place(c, piece, 0));
  EXPECT_EQ(bursts(), 6u + 2 * 3u);
  EXPECT_EQ(freeRows(), before);
}

} // namespace
