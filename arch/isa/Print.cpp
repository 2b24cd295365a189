// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/isa/Print.h"

#include "arch/isa/Fields.h"
#include "arch/operations/AluOp.h"

#include <charconv>
#include <cstdio>

namespace millrace {

std::string streamName(const Machine &m, StreamId s) {
  if (s == kNoStream)
    return "none";
  if (s >= m.streamCount())
    return "stream." + std::to_string(s);
  return std::string(m.hemisphereOf(s) == Hemisphere::West ? "w." : "e.") +
         (m.directionOf(s) == Direction::Outward ? "out." : "in.") + std::to_string(m.indexOf(s));
}

std::string operandText(const Machine &m, const Operand &o) {
  if (o.kind == OperandKind::Stream)
    return streamName(m, o.index) + (o.width == 1 ? "" : "x" + std::to_string(o.width));
  if (o == Operand{OperandKind::Alu, 0, o.index})
    return "alu." + std::to_string(o.index);
  for (auto [kind, name] : {std::pair(OperandKind::None, "none"),
                            {OperandKind::Latch, "latch"},
                            {OperandKind::Immediate, "immediate"}})
    if (o == Operand{kind, 0, 0})
      return name;
  return "operand." + std::to_string(valueOf(o));
}

std::string slotText(const Machine &m, const Slot &slot, const Instruction &i) {
  const int64_t value = slot.get(i);
  switch (slot.kind) {
  case SlotKind::Stream:
    return streamName(m, StreamId(value));
  case SlotKind::Operand:
    return operandText(m, operandFrom(value));
  case SlotKind::Format:
    return value < int64_t(kElementTypes) ? nameOf(ElementType(value)) : std::to_string(value);
  case SlotKind::Function:
    return value < int64_t(aluOpCount) ? std::string(aluOpInfo(AluOp(value)).mnemonic)
                                       : std::to_string(value);
  case SlotKind::Bits: {
    char text[32];
    std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
    return text;
  }
  default:
    return std::to_string(value);
  }
}

std::string printOperation(const Machine &m, const Instruction &i) {
  std::string text(info(i.opcode).mnemonic);
  for (const Slot *slot : slotsOf(i.opcode))
    if (slot->get(i) != defaultOf(*slot) || slot->kind == SlotKind::Function)
      text += " " + std::string(slot->name) + "=" + slotText(m, *slot, i);
  return text;
}

std::string print(const Machine &m, const Instruction &i) {
  const std::string queue =
      i.queue < m.queues() ? m.queueName(i.queue) : "queue." + std::to_string(i.queue);
  return "@" + std::to_string(i.cycle) + " " + queue + " " + printOperation(m, i);
}

Expected<int64_t> parseInteger(std::string_view text) {
  std::string_view digits = text;
  const bool negative = !digits.empty() && digits.front() == '-';
  if (negative)
    digits.remove_prefix(1);
  const bool hex = digits.starts_with("0x") || digits.starts_with("0X");
  if (hex)
    digits.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, wrong] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
  if (digits.empty() || end != digits.data() + digits.size() || wrong != std::errc() ||
      value > uint64_t(INT64_MAX))
    return Error{"'" + std::string(text) + "' is not a whole number"};
  return negative ? -int64_t(value) : int64_t(value);
}

Expected<ElementType> parseElementType(std::string_view text) {
  std::string known;
  for (unsigned t = 0; t < kElementTypes; ++t) {
    if (text == nameOf(ElementType(t)))
      return ElementType(t);
    known += (t ? " " : "") + std::string(nameOf(ElementType(t)));
  }
  return Error{"'" + std::string(text) + "' is no element type; there are " + known};
}

/// A number below `limit` after a prefix.
static Expected<int64_t> numberBelow(std::string_view text, uint64_t limit, const char *what) {
  Expected<int64_t> number = parseInteger(text);
  if (number && (*number < 0 || uint64_t(*number) >= limit))
    return Error{std::string(what) + " " + std::string(text) + " does not exist; there are " +
                 std::to_string(limit)};
  return number;
}

Expected<StreamId> parseStream(const Machine &m, std::string_view text) {
  for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
    for (Direction d : {Direction::Outward, Direction::Inward}) {
      const std::string prefix = std::string(h == Hemisphere::West ? "w." : "e.") +
                                 (d == Direction::Outward ? "out." : "in.");
      if (!text.starts_with(prefix))
        continue;
      Expected<int64_t> index = numberBelow(text.substr(prefix.size()), m.streams, "stream");
      if (!index)
        return index.takeError();
      return m.stream(h, d, unsigned(*index));
    }
  return Error{"'" + std::string(text) + "' is no stream; write w.out.5, e.in.0 and the like"};
}

static Expected<int64_t> parseOperand(const Machine &m, std::string_view text) {
  if (text == "none")
    return valueOf(Operand{});
  if (text == "latch")
    return valueOf(Operand{OperandKind::Latch, 0, 0});
  if (text == "immediate")
    return valueOf(Operand{OperandKind::Immediate, 0, 0});
  if (text.starts_with("alu.")) {
    Expected<int64_t> index = numberBelow(text.substr(4), m.vxm.alus, "alu");
    return index ? valueOf(Operand{OperandKind::Alu, 0, uint16_t(*index)}) : index;
  }
  unsigned width = 1;
  if (const size_t x = text.find('x'); x != text.npos) {
    Expected<int64_t> given = numberBelow(text.substr(x + 1), 256, "a width of");
    if (!given)
      return given;
    width = unsigned(*given);
    text = text.substr(0, x);
  }
  Expected<StreamId> stream = parseStream(m, text);
  if (!stream)
    return Error{"'" + std::string(text) +
                 "' is no operand; write w.in.4, w.in.4x4, alu.3, latch, immediate or none"};
  return valueOf(Operand{OperandKind::Stream, uint8_t(width), *stream});
}

Expected<int64_t> parseSlot(const Machine &m, const Slot &slot, std::string_view text) {
  switch (slot.kind) {
  case SlotKind::Stream: {
    if (text == "none")
      return int64_t(kNoStream);
    Expected<StreamId> stream = parseStream(m, text);
    if (!stream)
      return stream.takeError();
    return int64_t(*stream);
  }
  case SlotKind::Operand:
    return parseOperand(m, text);
  case SlotKind::Format: {
    Expected<ElementType> type = parseElementType(text);
    if (!type)
      return type.takeError();
    return int64_t(*type);
  }
  case SlotKind::Function:
    if (auto op = aluOpFromMnemonic(text))
      return int64_t(*op);
    return Error{"'" + std::string(text) + "' is no ALU operation; docs/spec/isa.md lists them"};
  default:
    break;
  }
  Expected<int64_t> value = parseInteger(text);
  if (value && (*value < slot.least || *value > slot.most))
    return Error{std::string(slot.name) + "=" + std::string(text) + " is outside [" +
                 std::to_string(slot.least) + ", " + std::to_string(slot.most) + "]"};
  return value;
}

std::string hexadecimal(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

} // namespace millrace
