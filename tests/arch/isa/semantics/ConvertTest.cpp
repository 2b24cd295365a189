// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions against a decoder and a rounding rule written here from the formats' definitions.

#include "arch/isa/semantics/Convert.h"
#include "arch/isa/semantics/RowKernels.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

using namespace millrace::semantics;

namespace {

struct Format {
  const char *name;
  int exponentBits, mantissaBits;
  bool hasInfinity;
  uint32_t nan;
  float (*widen)(uint32_t);
  uint32_t (*narrow)(float);

  uint32_t signBit() const { return 1u << (exponentBits + mantissaBits); }

  /// By the definition of the format, with ldexp.
  double decode(uint32_t bits) const {
    int bias = (1 << (exponentBits - 1)) - 1;
    uint32_t mantissa = bits & ((1u << mantissaBits) - 1);
    int exponent = int(bits >> mantissaBits & ((1u << exponentBits) - 1));
    double sign = bits & signBit() ? -1 : 1;
    bool top = exponent == (1 << exponentBits) - 1;
    if (hasInfinity && top)
      return mantissa ? std::nan("") : sign * std::numeric_limits<double>::infinity();
    if (!hasInfinity && top && mantissa == (1u << mantissaBits) - 1)
      return std::nan("");
    if (exponent == 0)
      return sign * std::ldexp(mantissa, 1 - bias - mantissaBits);
    return sign * std::ldexp(mantissa + (1u << mantissaBits), exponent - bias - mantissaBits);
  }
  uint32_t largest() const {
    uint32_t top = signBit() - 1;
    return hasInfinity ? top - (1u << mantissaBits) : top - 1;
  }
};

const Format formats[] = {
    {"fp16", 5, 10, true, 0x7e00, [](uint32_t b) { return fp16ToFp32(uint16_t(b)); },
     [](float f) { return uint32_t(fp32ToFp16(f)); }},
    {"bf16", 8, 7, true, 0x7fc0, [](uint32_t b) { return bf16ToFp32(uint16_t(b)); },
     [](float f) { return uint32_t(fp32ToBf16(f)); }},
    {"e4m3", 4, 3, false, 0x7f, [](uint32_t b) { return e4m3ToFp32(uint8_t(b)); },
     [](float f) { return uint32_t(fp32ToE4m3(f)); }},
    {"e5m2", 5, 2, true, 0x7e, [](uint32_t b) { return e5m2ToFp32(uint8_t(b)); },
     [](float f) { return uint32_t(fp32ToE5m2(f)); }},
};

/// Bits nearest to a finite value: among neighbours the nearer, at a tie the even one.
uint32_t nearest(const Format &f, float value) {
  uint32_t sign = std::signbit(value) ? f.signBit() : 0;
  double magnitude = std::fabs(double(value));
  uint32_t low = 0, high = f.largest(); // greatest pattern not above the magnitude
  while (low < high) {
    uint32_t middle = (low + high + 1) / 2;
    if (f.decode(middle) <= magnitude)
      low = middle;
    else
      high = middle - 1;
  }
  double below = f.decode(low);
  // The next pattern, as if the exponents went on above the largest.
  double above = low == f.largest() ? below + (below - f.decode(low - 1)) : f.decode(low + 1);
  double distance = (magnitude - below) - (above - magnitude); // exact
  bool up = distance > 0 || (distance == 0 && (low & 1));
  if (up && low == f.largest())
    return f.hasInfinity ? sign | (f.largest() + 1) : f.nan;
  return sign | (low + up);
}

/// fp32 values where rounding is delicate: around every value of the format and every midpoint.
std::vector<float> delicate(const Format &f) {
  std::vector<float> values;
  auto around = [&](double v) {
    float x = float(v);
    for (float y : {x, std::nextafter(x, INFINITY), std::nextafter(x, -INFINITY)}) {
      values.push_back(y);
      values.push_back(-y);
    }
  };
  for (uint32_t bits = 0; bits <= f.largest(); ++bits) {
    double v = f.decode(bits);
    double next = bits == f.largest() ? 2 * v - f.decode(bits - 1) : f.decode(bits + 1);
    around(v);
    around(v + (next - v) / 2);
    around(next);
  }
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i)
    values.push_back(std::bit_cast<float>(uint32_t(random())));
  for (float v : {0.0f, -0.0f, INFINITY, -INFINITY, 0x1p-149f, -0x1p-149f, 0x1.fffffep127f})
    values.push_back(v);
  return values;
}

TEST(Convert, WideningEqualsTheFormatsDefinitionForEveryPattern) {
  for (const Format &f : formats)
    for (uint32_t bits = 0; bits < 2 * f.signBit(); ++bits) {
      double expected = f.decode(bits);
      float got = f.widen(bits);
      if (std::isnan(expected))
        ASSERT_EQ(std::bit_cast<uint32_t>(got), canonicalNanBits) << f.name << " " << bits;
      else
        ASSERT_EQ(std::bit_cast<uint64_t>(double(got)), std::bit_cast<uint64_t>(expected))
            << f.name << " " << bits;
    }
}

