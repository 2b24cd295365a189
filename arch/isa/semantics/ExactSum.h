// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The slow truth of the MXM: a sum of products, exact, rounded once to fp32.
//
// Every value of fp16, bf16 and fp8 is an fp32 value, so one accumulator of fp32 products serves
// all formats: a fixed-point number wide enough that no addition ever rounds or overflows. The
// order of summation therefore cannot matter, and a fast kernel can be held against it bit by bit.

#ifndef MILLRACE_ARCH_ISA_SEMANTICS_EXACTSUM_H
#define MILLRACE_ARCH_ISA_SEMANTICS_EXACTSUM_H

#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace::semantics {

/// Sum of products of fp32 values. Starts at +0. Exact for up to 2^60 products.
class ExactSum {
public:
  /// Adds a * b. Subnormals count; infinities and NaN follow IEEE: 0 times infinity is NaN, and so
  /// is the sum of infinities of both signs.
  void addProduct(float a, float b);

  /// The sum rounded once to fp32, to nearest even. An exact zero is +0, NaN is 0x7fc00000.
  float rounded() const;

private:
  /// Two's complement, least significant word first, in units of 2^-298, the square of the least
  /// fp32 subnormal. Products stay below 2^256, so bits 0 to 553 hold one and 640 hold their sum.
  static constexpr int unitExponent = -298;
  std::array<uint64_t, 10> words = {};
  bool nan = false, positiveInfinity = false, negativeInfinity = false;
};

/// sum a[i * strideA] * b[i * strideB] over i < count, rounded once; strides in elements.
float exactDot(const float *a, size_t strideA, const float *b, size_t strideB, size_t count);

/// The same for int8: exact, modulo 2^32 (no overflow below 2^17 products).
int32_t int8Dot(const int8_t *a, size_t strideA, const int8_t *b, size_t strideB, size_t count);

} // namespace millrace::semantics

#endif // MILLRACE_ARCH_ISA_SEMANTICS_EXACTSUM_H
