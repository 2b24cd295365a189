// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/isa/Fields.h"

#include <limits>

namespace millrace {

Operand operandFrom(int64_t value) {
  return {OperandKind(value & 0xff), uint8_t(value >> 8 & 0xff), uint16_t(value >> 16 & 0xffff)};
}

int64_t valueOf(Operand o) {
  return int64_t(o.kind) | int64_t(o.width) << 8 | int64_t(o.index) << 16;
}

namespace {

/// A slot for an integer or enumerator that is a member of Instruction.
#define SLOT(FIELD, NAME, KIND, MEMBER)                                                            \
  Slot {                                                                                           \
    Field::FIELD, NAME, SlotKind::KIND, [](const Instruction &i) { return int64_t(i.MEMBER); },    \
        [](Instruction &i, int64_t v) { i.MEMBER = decltype(i.MEMBER)(v); },                       \
        int64_t(std::numeric_limits<decltype(Instruction::MEMBER)>::min()),                        \
        int64_t(std::numeric_limits<decltype(Instruction::MEMBER)>::max())                         \
  }
#define OUT_SLOT(FIELD, NAME, INDEX)                                                               \
  Slot {                                                                                           \
    Field::FIELD, NAME, SlotKind::Stream,                                                          \
        [](const Instruction &i) { return int64_t(i.out[INDEX]); },                                \
        [](Instruction &i, int64_t v) { i.out[INDEX] = StreamId(v); }, 0, kNoStream                \
  }
#define OPERAND_SLOT(FIELD, NAME, MEMBER)                                                          \
  Slot{Field::FIELD,                                                                               \
       NAME,                                                                                       \
       SlotKind::Operand,                                                                          \
       [](const Instruction &i) { return valueOf(i.MEMBER); },                                     \
       [](Instruction &i, int64_t v) { i.MEMBER = operandFrom(v); },                               \
       0,                                                                                          \
       0xffffffff}

const Slot kSlots[] = {
    SLOT(Function, "function", Function, function),
    SLOT(Mode, "mode", Unsigned, function),
    SLOT(Count, "count", Unsigned, n0),
    SLOT(Interval, "interval", Unsigned, c0),
    SLOT(Map, "map", Unsigned, address),
    SLOT(Loops, "n0", Unsigned, n0),
    SLOT(Loops, "c0", Unsigned, c0),
    SLOT(Loops, "n1", Unsigned, n1),
    SLOT(Loops, "c1", Unsigned, c1),
    SLOT(Address, "address", Unsigned, address),
    SLOT(Strides, "s0", Signed, s0),
    SLOT(Strides, "s1", Signed, s1),
    SLOT(Buffer, "buffer", Unsigned, buffer),
    Slot{Field::Format, "format", SlotKind::Format,
         [](const Instruction &i) { return int64_t(i.format); },
         [](Instruction &i, int64_t v) { i.format = ElementType(v); }, 0, kElementTypes - 1},
    SLOT(Lanes, "k0", Unsigned, k0),
    SLOT(Lanes, "k1", Unsigned, k1),
    SLOT(Groups, "g0", Unsigned, g0),
    SLOT(Groups, "g1", Unsigned, g1),
    OPERAND_SLOT(StreamA, "a", a),
    OPERAND_SLOT(StreamB, "b", b),
    OPERAND_SLOT(OperandA, "a", a),
    OPERAND_SLOT(OperandB, "b", b),
    OPERAND_SLOT(OperandC, "c", c),
    SLOT(Immediate, "immediate", Bits, immediate),
    OUT_SLOT(OutStream, "out", 0),
    OUT_SLOT(OutWest, "west", 0),
    OUT_SLOT(OutEast, "east", 1),
    SLOT(OutWidth, "width", Unsigned, outWidth),
    SLOT(Flags, "flags", Unsigned, flags),
    SLOT(Tensor, "tensor", Tensor, tensor),
};
#undef SLOT
#undef OUT_SLOT
#undef OPERAND_SLOT

} // namespace

std::span<const Slot> slots() { return kSlots; }

std::vector<const Slot *> slotsOf(Opcode opcode) {
  const FieldSet fields = info(opcode).fields;
  std::vector<const Slot *> result;
  for (const Slot &slot : kSlots)
    if (fields.has(slot.field))
      result.push_back(&slot);
  return result;
}

int64_t defaultOf(const Slot &slot) { return slot.get(Instruction()); }

namespace {
/// A slot that an opcode does not use, and what it then holds.
struct UnusedSlot {
  const Slot *slot;
  int64_t value;
};

/// Slots share members of Instruction: unused is what stays as it is when all used ones change.
std::vector<UnusedSlot> unusedSlots(Opcode opcode) {
  Instruction changed;
  for (const Slot *slot : slotsOf(opcode))
    slot->set(changed, defaultOf(*slot) == slot->least ? slot->least + 1 : slot->least);
  std::vector<UnusedSlot> unused;
  for (const Slot &slot : kSlots)
    if (slot.get(changed) == defaultOf(slot))
      unused.push_back({&slot, defaultOf(slot)});
  return unused;
}
} // namespace

const Slot *strayedSlot(const Instruction &instruction) {
  static const std::vector<std::vector<UnusedSlot>> unused = [] {
    std::vector<std::vector<UnusedSlot>> result;
    for (const OpcodeInfo &opcode : opcodes())
      result.push_back(unusedSlots(opcode.opcode));
    return result;
  }();
  for (const UnusedSlot &u : unused[unsigned(instruction.opcode)])
    if (u.slot->get(instruction) != u.value)
      return u.slot;
  return nullptr;
}

} // namespace millrace
