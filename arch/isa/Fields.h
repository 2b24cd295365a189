// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The single values of an instruction ("slots") under the names that text uses, one table for
// printer, assembler, verifier and mutants: an opcode that combines fields of Instruction.h needs
// no code there.
#pragma once

#include "arch/isa/Instruction.h"

#include <optional>
#include <string>
#include <vector>

namespace millrace {

/// How a slot's value is written.
enum class SlotKind : uint8_t {
  Unsigned,
  Signed,
  Stream,   ///< `w.out.5`, or `none`
  Operand,  ///< `w.in.4x4` (4 streams), `alu.3`, `latch`, `immediate`, `none`
  Format,   ///< ElementType
  Function, ///< AluOp's mnemonic
  Bits,     ///< hexadecimal
  Tensor,   ///< index into the image's regions; text may name it
};

struct Slot {
  Field field; ///< which field of the opcode table it belongs to
  std::string_view name;
  SlotKind kind;
  /// The value as a number; an operand is kind | width << 8 | index << 16.
  int64_t (*get)(const Instruction &);
  void (*set)(Instruction &, int64_t);
  int64_t least, most; ///< what the slot can hold
};

/// All slots, in printing order. Those of one opcode have different names.
std::span<const Slot> slots();
/// The slots of an opcode, in printing order.
std::vector<const Slot *> slotsOf(Opcode opcode);
/// The value that a slot has when text leaves it out: that of a new Instruction.
int64_t defaultOf(const Slot &slot);

Operand operandFrom(int64_t value);
int64_t valueOf(Operand operand);

/// The first slot that holds something although the opcode does not use it. Queue, cycle and the
/// annotations that every instruction may have do not count; an opcode without a tensor has tensor
/// 0.
const Slot *strayedSlot(const Instruction &instruction);

} // namespace millrace
