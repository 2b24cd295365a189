// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Instructions as one line of text, and back: the words of the assembler. Driven by Fields.h.
#pragma once

#include "arch/isa/Instruction.h"

#include <string>

namespace millrace {

struct Slot;

/// "w.out.5": hemisphere, direction, index.
std::string streamName(const Machine &machine, StreamId stream);
/// "w.in.4x4" for four streams from w.in.4 on, "alu.3", "latch", "immediate" or "none".
std::string operandText(const Machine &machine, const Operand &operand);
/// The value of one slot as text.
std::string slotText(const Machine &machine, const Slot &slot, const Instruction &instruction);
/// Mnemonic and slots, those at their default left out: "read n0=10 address=4 s0=1 out=w.out.5".
std::string printOperation(const Machine &machine, const Instruction &instruction);
/// The same with cycle and queue before it: "@12 mem.w.3 read ...".
std::string print(const Machine &machine, const Instruction &instruction);

/// The reverse of streamName. Errors: no such hemisphere, direction or index.
Expected<StreamId> parseStream(const Machine &machine, std::string_view text);
/// The reverse of slotText; a tensor must be a number. Errors: not of the slot's kind, out of
/// range.
Expected<int64_t> parseSlot(const Machine &machine, const Slot &slot, std::string_view text);
/// An integer in decimal or, after 0x, hexadecimal, with an optional sign.
Expected<int64_t> parseInteger(std::string_view text);
/// 16 hexadecimal digits, as hashes are written.
std::string hexadecimal(uint64_t value);
Expected<ElementType> parseElementType(std::string_view text);

} // namespace millrace
