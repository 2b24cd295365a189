// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The MXM's floating-point formats by their conversions, for tests that draw and sum in fp32.
#pragma once

#include "arch/isa/semantics/Convert.h"
#include "arch/spec/Types.h"

namespace millrace::sim::test {

/// The bits of `value` in a format of 8 or 16 bits; e4m3, which has no infinity, saturates.
inline uint16_t narrow(ElementType format, float value) {
  switch (format) {
  case ElementType::Fp16:
    return semantics::fp32ToFp16(value);
  case ElementType::Bf16:
    return semantics::fp32ToBf16(value);
  case ElementType::E4M3:
    return semantics::fp32ToE4m3Saturating(value);
  default:
    return semantics::fp32ToE5m2(value);
  }
}

inline float widen(ElementType format, uint16_t bits) {
  switch (format) {
  case ElementType::Fp16:
    return semantics::fp16ToFp32(bits);
  case ElementType::Bf16:
    return semantics::bf16ToFp32(bits);
  case ElementType::E4M3:
    return semantics::e4m3ToFp32(uint8_t(bits));
  default:
    return semantics::e5m2ToFp32(uint8_t(bits));
  }
}

} // namespace millrace::sim::test
