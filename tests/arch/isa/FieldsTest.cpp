// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/isa/Fields.h"

#include <gtest/gtest.h>

#include <set>

namespace millrace::test {
namespace {

TEST(Fields, every_field_of_every_opcode_has_a_slot) {
  for (const OpcodeInfo &opcode : opcodes()) {
    FieldSet covered{};
    for (const Slot *slot : slotsOf(opcode.opcode))
      covered.bits |= 1u << unsigned(slot->field);
    EXPECT_EQ(covered.bits, opcode.fields.bits) << opcode.mnemonic;
  }
}

TEST(Fields, slots_of_one_opcode_have_different_names) {
  for (const OpcodeInfo &opcode : opcodes()) {
    std::set<std::string_view> names;
    for (const Slot *slot : slotsOf(opcode.opcode))
      EXPECT_TRUE(names.insert(slot->name).second) << opcode.mnemonic << " " << slot->name;
  }
}

TEST(Fields, setting_a_slot_to_its_bounds_is_read_back) {
  for (const Slot &slot : slots())
    for (int64_t value : {slot.least, slot.most, defaultOf(slot)}) {
      Instruction i;
      slot.set(i, value);
      EXPECT_EQ(slot.get(i), value) << slot.name;
    }
}

TEST(Fields, the_slots_of_all_opcodes_cover_the_instruction) {
  // All of an instruction but cycle, queue, opcode and the annotations that every one has: a member
  // added to it needs a slot, or text, verifier and mutants would not know it.
  Instruction i;
  for (const Slot &slot : slots())
    slot.set(i, slot.most);
  EXPECT_EQ(i.function, 0xff);
  EXPECT_EQ(i.n0, 0xffff);
  EXPECT_EQ(i.n1, 0xffff);
  EXPECT_EQ(i.c0, 0xffffffff);
  EXPECT_EQ(i.c1, 0xffffffff);
  EXPECT_EQ(i.s0, INT32_MAX);
  EXPECT_EQ(i.s1, INT32_MAX);
  EXPECT_EQ(i.address, 0xffffffff);
  for (const Operand *o : {&i.a, &i.b, &i.c})
    EXPECT_EQ(valueOf(*o), 0xffffffff);
  EXPECT_EQ(i.outWidth, 0xff);
  EXPECT_EQ(i.buffer, 0xff);
  EXPECT_EQ(unsigned(i.format), kElementTypes - 1);
  EXPECT_EQ(i.flags, 0xff);
  for (unsigned value : {i.k0, i.k1, i.g0, i.g1})
    EXPECT_EQ(value, 0xffffu);
  EXPECT_EQ(i.immediate, 0xffffffff);
  EXPECT_EQ(i.tensor, 0xffffffff);
}

TEST(Fields, a_value_in_a_field_that_the_opcode_does_not_use_is_found) {
  Instruction i;
  i.opcode = Opcode::Read;
  i.n0 = 5, i.address = 7, i.out[0] = 3, i.tensor = 2;
  EXPECT_EQ(strayedSlot(i), nullptr);
  i.k1 = 4;
  ASSERT_NE(strayedSlot(i), nullptr);
  EXPECT_EQ(strayedSlot(i)->name, "k1");
  i.k1 = 0;
  i.out[1] = 9;
  ASSERT_NE(strayedSlot(i), nullptr);
  EXPECT_EQ(strayedSlot(i)->name, "east");
}

} // namespace
} // namespace millrace::test
