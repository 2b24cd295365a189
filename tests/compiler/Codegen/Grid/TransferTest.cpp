// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Do rows that travel take the shortest way to the port?
#include "compiler/Codegen/Grid/Transfer.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/KernelBuilder.h"

#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::forms;

namespace {

/// Do rows in a slice `beyond` positions behind the C2C position turn round at the VXM before they are sent?
bool turnRound(int beyond) {
  Machine machine = *loadMachine("tsp-small", {"fabric.topology=ring", "fabric.rows=1", "fabric.columns=2", "c2c.ports=2"});
  KernelGraph graph;
  addTensor(graph, "t", {4, 32}, ElementType::Int8, 1, TensorRole::Input);
  schedule::Program program(machine);
  grid::Context c(machine, graph, program);
  for (unsigned pe : {0u, 1u})
    EXPECT_TRUE(c.addRowCopy(0, pe, Hemisphere::West, grid::allRows(c.layouts[0])));
  c.loadFromHost(0);
  machine.c2c.position = unsigned(int(machine.position(c.layouts[0].copies[0].tiles[0][0].slices[0])) - beyond);
  const Status moved = moveRows(c, placement::Routes(machine), 0, {.rows = 4, .from = 0, .to = {1}}, 0);
  EXPECT_TRUE(moved) << moved.error();
  const auto &sent = program.pes[0].instructions;
  return std::any_of(sent.begin(), sent.end(), [](const Instruction &i) { return i.opcode == Opcode::Alu; });
}

} // namespace

TEST(Transfer, RowsTurnRoundOnlyWhereTheyLieBeforeTheC2cPosition) {
  EXPECT_TRUE(turnRound(-1));
  EXPECT_FALSE(turnRound(0));
  EXPECT_FALSE(turnRound(1));
}
