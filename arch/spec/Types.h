// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <cstdint>

namespace millrace {

using Cycle =
    int64_t; ///< absolute, from the start barrier's end; negative only in intermediate sums
using StreamId = uint16_t; ///< see Machine::stream
constexpr StreamId kNoStream = 0xffff;

/// Element types on the machine.
enum class ElementType : uint8_t { Int8, UInt8, Int32, Fp16, Bf16, Fp32, E4M3, E5M2 };
constexpr unsigned kElementTypes = 8;
constexpr unsigned byteWidth(ElementType t) {
  switch (t) {
  case ElementType::Int8:
  case ElementType::UInt8:
  case ElementType::E4M3:
  case ElementType::E5M2:
    return 1;
  case ElementType::Fp16:
  case ElementType::Bf16:
    return 2;
  default:
    return 4;
  }
}
const char *nameOf(ElementType type); ///< int8 uint8 int32 fp16 bf16 fp32 e4m3 e5m2

} // namespace millrace
