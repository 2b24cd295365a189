// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/isa/semantics/ExactSum.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace millrace::semantics {

namespace {

/// |value| = mantissa * 2^exponent, for a finite fp32 value.
struct Parts {
  uint32_t mantissa;
  int exponent;
};

Parts partsOf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint32_t fraction = bits & 0x7fffff;
  int biased = int(bits >> 23 & 0xff);
  if (biased == 0)
    return {fraction, -149};
  return {fraction | 0x800000, biased - 150};
}

using Words = std::array<uint64_t, 10>;

bool bitAt(const Words &words, int index) {
  return index >= 0 && (words[size_t(index) / 64] >> (index % 64) & 1);
}

bool anyBitBelow(const Words &words, int index) {
  if (index <= 0)
    return false;
  size_t whole = size_t(index) / 64;
  for (size_t i = 0; i < whole; ++i)
    if (words[i])
      return true;
  return index % 64 && (words[whole] << (64 - index % 64));
}

int highestBit(const Words &words) {
  for (int i = int(words.size()) - 1; i >= 0; --i)
    if (words[i])
      return 64 * i + 63 - std::countl_zero(words[i]);
  return -1;
}

void negate(Words &words) {
  uint64_t carry = 1;
  for (uint64_t &word : words) {
    word = ~word + carry;
    carry = carry && word == 0;
  }
}

} // namespace

void ExactSum::addProduct(float a, float b) {
  bool negative = std::signbit(a) != std::signbit(b);
  if (!std::isfinite(a) || !std::isfinite(b)) {
    if (std::isnan(a) || std::isnan(b) || a == 0 || b == 0)
      nan = true;
    else
      (negative ? negativeInfinity : positiveInfinity) = true;
    return;
  }
  Parts x = partsOf(a), y = partsOf(b);
  // 48 bits, placed at `shift` units: they reach into at most two words.
  unsigned __int128 product = uint64_t(x.mantissa) * y.mantissa;
  int shift = x.exponent + y.exponent - unitExponent;
  product <<= shift % 64;
  uint64_t parts[2] = {uint64_t(product), uint64_t(product >> 64)};
  bool carry = false;
  for (size_t i = size_t(shift) / 64, part = 0; i < words.size(); ++i, ++part) {
    if (part >= 2 && !carry)
      break;
    uint64_t operand = part < 2 ? parts[part] : 0, old = words[i];
    if (negative) {
      words[i] = old - operand - carry;
      carry = carry ? old <= operand : old < operand;
    } else {
      words[i] = old + operand + carry;
      carry = carry ? words[i] <= old : words[i] < old;
    }
  }
}

float ExactSum::rounded() const {
  if (nan || (positiveInfinity && negativeInfinity))
    return std::bit_cast<float>(uint32_t(0x7fc00000));
  if (positiveInfinity || negativeInfinity)
    return positiveInfinity ? std::numeric_limits<float>::infinity()
                            : -std::numeric_limits<float>::infinity();
  Words magnitude = words;
  bool negative = words.back() >> 63;
  if (negative)
    negate(magnitude);
  int top = highestBit(magnitude);
  if (top < 0)
    return 0.0f;
  // Keep 24 bits, or fewer down to the unit of fp32 subnormals, 2^-149.
  int low = std::max(top - 23, -149 - unitExponent);
  uint32_t kept = 0;
  for (int i = top; i >= low; --i)
    kept = kept << 1 | uint32_t(bitAt(magnitude, i));
  bool half = bitAt(magnitude, low - 1);
  if (half && ((kept & 1) || anyBitBelow(magnitude, low - 1)))
    ++kept;
  // Both steps are exact: `kept` has at most 24 bits, or is 2^24; too large becomes infinity.
  double value = std::ldexp(double(kept), low + unitExponent);
  return float(negative ? -value : value);
}

float exactDot(const float *a, size_t strideA, const float *b, size_t strideB, size_t count) {
  ExactSum sum;
  for (size_t i = 0; i < count; ++i)
    sum.addProduct(a[i * strideA], b[i * strideB]);
  return sum.rounded();
}

int32_t int8Dot(const int8_t *a, size_t strideA, const int8_t *b, size_t strideB, size_t count) {
  uint32_t sum = 0;
  for (size_t i = 0; i < count; ++i)
    sum += uint32_t(int32_t(a[i * strideA]) * b[i * strideB]);
  return int32_t(sum);
}

} // namespace millrace::semantics
