// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does what a Gather, a host step or one byte of a wide result takes stay, and does what is left out
// take its times along?
#include "compiler/Schedule/Prune.h"

#include "arch/program/Assembler.h"
#include "arch/spec/MachineFile.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace millrace;

namespace {

class PruneReaders : public testing::Test {
protected:
  Machine machine = *loadMachine("tsp-small");
  Image image;
  schedule::Pruned pruned;

  void prune(const std::string &text) {
    Expected<Image> read = assemble("machine tsp-small\n" + text, "prune.mas", &machine);
    ASSERT_TRUE(read) << read.error();
    image = std::move(*read);
    pruned = schedule::prune(image, machine);
  }
  size_t count(Opcode opcode) const {
    return size_t(std::count_if(image.instructions[0].begin(), image.instructions[0].end(),
                                [&](const Instruction &i) { return i.opcode == opcode; }));
  }
};

std::string binding(const std::string &kind, const std::string &name, unsigned slice) {
  return "binding " + kind + " \"" + name + "\" host=int8 grid=int8 shape=32\nplace west slices=" +
         std::to_string(slice) + " row=0 start=0\nloop count=32 lane=1 dim=0 step=1\n";
}

TEST_F(PruneReaders, WritersOfATableThatIsGatheredStay) {
  prune(R"(tensor X west slice=0 rows=0..2
data X iota
tensor M west slice=4 rows=0..0
data M all int8 0
tensor T west slice=8 rows=0..2
tensor Y west slice=12 rows=0..0
tensor D west slice=9 rows=0..2
step grid cycles=54
load:  @0 mem.w.0 read n0=3 s0=1 address=0 out=w.out.0 tensor=X from memory: X
       @2 mem.w.8 write n0=3 s0=1 address=0 a=w.out.0 tensor=T from a: load
       @2 mem.w.9 write n0=3 s0=1 address=0 a=w.out.0 tensor=D from a: load
index: @12 mem.w.4 read address=0 out=w.out.1 tensor=M from memory: M
pick:  @14 mem.w.8 gather address=0 a=w.out.1 out=w.out.2 tensor=T from a: index
       @16 mem.w.12 write address=0 a=w.out.2 tensor=Y from a: pick
)" + binding("output", "y", 12));
  EXPECT_EQ(pruned.bursts, 1u) << "the write of D, which nobody reads";
  EXPECT_EQ(count(Opcode::Write), 2u);
  EXPECT_EQ(count(Opcode::Gather), 1u);
}

TEST_F(PruneReaders, WhatAHostStepReadsStaysAndWhatNobodyReadsGoes) {
  prune(R"(tensor X west slice=0 rows=0..0
data X iota
tensor A west slice=4 rows=0..0
tensor D west slice=5 rows=0..0
tensor B west slice=6 rows=0..0
data B host
tensor Y west slice=7 rows=0..0
step grid cycles=42
load: @0 mem.w.0 read address=0 out=w.out.0 tensor=X from memory: X
      @2 mem.w.4 write address=0 a=w.out.0 tensor=A from a: load
      @2 mem.w.5 write address=0 a=w.out.0 tensor=D from a: load
step host "f" inputs=1 outputs=2
step grid cycles=42
back: @0 mem.w.6 read address=0 out=w.out.0 tensor=B from memory: B
      @1 mem.w.7 write address=0 a=w.out.0 tensor=Y from a: back
)" + binding("output", "y", 7) + binding("hostinput", "a", 4) + binding("hostoutput", "b", 6));
  EXPECT_EQ(pruned.bursts, 1u);
  EXPECT_EQ(count(Opcode::Write), 2u);
  ASSERT_EQ(image.instructions[0].size(), 4u);
  EXPECT_EQ(machine.queueName(image.instructions[0][1].queue), "mem.w.4") << "the host reads A";
  EXPECT_EQ(image.steps[0].pes[0].end, 2u);
  EXPECT_EQ(image.steps[2].pes[0].begin, 2u);
}

/// A Latch of row 0 and one of row 1 of X, which `data` gives.
std::string twoLatches(const std::string &data) {
  return R"(tensor X west slice=0 rows=0..1
)" + data + R"(
tensor Y west slice=4 rows=0..0
tensor Z west slice=5 rows=0..0
step grid cycles=60
load: @0 mem.w.0 read n0=4 address=0 out=w.in.0 tensor=X from memory: X step0=0
more: @4 mem.w.0 read n0=4 address=1 out=w.in.0 tensor=X from memory: X[1] step0=0
one:  @2 alu.0 latch a=w.in.0 from a: load
mul:  @3 alu.0 alu function=mul.i32 a=w.in.0 b=latch west=w.out.0 width=1 from a: load[1] from b: one
two:  @6 alu.0 latch a=w.in.0 from a: more
add:  @7 alu.0 alu function=add.i32 a=w.in.0 b=latch west=w.out.0 width=1 from a: more[1] from b: two
      @12 mem.w.4 write address=0 a=w.out.0 tensor=Y from a: mul
      @16 mem.w.5 write address=0 a=w.out.0 tensor=Z from a: add
)" + binding("output", "y", 4) + binding("output", "z", 5);
}

