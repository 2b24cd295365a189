// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When rows are touched, and what meets in a place of memory.
#include "compiler/Codegen/Memory/Context.h"
#include "compiler/Codegen/Memory/Touches.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"

#include <gmock/gmock.h>

using namespace millrace;
using namespace millrace::grid;

namespace {

/// A copy of 64 rows of one tensor, in one segment.
struct Rows {
  Machine machine = *loadMachine("tsp-small");
  forms::KernelGraph graph;
  schedule::Program program{machine};
  std::unique_ptr<Context> c;

  Rows() {
    forms::addTensor(graph, "t", {64, 32}, ElementType::Int8, 1);
    c = std::make_unique<Context>(machine, graph, program);
    EXPECT_TRUE(c->addRowCopy(0, 0, Hemisphere::West, allRows(c->layouts[0])));
  }
  const Segment &segment() const { return c->layouts[0].copies[0].tiles[0][0]; }
  /// `rows` rows from `row` on, one every `every` cycles from `cycle` on, the next `step` rows further.
  void burst(Opcode opcode, Cycle cycle, unsigned row, unsigned rows, Cycle every, int step, uint32_t region) {
    Instruction i;
    i.opcode = opcode;
    i.cycle = cycle;
    i.queue = machine.queue({UnitKind::Mem, Hemisphere::West, segment().slices[0]});
    i.n0 = uint16_t(rows);
    i.c0 = uint16_t(every);
    i.s0 = step;
    i.address = segment().addresses[0] + row;
    i.tensor = region;
    program.pes[0].instructions.push_back(i);
  }
  std::vector<Window> of(int64_t row, int64_t end) const {
    return Touches(machine, c->layouts, program).of({0, 0, Hemisphere::West, false, 0, 0}, row, end);
  }
};

} // namespace

TEST(Touches, ABurstsPartOfTheRowsTakesItsPartOfTheCycles) {
  Rows rows;
  rows.burst(Opcode::Read, 1000, 0, 64, 2, 1, rows.segment().regions[0]);
  rows.program.endGridStep();
  const std::vector<Window> all = rows.of(0, 64), quarter = rows.of(16, 32);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].from, 1000);
  EXPECT_EQ(all[0].to, 1127);
  ASSERT_EQ(quarter.size(), 1u);
  EXPECT_EQ(quarter[0].from, 1031);
  EXPECT_EQ(quarter[0].to, 1063);
  EXPECT_TRUE(rows.of(64, 80).empty());
}

TEST(Touches, BurstsMayGoDown) {
  Rows rows;
  rows.burst(Opcode::Read, 1000, 63, 64, 1, -1, rows.segment().regions[0]);
  rows.program.endGridStep();
  EXPECT_EQ(rows.of(0, 16).at(0).from, 1048);
  EXPECT_EQ(rows.of(48, 64).at(0).from, 1000);
}

TEST(Touches, WhatNoTensorHoldsIsAConstant) {
  Rows rows;
  rows.program.endGridStep(); // in the next step
  const uint32_t weights = rows.program.addRegion({});
  rows.burst(Opcode::Read, 7, 0, 3, 1, 1, weights);
  rows.program.endGridStep();
  const Touches touches(rows.machine, rows.c->layouts, rows.program);
  size_t count = 0;
  for (const std::vector<Window> &bank : touches.ofConstants())
    for (const Window &window : bank) {
      ++count;
      EXPECT_EQ(window, (Window{1, 7, 9, false}));
    }
  EXPECT_EQ(count, 1u);
}

TEST(Meetings, ReadsMeetReadsOfTheSliceAndWritesOfTheBank) {
  const Machine machine = *loadMachine("tsp-small");
  const unsigned banks = machine.memory.banks;
  ASSERT_EQ(banks, 2u);
  Meetings meetings(machine, std::vector<std::vector<Window>>(size_t(machine.pes()) * kHemispheres * machine.memory.slices * banks));
  meetings.note(0, 3, 0, {{0, 1000, 1099, false}}); // a read
  meetings.note(0, 4, 1, {{0, 1000, 1099, true}});  // a write
  const auto costOf = [&](const Window &window, unsigned most) {
    std::vector<unsigned> cost(size_t(machine.memory.slices) * banks, 0);
    meetings.addTo(cost, 0, {window}, most);
    return std::vector<unsigned>(cost.begin() + 3 * banks, cost.begin() + 5 * banks);
  };
  const Window read{0, 1050, 1149, false}, write{0, 1050, 1149, true};
  const unsigned both = 49 + 32;
  EXPECT_THAT(costOf(read, 1000), testing::ElementsAre(both, both, 0, both));
  EXPECT_THAT(costOf(write, 1000), testing::ElementsAre(both, 0, both, both));
  EXPECT_THAT(costOf(read, 15), testing::ElementsAre(15, 15, 0, 15));
  EXPECT_THAT(costOf({1, 1050, 1149, false}, 1000), testing::Each(0u)) << "in another step";
  EXPECT_THAT(costOf({0, 2000, 2100, false}, 1000), testing::Each(0u));
}
