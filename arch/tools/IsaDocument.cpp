// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/tools/IsaDocument.h"

#include "arch/operations/AluOp.h"
#include "arch/isa/Instruction.h"

namespace millrace {
namespace {

struct FieldText {
  Field field;
  const char *name, *meaning;
};

/// In printing order of an instruction.
constexpr FieldText kFields[] = {
    {Field::Count, "count", "cycles or repetitions (n0)"},
    {Field::Interval, "interval", "cycles between repetitions (c0)"},
    {Field::Map, "map", "index of a lane map of the image (address)"},
    {Field::Loops, "loops", "counts n1, n0 and cycle strides c1, c0 of a burst (R2)"},
    {Field::Address, "address", "MEM row, accumulator row or column group of the first element"},
    {Field::Strides, "strides", "s1, s0: what each loop adds to the address"},
    {Field::StreamA, "a", "stream operand"},
    {Field::StreamB, "b", "second stream operand"},
    {Field::OutStream, "out", "first stream of the result"},
    {Field::Tensor, "tensor",
     "the region that the rows belong to; checked (S10), never drives execution"},
    {Field::Buffer, "buffer", "weight buffer of the plane"},
    {Field::Format, "format", "element type that multiplies"},
    {Field::Lanes, "lanes", "[k0, k1)"},
    {Field::Groups, "groups", "column groups [g0, g1)"},
    {Field::Mode, "mode", "1 adds to the accumulator row, 2 emits the new row"},
    {Field::Function, "function", "ALU operation, below"},
    {Field::OperandA, "a", "operand: streams, ALU, latch or immediate"},
    {Field::OperandB, "b", "second operand"},
    {Field::OperandC, "c", "third operand"},
    {Field::Immediate, "immediate", "32 bits, the same in every lane"},
    {Field::OutWest, "west", "first outward stream in the west hemisphere, or none"},
    {Field::OutEast, "east", "first outward stream in the east hemisphere, or none"},
    {Field::OutWidth, "width", "bytes per lane of the result: 1, 2 or 4"},
    {Field::Flags, "flags", "1: running form (R9)"},
};

const char *nameOf(UnitKind unit) {
  constexpr const char *names[kUnitKinds] = {
      "MEM slice",  "MXM install", "MXM activate", "MXM accumulate", "ALU",
      "transposer", "permutor",    "distributor",  "shifter",        "selector",
      "rotator",    "Send",        "Receive"};
  return names[unsigned(unit)];
}

const char *nameOf(LaneType type) {
  constexpr const char *names[] = {"bits", "f32", "i32", "f16", "bf16", "e4m3", "e5m2", "i8", "u8"};
  return names[unsigned(type)];
}

std::string fieldsOf(const OpcodeInfo &opcode) {
  std::string text;
  for (const FieldText &field : kFields)
    if (opcode.fields.has(field.field))
      text += (text.empty() ? "" : " ") + std::string(field.name);
  return text;
}

/// A `|` ends a cell of a table unless escaped.
std::string cell(std::string_view text) {
  std::string result;
  for (char c : text)
    result += c == '|' ? std::string("\\|") : std::string(1, c);
  return result;
}

std::string instructions() {
  std::string text = "| instruction | queue | operands | effect |\n|---|---|---|---|\n";
  for (const OpcodeInfo &opcode : opcodes())
    text += "| `" + std::string(opcode.mnemonic) + "` | " +
            (opcode.anyUnit ? "any" : nameOf(opcode.unit)) + " | " + fieldsOf(opcode) + " | " +
            cell(opcode.summary) + " |\n";
  return text;
}

std::string fields() {
  std::string text = "| operand | meaning |\n|---|---|\n";
  for (const FieldText &field : kFields)
    text += std::string("| ") + field.name + " | " + field.meaning + " |\n";
  return text;
}

std::string aluOperations() {
  std::string text =
      "| number | operation | operands | input | result | meaning |\n|---|---|---|---|---|---|\n";
  for (const AluOpInfo &op : aluOpTable)
    text += "| " + std::to_string(unsigned(op.op)) + " | `" + std::string(op.mnemonic) + "` | " +
            std::to_string(op.operands) + " | " + nameOf(op.input) + " | " + nameOf(op.result) +
            " | " + cell(op.meaning) + " |\n";
  return text;
}

} // namespace

std::string isaMarkdown() {
  return "# Instructions\n\n"
         "Generated from arch/isa/Opcodes.def and arch/operations/AluOp.def. When each instruction acts, "
         "and what the table "
         "leaves open,\nis in [machine.md](machine.md). Besides its operands every instruction has "
         "a dispatch cycle "
         "and a queue.\n\n" +
         instructions() + "\n## Operands\n\n" + fields() + "\n## ALU operations\n\n" +
         aluOperations();
}

} // namespace millrace
