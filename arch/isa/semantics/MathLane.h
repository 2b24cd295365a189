// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Transcendental functions of fp32 as lane functions (see Lane.h).
//
// Each works in fp64 with polynomials whose error is below 2^-45 of the result, and rounds once to
// fp32: the result is the correctly rounded one except when the true value lies within 2^-45 or so
// of a rounding boundary, always within 1 ulp. Only +, -, *, / and sqrt of fp64 are used, never
// fused, so every CPU gives the same bits.

#ifndef MILLRACE_ARCH_ISA_SEMANTICS_MATHLANE_H
#define MILLRACE_ARCH_ISA_SEMANTICS_MATHLANE_H

#include "arch/isa/semantics/Lane.h"

namespace millrace::semantics::lane {

/// c[0] + c[1] x + ... by Horner's rule.
template <int N> MILLRACE_LANE double polynomial(const double (&c)[N], double x) {
  double sum = c[N - 1];
#pragma GCC unroll 32
  for (int i = N - 2; i >= 0; --i)
    sum = sum * x + c[i];
  return sum;
}

/// Adding and subtracting this rounds |x| < 2^51 to an integer, which the low bits then hold.
inline constexpr double roundingMagic = 0x1.8p52;

/// e^x = scale * (1 + tail), scale a power of two. |x| <= 400.
struct Exponential {
  double scale;
  double tail; ///< e^r - 1, |r| <= ln(2) / 2: no cancellation
};

MILLRACE_LANE Exponential exponential(double x) {
  // ln(2) in two parts; the first has 42 bits, so n times it is exact.
  constexpr double ln2High = 0x1.62e42fefa38p-1, ln2Low = 0x1.ef35793c7673p-45;
  constexpr double log2e = 0x1.71547652b82fep+0;
  // Taylor series of (e^r - 1) / r; the first term left out is below 2^-57.
  constexpr double c[] = {1.0,
                          1.0 / 2,
                          1.0 / 6,
                          1.0 / 24,
                          1.0 / 120,
                          1.0 / 720,
                          1.0 / 5040,
                          1.0 / 40320,
                          1.0 / 362880,
                          1.0 / 3628800,
                          1.0 / 39916800,
                          1.0 / 479001600,
                          1.0 / 6227020800};
  double shifted = x * log2e + roundingMagic;
  double n = shifted - roundingMagic;
  double r = (x - n * ln2High) - n * ln2Low;
  return {asDouble((asBits(shifted) + 1023) << 52), r * polynomial(c, r)};
}

MILLRACE_LANE double clamped(double x, double low, double high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

/// e^x in fp64; beyond +-400 as at +-400, which fp32 cannot tell from 0 and infinity.
MILLRACE_LANE double exponentialValue(double x) {
  Exponential e = exponential(clamped(x, -400, 400));
  return e.scale + e.scale * e.tail;
}

/// ln(x) for finite x > 0 that came from fp32; for other x the value means nothing.
MILLRACE_LANE double logarithm(double x) {
  // x = m 2^e, m in [sqrt(1/2), sqrt(2)): the exponent of x / sqrt(1/2), and what remains.
  constexpr uint64_t offset = 0x3fe6a09e667f3bcdull; // bits of sqrt(1/2)
  constexpr double ln2High = 0x1.62e42fefa38p-1, ln2Low = 0x1.ef35793c7673p-45;
  // 2 artanh(s) = 2 s (1 + s^2 / 3 + s^4 / 5 + ...), s = (m - 1) / (m + 1), s^2 < 0.0295.
  constexpr double c[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9, 2.0 / 11,
                          2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  uint64_t relative = asBits(x) - offset;
  // The exponent as a double: biased to be positive, put under 2^52, taken out again.
  uint64_t biased = (relative + (uint64_t(1024) << 52)) >> 52;
  double e = asDouble(biased | 0x4330000000000000ull) - (0x1p52 + 1024);
  double m = asDouble((relative & 0x000fffffffffffffull) + offset);
  double f = m - 1.0;
  double s = f / (2.0 + f);
  return e * ln2High + (e * ln2Low + s * polynomial(c, s * s));
}

MILLRACE_LANE uint32_t exp(uint32_t a) { return result(float(exponentialValue(asFloat(a)))); }

MILLRACE_LANE uint32_t exp2(uint32_t a) {
  constexpr double ln2 = 0x1.62e42fefa39efp-1;
  double x = clamped(double(asFloat(a)), -400, 400);
  double shifted = x + roundingMagic;
  double r = (x - (shifted - roundingMagic)) * ln2;
  double scale = asDouble((asBits(shifted) + 1023) << 52);
  return result(float(scale + scale * exponential(r).tail));
}

MILLRACE_LANE uint32_t log(uint32_t a) {
  uint32_t value = asBits(float(logarithm(asFloat(a))));
  value = a == infinityBits ? infinityBits : value;
  value = a > infinityBits ? canonicalNan : value; // NaN and negative values
  return (a & ~signBit) == 0 ? signBit | infinityBits : value;
}

MILLRACE_LANE uint32_t rsqrt(uint32_t a) {
  return result(float(1.0 / __builtin_sqrt(double(asFloat(a)))));
}

MILLRACE_LANE uint32_t tanh(uint32_t a) {
  double x = double(asFloat(a & ~signBit));
  Exponential e = exponential(clamped(2 * x, 0, 60));
  double m = e.scale * e.tail + (e.scale - 1.0); // e^2x - 1; near 0 the scale is 1
  uint32_t magnitude = asBits(float(m / (m + 2.0)));
  return isNan(a) ? canonicalNan : magnitude | (a & signBit);
}

MILLRACE_LANE uint32_t sigmoid(uint32_t a) {
  return result(float(1.0 / (1.0 + exponentialValue(-double(asFloat(a))))));
}

MILLRACE_LANE uint32_t erf(uint32_t a) {
  // Below 1: Maclaurin series of erf(x) / x in x^2, coefficients 2 (-1)^k / (sqrt(pi) k! (2k + 1)).
  constexpr double inner[] = {
      0x1.20dd750429b6dp+0,  -0x1.812746b0379e7p-2,  0x1.ce2f21a042be2p-4,  -0x1.b82ce31288b51p-6,
      0x1.565bcd0e6a53fp-8,  -0x1.c02db40040b86p-11, 0x1.f9a326f9b89b7p-14, -0x1.f4d25c3e0c2ebp-17,
      0x1.b9e6c9dc651a3p-20, -0x1.5f742ec43e71ap-23, 0x1.fcc5720624c1cp-27, -0x1.51d7181c5d36dp-30,
      0x1.9e6ad5e55a730p-34, -0x1.d8453cb0c46eap-38, 0x1.f683ae4a97007p-42, -0x1.f56f071a885cfp-46,
      0x1.d70b3537f4765p-50, -0x1.a2007af3447f6p-54};
  // From 1 to 4: interpolation of erf at the 25 Chebyshev nodes, in u = (x - 2.5) / 1.5; its error
  // is 2^-48. Above 3.92 erf rounds to 1.
  constexpr double outer[] = {0x1.ffcaa8f4c9beap-1,   0x1.ac44a297be020p-9,   -0x1.9180586e294e8p-7,
                              0x1.cdb9ff49e67c0p-6,   -0x1.65964ec1ae642p-5,  0x1.7c8c49ab685cfp-5,
                              -0x1.0521f9908720dp-5,  0x1.2fae1c95933d5p-7,   0x1.b5d36d13c86f6p-8,
                              -0x1.3b496ecdeb129p-7,  0x1.29ccdb9b6e1e6p-8,   0x1.d1d1889230d05p-12,
                              -0x1.dee0d8b73ff0dp-10, 0x1.ded0e1fd366b8p-11,  0x1.baa65810d93a7p-15,
                              -0x1.2729c63eb5574p-12, 0x1.ef70a29d65956p-14,  0x1.3acbc13b6531ep-16,
                              -0x1.2b781c0552e10p-15, 0x1.2a6261c014f3ap-17,  0x1.2756b24bc1e46p-18,
                              -0x1.716e06842c705p-19, -0x1.3a95f7800b55cp-26, 0x1.38bafbaaa37f5p-22,
                              -0x1.8733022f308afp-25};
  double x = double(asFloat(a & ~signBit));
  double small = x * polynomial(inner, x * x);
  double large = polynomial(outer, (clamped(x, 1, 4) - 2.5) * (1 / 1.5));
  double value = x < 1 ? small : large;
  value = x >= 4 ? 1.0 : value;
  return isNan(a) ? canonicalNan : asBits(float(value)) | (a & signBit);
}

/// a^b with the special cases of IEEE 754 (pow).
MILLRACE_LANE uint32_t pow(uint32_t a, uint32_t b) {
  constexpr uint32_t one = 0x3f800000;
  const double infinity = asDouble(0x7ff0000000000000ull);
  uint32_t aMagnitude = a & ~signBit, bMagnitude = b & ~signBit;
  double x = double(asFloat(aMagnitude)), y = double(asFloat(b));
  double logX = logarithm(x);
  logX = aMagnitude == 0 ? -infinity : logX;
  logX = aMagnitude == infinityBits ? infinity : logX;
  logX = aMagnitude == one ? 0.0 : logX;
  y = bMagnitude == infinityBits ? double(asFloat((b & signBit) | 0x7f7fffff)) : y;
  uint32_t magnitude = asBits(float(exponentialValue(y * logX)));
  // The exponent is an odd integer, an even one (2^24 and more are), or none.
  uint32_t clampedB = bMagnitude < 0x4b800000 ? bMagnitude : 0x4b800000;
  int32_t whole = int32_t(asFloat(clampedB));
  uint32_t isInteger = asBits(float(whole)) == clampedB ? ~0u : 0;
  uint32_t oddMask = 0u - (uint32_t(whole) & 1);
  uint32_t value = magnitude | (a & signBit & isInteger & oddMask);
  uint32_t negativeFinite = a - (signBit + 1) < infinityBits - 1 ? ~0u : 0;
  value = (negativeFinite & ~isInteger) != 0 ? canonicalNan : value;
  value = isNan(a) ? canonicalNan : value;
  value = isNan(b) ? canonicalNan : value;
  value = bMagnitude == 0 ? one : value;
  return a == one ? one : value;
}

/// Below this magnitude the argument of sin and cos is reduced in fp64; see reduceLarge beyond.
inline constexpr uint32_t largeAngle = 0x49800000; // bits of 2^20

MILLRACE_LANE bool isLargeAngle(uint32_t a) { return (a & ~signBit) >= largeAngle; }

/// An angle as quadrant * pi/2 + rest, |rest| <= pi/4.
struct Angle {
  uint32_t quadrant; ///< modulo 4
  double rest;
};

MILLRACE_LANE Angle reduceSmall(uint32_t a) {
  // pi/2 in parts of 33 bits, so that n (20 bits) times a part is exact; the last part is full.
  constexpr double high = 0x1.921fb544p+0, middle = 0x1.0b4611a6p-34, low = 0x1.3198a2e037073p-69;
  constexpr double twoOverPi = 0x1.45f306dc9c883p-1;
  double x = double(asFloat(a));
  double shifted = x * twoOverPi + roundingMagic;
  double n = shifted - roundingMagic;
  double rest = ((x - n * high) - n * middle) - n * low;
  return {uint32_t(asBits(shifted)), rest};
}

/// The sine (or, a quadrant later, the cosine) of a reduced angle, as fp32 bits.
MILLRACE_LANE uint32_t sineOf(Angle angle, uint32_t quadrantOffset) {
  // Taylor series; the first terms left out are below 2^-58.
  constexpr double s[] = {1.0,
                          -1.0 / 6,
                          1.0 / 120,
                          -1.0 / 5040,
                          1.0 / 362880,
                          -1.0 / 39916800,
                          1.0 / 6227020800,
                          -1.0 / 1307674368000,
                          1.0 / 355687428096000};
  constexpr double c[] = {1.0,
                          -1.0 / 2,
                          1.0 / 24,
                          -1.0 / 720,
                          1.0 / 40320,
                          -1.0 / 3628800,
                          1.0 / 479001600,
                          -1.0 / 87178291200,
                          1.0 / 20922789888000,
                          -1.0 / 6402373705728000};
  double square = angle.rest * angle.rest;
  double sine = angle.rest * polynomial(s, square);
  double cosine = polynomial(c, square);
  uint32_t quadrant = angle.quadrant + quadrantOffset;
  uint32_t bits = asBits(float(quadrant & 1 ? cosine : sine));
  return bits ^ (quadrant & 2 ? signBit : 0);
}

} // namespace millrace::semantics::lane

#endif // MILLRACE_ARCH_ISA_SEMANTICS_MATHLANE_H
