// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Is what nothing needs left out, and only that?
#include "compiler/Schedule/Prune.h"

#include "arch/program/Assembler.h"
#include "arch/spec/MachineFile.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace millrace;

namespace {

/// alu.0 latches one row twice and multiplies by it, then adds it. The product goes to Y and, on
/// the other side, to V; the sum to Z.
constexpr const char *kProgram = R"(machine tsp-small
tensor X west slice=0 rows=0..0
data X all int8 3
tensor Y west slice=4 rows=0..0
tensor Z west slice=5 rows=0..0
tensor V east slice=4 rows=0..0
step grid cycles=54
load: @0  mem.w.0 read n0=4 address=0 out=w.in.0 tensor=X from memory: X step0=0
one:  @2  alu.0 latch a=w.in.0 from a: load
mul:  @3  alu.0 alu function=mul.i32 a=w.in.0 b=latch west=w.out.0 east=e.out.0 width=1 from a: load[1] from b: one
two:  @4  alu.0 latch a=w.in.0 from a: load[2]
add:  @5  alu.0 alu function=add.i32 a=w.in.0 b=latch west=w.out.0 width=1 from a: load[3] from b: two
      @12 mem.w.4 write address=0 a=w.out.0 tensor=Y from a: mul
      @14 mem.w.5 write address=0 a=w.out.0 tensor=Z from a: add
      @12 mem.e.4 write address=0 a=e.out.0 tensor=V from a: mul
)";

std::string output(const std::string &name, unsigned slice) {
  return "binding output \"" + name +
         "\" host=int8 grid=int8 shape=32\nplace west slices=" + std::to_string(slice) +
         " row=0 start=0\nloop count=32 lane=1 dim=0 step=1\n";
}

class Prune : public testing::Test {
protected:
  Machine machine = *loadMachine("tsp-small");
  Image image;
  schedule::Pruned pruned;

  void prune(const std::string &text) {
    Expected<Image> read = assemble(text, "prune.mas", &machine);
    ASSERT_TRUE(read) << read.error();
    image = std::move(*read);
    pruned = schedule::prune(image, machine);
  }
  size_t count(Opcode opcode) const {
    return size_t(std::count_if(image.instructions[0].begin(), image.instructions[0].end(),
                                [&](const Instruction &i) { return i.opcode == opcode; }));
  }
  const Instruction &first(Opcode opcode) const {
    return *std::find_if(image.instructions[0].begin(), image.instructions[0].end(),
                         [&](const Instruction &i) { return i.opcode == opcode; });
  }
};

TEST_F(Prune, LeavesOutACopyThatNobodyReadsAndALoadOfWhatTheLatchHolds) {
  prune(kProgram + output("y", 4) + output("z", 5));
  EXPECT_EQ(pruned.bursts, 2u);
  EXPECT_EQ(pruned.latches, 1u);
  EXPECT_EQ(count(Opcode::Write), 2u);
  EXPECT_EQ(count(Opcode::Latch), 1u);
  EXPECT_EQ(image.steps[0].predictedCycles, 54u); // 1 + 16 + 37: z's slot
  const Instruction &mul = first(Opcode::Alu);
  EXPECT_NE(mul.out[0], kNoStream);
  EXPECT_EQ(mul.out[1], kNoStream) << "nobody samples the east any more";
  for (const Instruction &i : image.instructions[0])
    if (i.opcode == Opcode::Alu)
      for (uint32_t n = i.producers; n < i.producers + i.producerCount; ++n)
        if (image.producers[0][n].of == ProducerOf::B) {
          EXPECT_EQ(image.instructions[0][image.producers[0][n].instruction].opcode, Opcode::Latch);
        }
}

TEST_F(Prune, FollowsAnUnusedResultToItsBeginningAndEndsTheStepEarlier) {
  prune(kProgram + output("y", 4));
  EXPECT_EQ(pruned.bursts, 4u); // the second Latch, the sum, and the writes of Z and V
  EXPECT_EQ(count(Opcode::Alu), 1u);
  EXPECT_EQ(image.steps[0].pes[0].end, 4u);
  EXPECT_EQ(image.steps[0].predictedCycles, 52u); // 1 + 14 + 37: y's slot
}

