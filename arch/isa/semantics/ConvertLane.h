// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions as lane functions (see Lane.h), on bit patterns; Convert.h states what they promise.

#ifndef MILLRACE_ARCH_ISA_SEMANTICS_CONVERTLANE_H
#define MILLRACE_ARCH_ISA_SEMANTICS_CONVERTLANE_H

#include "arch/isa/semantics/Lane.h"

namespace millrace::semantics::lane {

/// A floating-point format of 8 or 16 bits.
struct SmallFloat {
  int exponentBits;
  int mantissaBits;
  uint32_t largest; ///< bits of the largest finite value
  uint32_t
      overflow; ///< bits of what a larger magnitude becomes: infinity, or NaN when there is none
  uint32_t nan; ///< bits of the canonical NaN

  constexpr int bias() const { return (1 << (exponentBits - 1)) - 1; }
  constexpr uint32_t magnitudeMask() const { return (1u << (exponentBits + mantissaBits)) - 1; }
  constexpr int signShift() const { return 31 - exponentBits - mantissaBits; }
};

inline constexpr SmallFloat fp16{5, 10, 0x7bff, 0x7c00, 0x7e00};
inline constexpr SmallFloat bf16{8, 7, 0x7f7f, 0x7f80, 0x7fc0};
inline constexpr SmallFloat e4m3{4, 3, 0x7e, 0x7f, 0x7f};
inline constexpr SmallFloat e5m2{5, 2, 0x7b, 0x7c, 0x7e};

/// fp32 bits of a value in format F. Exact; NaN becomes canonical.
template <SmallFloat F> MILLRACE_LANE uint32_t widen(uint32_t small) {
  constexpr int shift = 23 - F.mantissaBits;
  uint32_t magnitude = small & F.magnitudeMask();
  uint32_t sign = (small << F.signShift()) & signBit;
  uint32_t normal = (magnitude << shift) + (uint32_t(127 - F.bias()) << 23);
  uint32_t value = normal;
  if constexpr (F.bias() == 127) {
    // Same exponents as fp32: subnormals, infinity and NaN shift into place.
    value = magnitude << shift;
  } else {
    // A subnormal is its mantissa times the unit 2^(1 - bias - mantissaBits), exact in fp32.
    constexpr uint32_t unit = uint32_t(127 + 1 - F.bias() - F.mantissaBits) << 23;
    uint32_t subnormal = asBits(float(int32_t(magnitude)) * asFloat(unit));
    value = magnitude < (1u << F.mantissaBits) ? subnormal : normal;
    if constexpr (F.overflow != F.nan)
      value = magnitude == F.overflow ? infinityBits : value;
  }
  bool nan = F.overflow == F.nan ? magnitude == F.nan : magnitude > F.overflow;
  return nan ? canonicalNan : sign | value;
}

/// What a magnitude above the largest finite value becomes.
enum class TooLarge {
  Overflows,  ///< F.overflow
  Saturates,  ///< the largest finite value, infinities too
  KeepsFinite ///< the largest finite value, but infinities stay infinite
};

/// Bits in format F of an fp32 value, rounded once to nearest even, subnormals included.
template <SmallFloat F, TooLarge Mode = TooLarge::Overflows>
MILLRACE_LANE uint32_t narrow(uint32_t bits) {
  constexpr int shift = 23 - F.mantissaBits;
  uint32_t magnitude = bits & ~signBit;
  uint32_t sign = (bits & signBit) >> F.signShift();
  // Normal: drop `shift` bits with rounding; a carry runs into the exponent as it should.
  uint32_t odd = (magnitude >> shift) & 1;
  uint32_t rounded = (magnitude + ((1u << (shift - 1)) - 1) + odd) >> shift;
  uint32_t value = rounded - (uint32_t(127 - F.bias()) << F.mantissaBits);
  if constexpr (F.bias() != 127) {
    // Subnormal: added to 2^23 units, the value is rounded to whole units by the fp32 adder.
    constexpr uint32_t magic = uint32_t(127 + 1 - F.bias() - F.mantissaBits + 23) << 23;
    constexpr uint32_t leastNormal = uint32_t(127 + 1 - F.bias()) << 23;
    uint32_t subnormal = asBits(asFloat(magnitude) + asFloat(magic)) - magic;
    value = magnitude < leastNormal ? subnormal : value;
  }
  // Compared as integers; a magnitude far below the least normal wrapped, but was replaced above.
  bool tooLarge = value > F.largest;
  bool nan = magnitude > infinityBits;
  if constexpr (Mode == TooLarge::Saturates)
    value = tooLarge ? F.largest : value;
  else if constexpr (Mode == TooLarge::KeepsFinite)
    value = tooLarge ? (magnitude < infinityBits ? F.largest : F.overflow) : value;
  else if constexpr (F.overflow != F.nan)
    value = tooLarge ? F.overflow : value;
  else
    nan = nan | tooLarge; // overflow gives the canonical NaN, without a sign
  return nan ? F.nan : sign | value;
}

/// Nearest integer, ties to even, clamped to [low, high]; NaN is 0. The range fits 2^22.
MILLRACE_LANE int32_t clampToInteger(uint32_t bits, float low, float high) {
  constexpr float magic = 0x1.8p23f; // one unit of its last place is 1
  float value = asFloat(bits);
  value = value < low ? low : value;
  value = value > high ? high : value;
  int32_t integer = int32_t(asBits(value + magic) - asBits(magic));
  return isNan(bits) ? 0 : integer;
}

MILLRACE_LANE int32_t toInt32(uint32_t bits) {
  constexpr double magic = 0x1.8p52;
  double value = double(asFloat(bits));
  value = value < -2147483648.0 ? -2147483648.0 : value;
  value = value > 2147483647.0 ? 2147483647.0 : value;
  int32_t integer = int32_t(uint32_t(asBits(value + magic)));
  return isNan(bits) ? 0 : integer;
}

MILLRACE_LANE int32_t toInt8(uint32_t bits) { return clampToInteger(bits, -128.0f, 127.0f); }
MILLRACE_LANE int32_t toUint8(uint32_t bits) { return clampToInteger(bits, 0.0f, 255.0f); }

MILLRACE_LANE int32_t clampInteger(int32_t value, int32_t low, int32_t high) {
  value = value < low ? low : value;
  return value > high ? high : value;
}

} // namespace millrace::semantics::lane

#endif // MILLRACE_ARCH_ISA_SEMANTICS_CONVERTLANE_H
