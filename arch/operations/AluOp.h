// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// AluOp: what a VXM ALU can do, and the type of value each lane carries. The list is AluOp.def.

#ifndef MILLRACE_ARCH_OPERATIONS_ALUOP_H
#define MILLRACE_ARCH_OPERATIONS_ALUOP_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace {

/// How the 32 bits of a lane are read. Narrow types lie in the low bytes.
enum class LaneType : uint8_t { Bits, F32, I32, F16, Bf16, E4m3, E5m2, I8, U8 };

/// Bytes of a stream group that carries values of this type: 4, 2 or 1.
constexpr unsigned laneTypeBytes(LaneType type) {
  switch (type) {
  case LaneType::Bits:
  case LaneType::F32:
  case LaneType::I32:
    return 4;
  case LaneType::F16:
  case LaneType::Bf16:
    return 2;
  case LaneType::E4m3:
  case LaneType::E5m2:
  case LaneType::I8:
  case LaneType::U8:
    return 1;
  }
  return 4;
}

/// One operation of a VXM ALU. The value is the operation's number in a program image.
enum class AluOp : uint8_t {
#define MILLRACE_ALU_OP(NAME, MNEMONIC, OPERANDS, INPUT, RESULT, MEANING) NAME,
#include "arch/operations/AluOp.def"
};

/// What the table says about one operation.
struct AluOpInfo {
  AluOp op;
  std::string_view name;     ///< enumerator, `AddF32`
  std::string_view mnemonic; ///< assembly text, `add.f32`
  unsigned operands;         ///< 1, 2 or 3
  LaneType input;            ///< of the operands; of a select: of its condition
  LaneType result;
  std::string_view meaning; ///< one line for documentation
};

/// Every operation, indexed by its number.
inline constexpr AluOpInfo aluOpTable[] = {
#define MILLRACE_ALU_OP(NAME, MNEMONIC, OPERANDS, INPUT, RESULT, MEANING)                          \
  {AluOp::NAME, #NAME, MNEMONIC, OPERANDS, LaneType::INPUT, LaneType::RESULT, MEANING},
#include "arch/operations/AluOp.def"
};

inline constexpr size_t aluOpCount = sizeof(aluOpTable) / sizeof(aluOpTable[0]);

constexpr const AluOpInfo &aluOpInfo(AluOp op) { return aluOpTable[static_cast<size_t>(op)]; }

/// The operation with this image number, or nothing when the number names none.
constexpr std::optional<AluOp> aluOpFromNumber(uint64_t number) {
  if (number >= aluOpCount)
    return std::nullopt;
  return static_cast<AluOp>(number);
}

/// The operation with this assembly text, or nothing.
constexpr std::optional<AluOp> aluOpFromMnemonic(std::string_view mnemonic) {
  for (const AluOpInfo &info : aluOpTable)
    if (info.mnemonic == mnemonic)
      return info.op;
  return std::nullopt;
}

} // namespace millrace

#endif // MILLRACE_ARCH_OPERATIONS_ALUOP_H
