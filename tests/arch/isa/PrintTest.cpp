// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/isa/Print.h"
#include "arch/operations/AluOp.h"
#include "arch/isa/Fields.h"
#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace::test {
namespace {

class Print : public testing::Test {
protected:
  const Machine machine = *loadMachine("tsp-v1");
};

TEST_F(Print, a_burst_of_reads_is_one_line) {
  Instruction i;
  i.opcode = Opcode::Read, i.cycle = 12;
  i.queue = uint16_t(machine.queue({UnitKind::Mem, Hemisphere::West, 3}));
  i.n0 = 10, i.s0 = -1, i.address = 99, i.tensor = 4;
  i.out[0] = machine.stream(Hemisphere::West, Direction::Inward, 5);
  EXPECT_EQ(print(machine, i), "@12 mem.w.3 read n0=10 address=99 s0=-1 out=w.in.5 tensor=4");
}

TEST_F(Print, an_alu_operation_names_function_operands_and_results) {
  Instruction i;
  i.opcode = Opcode::Alu, i.function = uint8_t(AluOp::MaxF32);
  i.queue = uint16_t(machine.queue({UnitKind::Alu, Hemisphere::West, 2}));
  i.a = {OperandKind::Stream, 4, machine.stream(Hemisphere::East, Direction::Inward, 8)};
  i.b = {OperandKind::Alu, 0, 7};
  i.immediate = 0x3f800000, i.outWidth = 4;
  i.out[1] = machine.stream(Hemisphere::East, Direction::Outward, 4);
  EXPECT_EQ(print(machine, i),
            "@0 alu.2 alu function=max.f32 a=e.in.8x4 b=alu.7 immediate=0x3f800000 "
            "east=e.out.4 width=4");
}

TEST_F(Print, what_does_not_exist_is_printed_as_a_number) {
  EXPECT_EQ(streamName(machine, 5000), "stream.5000");
  EXPECT_EQ(operandText(machine, {OperandKind::Latch, 3, 0}), "operand.771");
  Instruction i;
  i.queue = 0xffff;
  EXPECT_EQ(print(machine, i), "@0 queue.65535 nop");
}

TEST_F(Print, every_legal_slot_value_is_read_back) {
  std::mt19937_64 random(1);
  for (const Slot &slot : slots())
    for (int k = 0; k < 200; ++k) {
      int64_t value = slot.least + int64_t(random() % (uint64_t(slot.most - slot.least) + 1));
      if (slot.kind == SlotKind::Stream)
        value = int64_t(random() % machine.streamCount());
      if (slot.kind == SlotKind::Function)
        value = int64_t(random() % aluOpCount);
      if (slot.kind == SlotKind::Operand)
        value = valueOf({OperandKind(random() % 3), 0, 0}) | int64_t(random() % machine.vxm.alus)
                                                                 << 16;
      if (slot.kind == SlotKind::Operand && (value & 0xff) == int64_t(OperandKind::None))
        value = 0;
      Instruction i;
      slot.set(i, value);
      const std::string text = slotText(machine, slot, i);
      Expected<int64_t> back = parseSlot(machine, slot, text);
      ASSERT_TRUE(back) << slot.name << "=" << text << ": " << back.error();
      ASSERT_EQ(*back, value) << slot.name << "=" << text;
    }
}

TEST_F(Print, integers_are_decimal_or_hexadecimal) {
  EXPECT_EQ(*parseInteger("-12"), -12);
  EXPECT_EQ(*parseInteger("0x1F"), 31);
  for (const char *text : {"", "-", "0x", "1.5", "12a", "99999999999999999999", " 1"})
    EXPECT_FALSE(parseInteger(text)) << text;
}

} // namespace
} // namespace millrace::test
