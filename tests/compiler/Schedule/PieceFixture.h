// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pieces on one small PE whose rows in the west hold what the program was loaded with.
#pragma once

#include "arch/spec/MachineFile.h"
#include "compiler/Schedule/Piece.h"

#include <gtest/gtest.h>

namespace millrace::test {

class PieceFixture : public testing::Test {
protected:
  PieceFixture() {
    for (unsigned slice = 0; slice < machine.memory.slices; ++slice)
      for (unsigned row = 0; row < machine.rowsPerSlice(); ++row)
        program.state[0].row(Hemisphere::West, slice, row).origin = {kInitialContents, row, 0};
  }
  Machine machine = *loadMachine("tsp-small");
  schedule::Program program{machine};
  uint32_t region = program.addRegion({});

  /// A burst of `elements` neighbouring rows, from `row` on.
  Instruction access(Opcode opcode, unsigned row, unsigned elements) const {
    Instruction i;
    i.opcode = opcode;
    i.address = row;
    i.s0 = 1;
    i.n0 = uint16_t(elements);
    i.tensor = region;
    return i;
  }
  /// The same in a slice of the west, as a part of a piece.
  void add(schedule::Piece &piece, Opcode opcode, unsigned slice, unsigned row, unsigned elements,
           Cycle at) const {
    piece.add(0, {UnitKind::Mem, Hemisphere::West, slice}, access(opcode, row, elements), at);
  }
};

} // namespace millrace::test