TEST_F(PruneReaders, RowsThatTheHostFillsAreNotAlike) {
  prune(twoLatches("data X host"));
  EXPECT_EQ(pruned.latches, 0u);
  EXPECT_EQ(count(Opcode::Latch), 2u);
}

TEST_F(PruneReaders, ConstantsOfEqualBytesAreAlikeWhereverTheyLie) {
  prune(twoLatches("data X all int8 3"));
  EXPECT_EQ(pruned.latches, 1u);
  EXPECT_EQ(count(Opcode::Latch), 1u);
  prune(twoLatches("data X rows=0..0 all int8 3\ndata X rows=1..1 all int8 4"));
  EXPECT_EQ(pruned.latches, 0u);
}

TEST_F(PruneReaders, LivesEndWithTheirStep) {
  prune(R"(tensor X west slice=0 rows=0..0
data X iota
tensor Y west slice=4 rows=0..0 step0=0 step1=0 from=0 to=5000
tensor Z west slice=5 rows=0..0
step grid cycles=1042
load: @0    mem.w.0 read address=0 out=w.out.0 tensor=X from memory: X
      @2    mem.w.4 write address=0 a=w.out.0 tensor=Y from a: load
late: @1000 mem.w.0 read address=0 out=w.out.0 tensor=X from memory: X
      @1002 mem.w.5 write address=0 a=w.out.0 tensor=Z from a: late
)" + binding("output", "y", 4));
  EXPECT_EQ(image.steps[0].predictedCycles, 42u); // 1 + 4 + 37
  EXPECT_EQ(image.tensors[1].to, 42u);
}

TEST_F(PruneReaders, AResultOfWhichOnlyAnUpperByteIsTakenStays) {
  prune(R"(tensor X west slice=0 rows=0..0
data X iota
tensor Y west slice=4 rows=0..0
step grid cycles=54
load: @0  mem.w.0 read address=0 out=w.in.0 tensor=X from memory: X
mul:  @2  alu.0 alu function=mul.i32 a=w.in.0 b=immediate immediate=3000 west=w.out.0 east=e.out.0 width=4 from a: load
      @11 mem.w.4 write address=0 a=w.out.1 tensor=Y from a: mul
)" + binding("output", "y", 4));
  const Instruction &mul = image.instructions[0][1];
  ASSERT_EQ(mul.opcode, Opcode::Alu);
  EXPECT_EQ(mul.out[0], machine.stream(Hemisphere::West, Direction::Outward, 0));
  EXPECT_EQ(mul.outWidth, 4);
  EXPECT_EQ(mul.out[1], kNoStream);
}

} // namespace
