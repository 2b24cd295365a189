// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/isa/Instruction.h"

namespace millrace {

using enum Field;
static constexpr UnitKind Mem = UnitKind::Mem, MxmInstall = UnitKind::MxmInstall,
                          MxmActivate = UnitKind::MxmActivate,
                          MxmAccumulate = UnitKind::MxmAccumulate,
                          Transposer = UnitKind::Transposer, Permutor = UnitKind::Permutor,
                          Distributor = UnitKind::Distributor, Shifter = UnitKind::Shifter,
                          Selector = UnitKind::Selector, Rotator = UnitKind::Rotator;
static constexpr int Any = -1;

static constexpr bool isAny(int) { return true; }
static constexpr bool isAny(UnitKind) { return false; }
static constexpr UnitKind kindOf(int) { return UnitKind::Mem; }
static constexpr UnitKind kindOf(UnitKind kind) { return kind; }

/// In a namespace of its own, since Alu, Send and Receive name both an opcode's unit and the
/// opcode.
namespace table {
static constexpr UnitKind Alu = UnitKind::Alu, Send = UnitKind::Send, Receive = UnitKind::Receive;
static constexpr OpcodeInfo all[] = {
#define MILLRACE_OPCODE(Name, mnemonic, Unit, fields, summary)                                     \
  {Opcode::Name, #Name, mnemonic, isAny(Unit), kindOf(Unit), fields, summary},
#include "arch/isa/Opcodes.def"
};
} // namespace table

const OpcodeInfo &info(Opcode opcode) { return table::all[unsigned(opcode)]; }
std::span<const OpcodeInfo> opcodes() { return table::all; }

} // namespace millrace
