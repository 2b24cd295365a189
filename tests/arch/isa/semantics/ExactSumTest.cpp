// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ExactSum against a rational truth made with arbitrary-precision integers, which shares no code
// with it.

#include "arch/isa/semantics/ExactSum.h"
#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

using namespace millrace::semantics;
using boost::multiprecision::cpp_int;

namespace {

constexpr int unit = -300; ///< all sums in units of 2^-300

cpp_int scaled(double value) {
  int exponent;
  double fraction = std::frexp(value, &exponent);
  cpp_int mantissa = int64_t(std::ldexp(fraction, 53));
  int shift = exponent - 53 - unit;
  return shift >= 0 ? cpp_int(mantissa << shift) : cpp_int(mantissa / (cpp_int(1) << -shift));
}

/// The fp32 value nearest to sum * 2^unit, found by bisection over the patterns of fp32.
float nearest(const cpp_int &sum) {
  cpp_int magnitude = sum < 0 ? cpp_int(-sum) : sum;
  auto valueOf = [](uint32_t bits) {
    return bits == 0x7f800000 ? cpp_int(cpp_int(1) << (128 - unit))
                              : scaled(std::bit_cast<float>(bits));
  };
  uint32_t low = 0, high = 0x7f7fffff;
  while (low < high) {
    uint32_t middle = low + (high - low + 1) / 2;
    if (valueOf(middle) <= magnitude)
      low = middle;
    else
      high = middle - 1;
  }
  cpp_int distance = 2 * magnitude - valueOf(low) - valueOf(low + 1);
  uint32_t bits = low + (distance > 0 || (distance == 0 && (low & 1)));
  float value = std::bit_cast<float>(bits);
  return sum < 0 ? -value : value;
}

float truth(const std::vector<float> &a, const std::vector<float> &b) {
  cpp_int sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += scaled(a[i]) * scaled(b[i]); // in units of 2^(2 * unit)
  // Every product is a multiple of 2^-298, so nothing is lost here.
  return nearest(cpp_int(sum / (cpp_int(1) << -unit)));
}

void expectTruth(const std::vector<float> &a, const std::vector<float> &b) {
  float got = exactDot(a.data(), 1, b.data(), 1, a.size());
  ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(truth(a, b)));
}

float finite(std::mt19937 &random) {
  for (;;) {
    float value = std::bit_cast<float>(uint32_t(random()));
    if (std::isfinite(value))
      return value;
  }
}

TEST(ExactSum, EqualsArbitraryPrecisionOnRandomValues) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 600; ++round) {
    std::vector<float> a, b;
    for (int i = 0; i < 1 + round % 40; ++i) {
      a.push_back(round % 2 ? normal(random) : finite(random));
      b.push_back(round % 2 ? normal(random) : finite(random));
    }
    expectTruth(a, b);
  }
}

TEST(ExactSum, SurvivesCancellationDownToTheLastBit) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> a, b;
    for (int i = 0; i < 20; ++i) {
      float x = finite(random), y = finite(random);
      a.insert(a.end(), {x, -x});
      b.insert(b.end(), {y, y});
    }
    a.push_back(std::ldexp(float(random() % 7), int(random() % 270) - 149));
    b.push_back(1.0f);
    expectTruth(a, b);
  }
}

TEST(ExactSum, RoundsTiesToEvenIncludingSubnormals) {
  const float half = 0x1p-24f, tiny = 0x1p-149f;
  EXPECT_EQ(exactDot(std::vector{1.0f, half}.data(), 1, std::vector{1.0f, 1.0f}.data(), 1, 2),
            1.0f);
  expectTruth({1.0f, half, tiny}, {1.0f, 1.0f, tiny});
  EXPECT_EQ(
      exactDot(std::vector{1.0f, half, tiny}.data(), 1, std::vector{1.0f, 1.0f, tiny}.data(), 1, 3),
      1.0f + 0x1p-23f);
  expectTruth({tiny}, {0.5f});                            // a tie with zero
  expectTruth({tiny, tiny}, {0.5f, tiny});                // just above it
  expectTruth({tiny, tiny}, {1.5f, 0});                   // a tie, to 2 units
  expectTruth({0x1.fffffep127f}, {1.0f});                 // the largest value
  expectTruth({0x1.fffffep127f, 0x1p103f}, {1.0f, 1.0f}); // a tie with infinity
  expectTruth({0x1.fffffep127f}, {-2.0f});
}

TEST(ExactSum, AnExactZeroIsPositive) {
  for (auto [x, y] : {std::pair{0.0f, -1.0f}, {-0.0f, 1.0f}, {-0x1p-149f, 0.0f}}) {
    ExactSum sum;
    sum.addProduct(x, y);
    EXPECT_EQ(std::bit_cast<uint32_t>(sum.rounded()), 0u);
  }
  ExactSum sum;
  sum.addProduct(3, 5);
  sum.addProduct(-5, 3);
  EXPECT_EQ(std::bit_cast<uint32_t>(sum.rounded()), 0u);
}

TEST(ExactSum, InfinityAndNanFollowIeee) {
  auto sumOf = [](std::vector<float> a, std::vector<float> b) {
    return exactDot(a.data(), 1, b.data(), 1, a.size());
  };
  auto bitsOf = [](float value) { return std::bit_cast<uint32_t>(value); };
  const float infinity = INFINITY;
  EXPECT_EQ(sumOf({infinity, 1}, {2, -5}), infinity);
  EXPECT_EQ(sumOf({infinity, 1}, {-2, 5}), -infinity);
  EXPECT_EQ(bitsOf(sumOf({infinity, infinity}, {1, -1})), 0x7fc00000u);
  EXPECT_EQ(bitsOf(sumOf({infinity}, {0})), 0x7fc00000u);
  EXPECT_EQ(bitsOf(sumOf({-NAN, 1}, {1, 1})), 0x7fc00000u);
}

TEST(ExactSum, Int8DotIsExact) {
  std::vector<int8_t> a(320, -128), b(320, -128);
  EXPECT_EQ(int8Dot(a.data(), 1, b.data(), 1, 320), 320 * 16384);
  EXPECT_EQ(int8Dot(a.data(), 2, b.data(), 1, 3), 3 * 16384);
}

} // namespace
