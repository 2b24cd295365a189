// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How lane functions are written, and the bits of fp32 that they share.
//
// A lane function computes one lane from the bits of its operands. It has no branch that depends on
// data, calls no library, and uses only IEEE operations of fp32 and fp64 (each rounded to nearest
// even), so the compiler can run it over a row in vectors of any width with the same bits. The
// files that include it are compiled without contraction into fused operations and without
// -ffast-math. Lane functions are forced inline: the same source is compiled for several
// instruction sets, and an out-of-line copy of one must never serve another.

#ifndef MILLRACE_ARCH_ISA_SEMANTICS_LANE_H
#define MILLRACE_ARCH_ISA_SEMANTICS_LANE_H

#include <cstdint>

#define MILLRACE_LANE [[gnu::always_inline]] inline

namespace millrace::semantics::lane {

inline constexpr uint32_t canonicalNan = 0x7fc00000;
inline constexpr uint32_t signBit = 0x80000000;
inline constexpr uint32_t infinityBits = 0x7f800000;

MILLRACE_LANE float asFloat(uint32_t bits) { return __builtin_bit_cast(float, bits); }
MILLRACE_LANE uint32_t asBits(float value) { return __builtin_bit_cast(uint32_t, value); }
MILLRACE_LANE double asDouble(uint64_t bits) { return __builtin_bit_cast(double, bits); }
MILLRACE_LANE uint64_t asBits(double value) { return __builtin_bit_cast(uint64_t, value); }

MILLRACE_LANE bool isNan(uint32_t bits) { return (bits & ~signBit) > infinityBits; }

/// The bits of a result, with every NaN made canonical.
MILLRACE_LANE uint32_t result(float value) {
  uint32_t bits = asBits(value);
  return isNan(bits) ? canonicalNan : bits;
}

} // namespace millrace::semantics::lane

#endif // MILLRACE_ARCH_ISA_SEMANTICS_LANE_H
