// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every AluOp as a lane function: lane::alu<AluOp::X>(a, b, c). Alu.h states the rules.

#ifndef MILLRACE_ARCH_ISA_SEMANTICS_ALULANE_H
#define MILLRACE_ARCH_ISA_SEMANTICS_ALULANE_H

#include "arch/operations/AluOp.h"
#include "arch/isa/semantics/ConvertLane.h"
#include "arch/isa/semantics/MathLane.h"

namespace millrace::semantics::lane {

MILLRACE_LANE uint32_t truth(bool condition) { return condition ? asBits(1.0f) : 0; }

/// Nearest integer, ties to even; the sign of a zero result is that of the operand.
MILLRACE_LANE float roundToInteger(float x) {
  constexpr float magic = 0x1p23f; // from here on every fp32 value is an integer
  uint32_t bits = asBits(x);
  float magnitude = asFloat(bits & ~signBit);
  float rounded = (magnitude + magic) - magic;
  return magnitude < magic ? asFloat(asBits(rounded) | (bits & signBit)) : x;
}

MILLRACE_LANE float floorOf(float x) {
  float nearest = roundToInteger(x);
  return nearest > x ? nearest - 1.0f : nearest;
}

MILLRACE_LANE float truncOf(float x) {
  uint32_t bits = asBits(x);
  return asFloat(asBits(floorOf(asFloat(bits & ~signBit))) | (bits & signBit));
}

/// Maximum of two numbers by the order of their bits as sign and magnitude, so that +0 > -0.
MILLRACE_LANE uint32_t maximum(uint32_t a, uint32_t b) {
  uint32_t greater = asFloat(a) > asFloat(b) ? a : b;
  greater = asFloat(a) == asFloat(b) ? a & b : greater; // differs from both only for +0 and -0
  return isNan(a) | isNan(b) ? canonicalNan : greater;
}

MILLRACE_LANE uint32_t minimum(uint32_t a, uint32_t b) {
  uint32_t lesser = asFloat(a) < asFloat(b) ? a : b;
  lesser = asFloat(a) == asFloat(b) ? a | b : lesser;
  return isNan(a) | isNan(b) ? canonicalNan : lesser;
}

MILLRACE_LANE uint32_t signOf(uint32_t a) {
  float x = asFloat(a);
  uint32_t value = x > 0 ? asBits(1.0f) : 0;
  value = x < 0 ? asBits(-1.0f) : value;
  return isNan(a) ? canonicalNan : value;
}

MILLRACE_LANE uint32_t divideIntegers(int32_t a, int32_t b) {
  int64_t quotient = int64_t(a) / (b == 0 ? 1 : b);
  return b == 0 ? 0 : uint32_t(quotient);
}

/// The scalar meaning of one operation; operands that it does not have are ignored. For SinF32 and
/// CosF32 only while !isLargeAngle(a).
template <AluOp Op> MILLRACE_LANE uint32_t alu(uint32_t a, uint32_t b, uint32_t c) {
  [[maybe_unused]] const float fa = asFloat(a), fb = asFloat(b);
  [[maybe_unused]] const int32_t ia = int32_t(a), ib = int32_t(b);
  using enum AluOp;
  // clang-format off
  if constexpr (Op == Pass) return a;
  else if constexpr (Op == Not) return ~a;
  else if constexpr (Op == And) return a & b;
  else if constexpr (Op == Or) return a | b;
  else if constexpr (Op == Xor) return a ^ b;
  else if constexpr (Op == ShiftLeft) return b < 32 ? a << (b & 31) : 0;
  else if constexpr (Op == ShiftRightLogical) return b < 32 ? a >> (b & 31) : 0;
  else if constexpr (Op == ShiftRightArithmetic) return uint32_t(ia >> (b < 32 ? b : 31));
  else if constexpr (Op == NegF32) return isNan(a) ? canonicalNan : a ^ signBit;
  else if constexpr (Op == AbsF32) return isNan(a) ? canonicalNan : a & ~signBit;
  else if constexpr (Op == SignF32) return signOf(a);
  else if constexpr (Op == ReluF32) return maximum(a, 0);
  else if constexpr (Op == FloorF32) return result(floorOf(fa));
  else if constexpr (Op == CeilF32) return result(-floorOf(-fa));
  else if constexpr (Op == RoundF32) return result(roundToInteger(fa));
  else if constexpr (Op == TruncF32) return result(truncOf(fa));
  else if constexpr (Op == SqrtF32) return result(__builtin_sqrtf(fa));
  else if constexpr (Op == RsqrtF32) return rsqrt(a);
  else if constexpr (Op == RcpF32) return result(1.0f / fa);
  else if constexpr (Op == ExpF32) return exp(a);
  else if constexpr (Op == Exp2F32) return exp2(a);
  else if constexpr (Op == LogF32) return log(a);
  else if constexpr (Op == SinF32) return sineOf(reduceSmall(a), 0);
  else if constexpr (Op == CosF32) return sineOf(reduceSmall(a), 1);
  else if constexpr (Op == TanhF32) return tanh(a);
  else if constexpr (Op == SigmoidF32) return sigmoid(a);
  else if constexpr (Op == ErfF32) return erf(a);
  else if constexpr (Op == AddF32) return result(fa + fb);
  else if constexpr (Op == SubF32) return result(fa - fb);
  else if constexpr (Op == MulF32) return result(fa * fb);
  else if constexpr (Op == DivF32) return result(fa / fb);
  else if constexpr (Op == MaxF32) return maximum(a, b);
  else if constexpr (Op == MinF32) return minimum(a, b);
  else if constexpr (Op == PowF32) return pow(a, b);
  else if constexpr (Op == EqF32) return truth(fa == fb);
  else if constexpr (Op == NeF32) return truth(fa != fb);
  else if constexpr (Op == LtF32) return truth(fa < fb);
  else if constexpr (Op == LeF32) return truth(fa <= fb);
  else if constexpr (Op == GtF32) return truth(fa > fb);
  else if constexpr (Op == GeF32) return truth(fa >= fb);
  else if constexpr (Op == SelectF32) return (a & ~signBit) != 0 ? b : c;
  else if constexpr (Op == NegI32) return 0u - a;
  else if constexpr (Op == AbsI32) return ia < 0 ? 0u - a : a;
  else if constexpr (Op == SignI32) return uint32_t((ia > 0) - (ia < 0));
  else if constexpr (Op == ReluI32) return ia > 0 ? a : 0;
  else if constexpr (Op == AddI32) return a + b;
  else if constexpr (Op == SubI32) return a - b;
  else if constexpr (Op == MulI32) return a * b;
  else if constexpr (Op == DivI32) return divideIntegers(ia, ib);
  else if constexpr (Op == MaxI32) return ia > ib ? a : b;
  else if constexpr (Op == MinI32) return ia < ib ? a : b;
  else if constexpr (Op == EqI32) return a == b;
  else if constexpr (Op == NeI32) return a != b;
  else if constexpr (Op == LtI32) return ia < ib;
  else if constexpr (Op == LeI32) return ia <= ib;
  else if constexpr (Op == GtI32) return ia > ib;
  else if constexpr (Op == GeI32) return ia >= ib;
  else if constexpr (Op == SelectI32) return a != 0 ? b : c;
  else if constexpr (Op == CvtI32F32) return asBits(float(ia));
  else if constexpr (Op == CvtF32I32) return uint32_t(toInt32(a));
  else if constexpr (Op == CvtF16F32) return widen<fp16>(a);
  else if constexpr (Op == CvtF32F16) return narrow<fp16>(a);
  else if constexpr (Op == CvtBf16F32) return widen<bf16>(a);
  else if constexpr (Op == CvtF32Bf16) return narrow<bf16>(a);
  else if constexpr (Op == CvtE4m3F32) return widen<e4m3>(a);
  else if constexpr (Op == CvtF32E4m3) return narrow<e4m3>(a);
  else if constexpr (Op == CvtF32E4m3Sat) return narrow<e4m3, TooLarge::Saturates>(a);
  else if constexpr (Op == CvtE5m2F32) return widen<e5m2>(a);
  else if constexpr (Op == CvtF32E5m2) return narrow<e5m2>(a);
  else if constexpr (Op == CvtF32E5m2Sat) return narrow<e5m2, TooLarge::Saturates>(a);
  else if constexpr (Op == CvtI8F32) return asBits(float(int32_t(int8_t(a))));
  else if constexpr (Op == CvtF32I8) return uint32_t(toInt8(a)) & 0xff;
  else if constexpr (Op == CvtU8F32) return asBits(float(int32_t(a & 0xff)));
  else if constexpr (Op == CvtF32U8) return uint32_t(toUint8(a)) & 0xff;
  else if constexpr (Op == CvtI8I32) return uint32_t(int32_t(int8_t(a)));
  else if constexpr (Op == CvtI32I8) return uint32_t(clampInteger(ia, -128, 127)) & 0xff;
  else if constexpr (Op == CvtU8I32) return a & 0xff;
  else if constexpr (Op == CvtI32U8) return uint32_t(clampInteger(ia, 0, 255));
  else if constexpr (Op == CvtF32F16Fin) return narrow<fp16, TooLarge::KeepsFinite>(a);
  else if constexpr (Op == CvtF32Bf16Fin) return narrow<bf16, TooLarge::KeepsFinite>(a);
  // clang-format on
  else
    static_assert(Op == Pass, "AluOp.def has an operation without a meaning here");
}

} // namespace millrace::semantics::lane

#endif // MILLRACE_ARCH_ISA_SEMANTICS_ALULANE_H