TEST(Convert, NarrowingRoundsToTheNearestEvenValue) {
  for (const Format &f : formats)
    for (float value : delicate(f)) {
      uint32_t expected = f.nan;
      if (std::isinf(value))
        expected =
            f.hasInfinity ? (std::signbit(value) ? f.signBit() : 0) | (f.largest() + 1) : f.nan;
      else if (!std::isnan(value))
        expected = nearest(f, value);
      uint32_t got = f.narrow(value);
      ASSERT_EQ(got, expected) << f.name << " of " << std::hexfloat << value;
    }
}

TEST(Convert, SaturatingFp8ClampsWhatOverflows) {
  EXPECT_EQ(e4m3ToFp32(fp32ToE4m3Saturating(1e9f)), 448.0f);
  EXPECT_EQ(e4m3ToFp32(fp32ToE4m3Saturating(-INFINITY)), -448.0f);
  EXPECT_EQ(e5m2ToFp32(fp32ToE5m2Saturating(INFINITY)), 57344.0f);
  EXPECT_EQ(e5m2ToFp32(fp32ToE5m2Saturating(-61440.0f)), -57344.0f);
  EXPECT_EQ(fp32ToE4m3Saturating(NAN), 0x7f);
  EXPECT_EQ(fp32ToE5m2Saturating(NAN), 0x7e);
  for (float v : {0.1f, -3.3f, 447.0f, 0x1p-9f})
    EXPECT_EQ(fp32ToE4m3Saturating(v), fp32ToE4m3(v));
}

TEST(Convert, WhatIsFiniteStaysFiniteAndInfinitiesStay) {
  EXPECT_EQ(fp32ToFp16Finite(1e9f), 0x7bff);
  EXPECT_EQ(fp32ToFp16Finite(-65520.0f), 0xfbff); // halfway to what would be infinity
  EXPECT_EQ(fp32ToFp16Finite(INFINITY), 0x7c00);
  EXPECT_EQ(fp32ToFp16Finite(-INFINITY), 0xfc00);
  EXPECT_EQ(fp32ToFp16Finite(NAN), 0x7e00);
  EXPECT_EQ(fp32ToBf16Finite(-std::numeric_limits<float>::max()), 0xff7f);
  EXPECT_EQ(fp32ToBf16Finite(INFINITY), 0x7f80);
  for (float v : {0.1f, -3.3f, 65504.0f, 0x1p-24f, -0.0f}) {
    EXPECT_EQ(fp32ToFp16Finite(v), fp32ToFp16(v));
    EXPECT_EQ(fp32ToBf16Finite(v), fp32ToBf16(v));
  }
}

