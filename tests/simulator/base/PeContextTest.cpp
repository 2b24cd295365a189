// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does a violation say where it happened, by which instruction and of which node?
#include "simulator/base/PeContext.h"

#include "arch/spec/MachineFile.h"

#include <gmock/gmock.h>

namespace millrace::sim {
namespace {

using testing::HasSubstr;
using testing::Not;

class Contexts : public testing::Test {
protected:
  Machine machine = *loadMachine("tsp-small");
  Timing timing{machine};
  Image image;
  ViolationLog log{10};
  std::unique_ptr<PeContext> context;
  Burst burst;

  Contexts() {
    Instruction write;
    write.opcode = Opcode::Write, write.cycle = 12, write.address = 7, write.provenance = 1;
    write.queue = uint16_t(machine.queue({UnitKind::Mem, Hemisphere::West, 3}));
    image.instructions.resize(1);
    image.instructions[0].edit().push_back(write);
    image.producers.resize(1);
    image.strings = {"", "Conv_7"};
    context = std::make_unique<PeContext>(machine, timing, image, 0, true, Annotations::Checked, log);
    context->step = 2;
    burst.instruction = &image.instructions[0][0];
    burst.index = 0;
  }
};

TEST_F(Contexts, AnElementIsDescribedByItsInstructionWhereThereIsOne) {
  EXPECT_EQ(context->describe(Tag()), "nothing");
  EXPECT_THAT(context->describe({0, 3}), HasSubstr("element 3 of instruction 0 (12 mem.w.3 write"));
  EXPECT_EQ(context->describe({9, 3}), "element 3 of instruction 9");
  EXPECT_EQ(context->describe(Tag::initial(4, 5)), "row 5 of block 4");
}

TEST_F(Contexts, ASampleWithoutAnAnnotationIsAViolationOfItsInstruction) {
  const StreamId stream = machine.stream(Hemisphere::West, Direction::Inward, 5);
  EXPECT_EQ(context->sample(burst, ProducerOf::A, slot::A, 0, stream, 4, 30), VectorRef(0));
  ASSERT_TRUE(log.first());
  const Violation &v = *log.first();
  EXPECT_EQ(v.invariant, Invariant::S4);
  EXPECT_EQ(v.step, 2u);
  EXPECT_EQ(v.cycle, 30);
  EXPECT_EQ(v.queue, image.instructions[0][0].queue);
  EXPECT_EQ(v.unit, "pe0.mem.w.3");
  EXPECT_EQ(v.index, 0u);
  EXPECT_THAT(v.instruction, HasSubstr("12 mem.w.3 write"));
  EXPECT_EQ(v.provenance, "Conv_7");
  EXPECT_EQ(v.message, "the vector sampled on stream w.in.5 has no annotation of its producer");
}

TEST_F(Contexts, AnEmptyRegisterIsAViolationIfTheAnnotationSaysWhoseVectorShouldBeThere) {
  Producer p;
  p.of = ProducerOf::A, p.instruction = 6, p.first = 2, p.count0 = p.count1 = 1;
  const std::vector<Producer> producers = {p};
  burst.producers = producers;
  context->sample(burst, ProducerOf::A, slot::A, 0, machine.stream(Hemisphere::East, Direction::Outward, 5), 4, 31);
  ASSERT_TRUE(log.first());
  EXPECT_EQ(log.first()->cycle, 31);
  EXPECT_THAT(log.first()->message, HasSubstr("on stream e.out.5 should be element 2 of instruction 6, but the register holds nothing"));
}

} // namespace
} // namespace millrace::sim