TEST_F(Prune, ARegionLivesUntilTheLastAccessOfABurstOfWhichTheFirstElementIsNeeded) {
  // Two elements, 100 cycles apart: the first one is the output, nobody needs the second one.
  prune(R"(machine tsp-small
tensor X west slice=0 rows=0..1 step0=0 step1=0 from=0 to=100
data X iota
tensor Y west slice=4 rows=0..0
tensor Z west slice=5 rows=0..0
step grid cycles=151
load: @0   mem.w.0 read n0=2 c0=100 s0=1 address=0 out=w.in.0 tensor=X from memory: X
pass: @2   alu.0 alu function=pass n0=2 c0=100 a=w.in.0 west=w.out.0 width=1 from a: load
      @11  mem.w.4 write address=0 a=w.out.0 tensor=Y from a: pass[0]
      @111 mem.w.5 write address=0 a=w.out.0 tensor=Z from a: pass[1]
)" + output("y", 4));
  EXPECT_EQ(pruned.bursts, 1u);
  EXPECT_EQ(image.steps[0].predictedCycles, 51u); // 1 + 13 + 37
  EXPECT_EQ(image.tensors[0].to, 100u) << "the second row is read behind the end";
}

TEST_F(Prune, KeepsALoadOfSomethingElse) {
  std::string text = kProgram + output("y", 4) + output("z", 5);
  const std::string rows = "rows=0..0\ndata X all int8 3", read = "n0=4 address=0",
                    from = "from memory: X step0=0";
  text.replace(text.find(rows), rows.size(), "rows=0..3\ndata X iota");
  text.replace(text.find(read), read.size(), "n0=4 s0=1 address=0");
  text.replace(text.find(from), from.size(), "from memory: X");
  prune(text);
  EXPECT_EQ(pruned.latches, 0u);
  EXPECT_EQ(count(Opcode::Latch), 2u);
}

/// kProgram with X written twice by the program itself; the second Latch loads what `loaded` wrote.
std::string ofWrittenRows(const std::string &loaded) {
  std::string text = kProgram;
  const auto replace = [&](const std::string &what, const std::string &by) {
    const size_t at = text.find(what);
    ASSERT_NE(at, std::string::npos) << what;
    text.replace(at, what.size(), by);
  };
  replace("data X all int8 3\n", "tensor A west slice=1 rows=0..0\ndata A all int8 3\n");
  replace("load: @0  mem", R"(fill: @0  mem.w.1 read address=0 out=w.out.1 tensor=A from memory: A
again: @2  mem.w.1 read address=0 out=w.out.1 tensor=A from memory: A
put:  @1  mem.w.0 write address=0 a=w.out.1 tensor=X from a: fill
over: @3  mem.w.0 write address=0 a=w.out.1 tensor=X from a: again
last: @9  mem.w.0 read n0=4 address=0 out=w.in.0 tensor=X from memory: )" +
                               loaded + R"( step0=0
load: @4  mem)");
  replace("from memory: X step0=0\none", "from memory: put step0=0\none");
  replace("from a: load[2]", "from a: last[2]");
  return text + output("y", 4) + output("z", 5);
}

TEST_F(Prune, TakesAWrittenRowForTheSameOnlyIfOneWriteMadeIt) {
  prune(ofWrittenRows("put"));
  EXPECT_EQ(pruned.latches, 1u);
  EXPECT_EQ(count(Opcode::Latch), 1u);
  prune(ofWrittenRows("over"));
  EXPECT_EQ(pruned.latches, 0u);
  EXPECT_EQ(count(Opcode::Latch), 2u);
}

TEST_F(Prune, KeepsARepeatWhichNoAnnotationNames) {
  prune(kProgram + std::string("      @20 mem.w.0 repeat count=2 interval=5\n") + output("y", 4));
  EXPECT_EQ(count(Opcode::Repeat), 1u);
}

TEST_F(Prune, KeepsAStepFromWhichNothingIsRead) {
  prune(kProgram);
  EXPECT_EQ(count(Opcode::Write), 3u);
}

} // namespace