TEST(Convert, IntegersRoundToEvenAndSaturate) {
  EXPECT_EQ(fp32ToInt8(2.5f), 2);
  EXPECT_EQ(fp32ToInt8(3.5f), 4);
  EXPECT_EQ(fp32ToInt8(-2.5f), -2);
  EXPECT_EQ(fp32ToInt8(127.5f), 127);
  EXPECT_EQ(fp32ToInt8(-1e30f), -128);
  EXPECT_EQ(fp32ToInt8(NAN), 0);
  EXPECT_EQ(fp32ToUint8(-0.6f), 0);
  EXPECT_EQ(fp32ToUint8(254.5f), 254);
  EXPECT_EQ(fp32ToUint8(INFINITY), 255);
  EXPECT_EQ(fp32ToUint8(NAN), 0);
  EXPECT_EQ(fp32ToInt32(0x1p31f), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(fp32ToInt32(-0x1p31f), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(fp32ToInt32(2147483520.0f), 2147483520);
  EXPECT_EQ(fp32ToInt32(NAN), 0);
  EXPECT_EQ(int32ToFp32(16777217), 16777216.0f);
  EXPECT_EQ(int32ToInt8(-1000), -128);
  EXPECT_EQ(int32ToUint8(-1), 0);
  EXPECT_EQ(int32ToUint8(256), 255);
  std::mt19937 random(3);
  for (int i = 0; i < 100000; ++i) {
    float v = std::bit_cast<float>(uint32_t(random()));
    if (std::isnan(v))
      continue;
    double rounded = std::nearbyint(double(v));
    ASSERT_EQ(fp32ToInt8(v), std::clamp(rounded, -128.0, 127.0)) << v;
    ASSERT_EQ(fp32ToUint8(v), std::clamp(rounded, 0.0, 255.0)) << v;
    ASSERT_EQ(fp32ToInt32(v), std::clamp(rounded, -2147483648.0, 2147483647.0)) << v;
  }
}

/// Random bits that hit every exponent, plus the delicate values of fp16.
std::vector<uint32_t> patterns() {
  std::vector<uint32_t> bits;
  for (float v : delicate(formats[0]))
    bits.push_back(std::bit_cast<uint32_t>(v));
  bits.resize(bits.size() / 64 * 64 + 13); // a row whose end fills no vector
  return bits;
}

template <class From, class To, class Row>
void expectSameRows(const std::vector<uint32_t> &bits, Row row, const char *name) {
  std::vector<From> in(bits.begin(), bits.end());
  std::vector<To> expected(in.size());
  (rowKernels(CpuLevel::Portable).*row)(in.data(), expected.data(), in.size());
  for (CpuLevel level : {CpuLevel::Avx2, CpuLevel::Avx512}) {
    std::vector<To> got(in.size());
    (rowKernels(level).*row)(in.data(), got.data(), in.size());
    EXPECT_TRUE(got == expected) << name << " at level " << int(level);
  }
}

TEST(Convert, EveryInstructionSetGivesTheSameBits) {
  using K = RowKernels;
  auto bits = patterns();
  expectSameRows<uint16_t, uint32_t>(bits, &K::fp16ToFp32, "fp16ToFp32");
  expectSameRows<uint16_t, uint32_t>(bits, &K::bf16ToFp32, "bf16ToFp32");
  expectSameRows<uint8_t, uint32_t>(bits, &K::e4m3ToFp32, "e4m3ToFp32");
  expectSameRows<uint8_t, uint32_t>(bits, &K::e5m2ToFp32, "e5m2ToFp32");
  expectSameRows<uint32_t, uint16_t>(bits, &K::fp32ToFp16, "fp32ToFp16");
  expectSameRows<uint32_t, uint16_t>(bits, &K::fp32ToBf16, "fp32ToBf16");
  expectSameRows<uint32_t, uint16_t>(bits, &K::fp32ToFp16Finite, "fp32ToFp16Finite");
  expectSameRows<uint32_t, uint16_t>(bits, &K::fp32ToBf16Finite, "fp32ToBf16Finite");
  expectSameRows<uint32_t, uint8_t>(bits, &K::fp32ToE4m3, "fp32ToE4m3");
  expectSameRows<uint32_t, uint8_t>(bits, &K::fp32ToE4m3Saturating, "fp32ToE4m3Saturating");
  expectSameRows<uint32_t, uint8_t>(bits, &K::fp32ToE5m2, "fp32ToE5m2");
  expectSameRows<uint32_t, uint8_t>(bits, &K::fp32ToE5m2Saturating, "fp32ToE5m2Saturating");
  expectSameRows<uint32_t, uint8_t>(bits, &K::fp32ToInt8, "fp32ToInt8");
  expectSameRows<uint32_t, uint8_t>(bits, &K::fp32ToUint8, "fp32ToUint8");
  expectSameRows<uint32_t, uint32_t>(bits, &K::fp32ToInt32, "fp32ToInt32");
  expectSameRows<uint32_t, uint32_t>(bits, &K::int32ToFp32, "int32ToFp32");
  expectSameRows<uint32_t, uint8_t>(bits, &K::int32ToInt8, "int32ToInt8");
  expectSameRows<uint32_t, uint8_t>(bits, &K::int32ToUint8, "int32ToUint8");
}

TEST(Convert, RowsEqualScalars) {
  auto bits = patterns();
  std::vector<float> in(bits.size());
  for (size_t i = 0; i < bits.size(); ++i)
    in[i] = std::bit_cast<float>(bits[i]);
  std::vector<uint16_t> half(in.size());
  std::vector<int8_t> byte(in.size());
  fp32ToFp16(in.data(), half.data(), in.size());
  fp32ToInt8(in.data(), byte.data(), in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(half[i], fp32ToFp16(in[i])) << in[i];
    ASSERT_EQ(byte[i], fp32ToInt8(in[i])) << in[i];
  }
}

TEST(Convert, BytesJoinLowestFirstAndSplitBack) {
  constexpr size_t lanes = 37;
  std::vector<uint8_t> in[4], out[4];
  const uint8_t *inRows[4];
  uint8_t *outRows[4];
  std::mt19937 random(5);
  for (int byte = 0; byte < 4; ++byte) {
    for (size_t i = 0; i < lanes; ++i)
      in[byte].push_back(uint8_t(random()));
    out[byte].resize(lanes);
    inRows[byte] = in[byte].data();
    outRows[byte] = out[byte].data();
  }
  for (unsigned width = 1; width <= 4; ++width) {
    std::vector<uint32_t> joined(lanes);
    joinBytes(inRows, width, joined.data(), lanes);
    for (size_t i = 0; i < lanes; ++i) {
      uint32_t expected = 0;
      for (unsigned byte = 0; byte < width; ++byte)
        expected += uint32_t(in[byte][i]) * (1u << (8 * byte));
      ASSERT_EQ(joined[i], expected);
    }
    splitBytes(joined.data(), width, outRows, lanes);
    for (unsigned byte = 0; byte < width; ++byte)
      EXPECT_EQ(out[byte], in[byte]);
  }
}

} // namespace
