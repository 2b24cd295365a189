// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of a plane against ExactSum, bit by bit, for every format, instruction set and kind of
// data that has broken such kernels: cancellation, ties, subnormals, infinities, wide exponents.

#include "simulator/kernels/Gemm.h"
#include "arch/isa/semantics/ExactSum.h"
#include "tests/simulator/Formats.h"
#include <bit>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <thread>
#include <vector>

using namespace millrace;
using semantics::CpuLevel;
using sim::test::narrow;
using sim::test::widen;

namespace {

const CpuLevel levels[] = {CpuLevel::Portable, CpuLevel::Avx2, CpuLevel::Avx512,
                           CpuLevel::Avx512Vnni};
const ElementType floatFormats[] = {ElementType::Fp16, ElementType::Bf16, ElementType::E4M3,
                                    ElementType::E5M2};

const char *nameOfFormat(ElementType format) {
  switch (format) {
  case ElementType::Int8:
    return "int8";
  case ElementType::Fp16:
    return "fp16";
  case ElementType::Bf16:
    return "bf16";
  case ElementType::E4M3:
    return "e4m3";
  default:
    return "e5m2";
  }
}

/// Vectors of `lanes` values, as byte planes.
struct Vectors {
  size_t count, lanes;
  std::vector<uint8_t> low, high;
  Vectors(size_t count, size_t lanes)
      : count(count), lanes(lanes), low(count * lanes), high(count * lanes) {}
  void set(size_t vector, size_t lane, uint16_t bits) {
    low[vector * lanes + lane] = uint8_t(bits);
    high[vector * lanes + lane] = uint8_t(bits >> 8);
  }
  uint16_t get(size_t vector, size_t lane) const {
    return uint16_t(low[vector * lanes + lane] | high[vector * lanes + lane] << 8);
  }
  std::vector<ByteRow> rows(const std::vector<uint8_t> &bytes) const {
    std::vector<ByteRow> pointers;
    for (size_t i = 0; i < count; ++i)
      pointers.push_back(bytes.data() + i * lanes);
    return pointers;
  }
};

struct Problem {
  ElementType format;
  Vectors activations, weights; ///< rows; columns
  ProductRange range;

  Problem(ElementType format, size_t rows, size_t columns, size_t lanes)
      : format(format), activations(rows, lanes), weights(columns, lanes),
        range{0, unsigned(lanes), 0, unsigned(columns)} {}

  std::vector<uint32_t> truth() const {
    std::vector<uint32_t> out(activations.count * weights.count);
    for (size_t i = 0; i < activations.count; ++i)
      for (unsigned n = range.firstColumn; n < range.firstColumn + range.columnCount; ++n)
        out[i * weights.count + n] = element(i, n);
    return out;
  }
  uint32_t element(size_t row, size_t column) const {
    if (format == ElementType::Int8) {
      size_t lanes = activations.lanes;
      auto *a = reinterpret_cast<const int8_t *>(activations.low.data() + row * lanes);
      auto *b = reinterpret_cast<const int8_t *>(weights.low.data() + column * lanes);
      return uint32_t(semantics::int8Dot(a + range.k0, 1, b + range.k0, 1, range.k1 - range.k0));
    }
    semantics::ExactSum sum;
    for (size_t k = range.k0; k < range.k1; ++k)
      sum.addProduct(widen(format, activations.get(row, k)), widen(format, weights.get(column, k)));
    return std::bit_cast<uint32_t>(sum.rounded());
  }
  PlaneWeights plane(const std::vector<uint8_t> &bytes) const {
    PlaneWeights result(unsigned(weights.lanes), unsigned(weights.count));
    result.installColumns(0, unsigned(weights.count), bytes.data(), weights.lanes);
    return result;
  }
  std::vector<uint32_t> product(CpuLevel level, ProofCounters *counters = nullptr) const {
    PlaneWeights low = plane(weights.low), high = plane(weights.high);
    auto lowRows = activations.rows(activations.low), highRows = activations.rows(activations.high);
    std::vector<uint32_t> out(activations.count * weights.count, 0xdeadbeef);
    gemm(low, &high, format, lowRows.data(), highRows.data(), activations.count, range, out.data(),
         level, counters);
    return out;
  }
  void expectExact(const std::string &what) const {
    std::vector<uint32_t> expected = truth();
    for (CpuLevel level : levels) {
      std::vector<uint32_t> got = product(level);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], expected[i])
            << what << ", " << nameOfFormat(format) << ", level " << int(level) << ", row "
            << i / weights.count << ", column " << i % weights.count;
    }
  }
};

using Draw = std::function<float(std::mt19937 &)>;

float normal(std::mt19937 &random) { return std::normal_distribution<float>(0, 1)(random); }

const std::pair<const char *, Draw> dataSets[] = {
    {"normal", normal},
    {"half zeros", [](std::mt19937 &r) { return std::max(normal(r), 0.0f); }},
    {"coarse, many ties", [](std::mt19937 &r) { return 1 + float(r() % 8) / 8; }},
    {"wide exponents", [](std::mt19937 &r) { return std::ldexp(normal(r), int(r() % 25) - 12); }},
    {"very wide exponents",
     [](std::mt19937 &r) { return std::ldexp(normal(r), int(r() % 121) - 60); }},
    {"tiny", [](std::mt19937 &r) { return std::ldexp(normal(r), -int(r() % 20) - 60); }},
    {"signed zeros", [](std::mt19937 &r) { return r() % 2 ? -0.0f : 0.0f; }},
};

TEST(Gemm, FloatSumsAreRoundedOnceOnOrdinaryAndUnevenData) {
  std::mt19937 random(1);
  for (ElementType format : floatFormats)
    for (const auto &[name, draw] : dataSets) {
      Problem p(format, 13, 48, 96);
      for (Vectors *v : {&p.activations, &p.weights})
        for (size_t i = 0; i < v->count; ++i)
          for (size_t k = 0; k < v->lanes; ++k)
            v->set(i, k, narrow(format, draw(random)));
      p.expectExact(name);
    }
}

TEST(Gemm, FloatSumsAreRoundedOnceOnAllPatterns) {
  std::mt19937 random(2);
  for (ElementType format : floatFormats)
    for (int rate : {0, 1000, 4}) { // one value in `rate` may be infinite or NaN
      Problem p(format, 12, 32, 80);
      for (Vectors *v : {&p.activations, &p.weights})
        for (size_t i = 0; i < v->count; ++i)
          for (size_t k = 0; k < v->lanes; ++k) {
            uint16_t bits = uint16_t(random());
            bool special = rate && random() % rate == 0;
            while (!special && !std::isfinite(widen(format, bits)))
              bits = uint16_t(random());
            v->set(i, k, byteWidth(format) == 1 ? bits & 0xff : bits);
          }
      p.expectExact("all patterns");
    }
}

/// Pairs of lanes that cancel, and a small rest: at most one lane in ten survives.
void fillCancelling(Problem &p, std::mt19937 &random, int exponents) {
  size_t lanes = p.activations.lanes;
  for (size_t k = 0; k + 1 < lanes; k += 2) {
    for (size_t i = 0; i < p.activations.count; ++i) {
      uint16_t bits = narrow(p.format, std::ldexp(normal(random), int(random() % exponents)));
      p.activations.set(i, k, bits);
      p.activations.set(i, k + 1, bits);
    }
    for (size_t n = 0; n < p.weights.count; ++n) {
      float value = std::ldexp(normal(random), int(random() % exponents));
      uint16_t bits = narrow(p.format, value);
      uint16_t opposite = narrow(p.format, -widen(p.format, bits));
      bool rest = random() % 10 == 0;
      p.weights.set(n, k, bits);
      p.weights.set(n, k + 1, rest ? narrow(p.format, -value * 1.01f) : opposite);
    }
  }
}

TEST(Gemm, FloatSumsSurviveCancellation) {
  std::mt19937 random(3);
  for (ElementType format : floatFormats)
    for (int exponents : {1, 8, 14}) {
      Problem p(format, 12, 32, 90);
      fillCancelling(p, random, exponents);
      p.expectExact("cancellation");
    }
}

TEST(Gemm, ALastBitThatDecidesATieIsNeverLost) {
  // 2^e + 2^(e - 24), or 2^(e - 23) more, is a tie of fp32; what is left of (1 + 2^-7)^2 -
  // (1 + 2^-6), 2^-14, decides it. fp64 holds all of that up to e = 38, not beyond.
  for (int e = 24; e <= 120; ++e)
    for (bool odd : {false, true})
      for (float sign : {1.0f, -1.0f}) {
        Problem p(ElementType::Bf16, 1, 16, 5);
        auto lane = [&](size_t k, float activation, float weight) {
          p.activations.set(0, k, narrow(p.format, activation));
          for (size_t n = 0; n < 16; ++n)
            p.weights.set(n, k, narrow(p.format, weight));
        };
        auto power = [&](size_t k, int exponent) {
          lane(k, std::ldexp(1.0f, exponent / 2), std::ldexp(1.0f, exponent - exponent / 2));
        };
        power(0, e);
        power(1, e - 24);
        if (odd)
          power(2, e - 23);
        lane(3, 1 + 0x1p-7f, sign * (1 + 0x1p-7f));
        lane(4, 1 + 0x1p-6f, -sign);
        float below = std::ldexp(odd ? 1 + 0x1p-23f : 1.0f, e);
        float expected = sign > 0 ? std::nextafter(below, INFINITY) : below;
        ASSERT_EQ(std::bit_cast<float>(p.truth()[0]), expected);
        p.expectExact("e = " + std::to_string(e));
      }
}

TEST(Gemm, ThreeScalesThatCancelLeaveTheSmallest) {
  // Far enough apart, the small terms are lost by fp64 and then by the sum of its errors.
  std::mt19937 random(9);
  for (int gap = 10; gap <= 60; ++gap) {
    Problem p(ElementType::Bf16, 2, 16, 9);
    float scales[9] = {float(gap), gap / 2.0f, 0, 0, 0, 0, 0, float(gap), gap / 2.0f};
    for (size_t k = 0; k < 9; ++k)
      for (size_t i = 0; i < 2; ++i)
        p.activations.set(i, k, narrow(p.format, std::ldexp(1.0f, int(scales[k]))));
    for (size_t n = 0; n < 16; ++n)
      for (size_t k = 0; k < 9; ++k) {
        float small = std::ldexp(normal(random), -int(random() % 4));
        float value = k < 2 ? 1.0f : k < 7 ? small : -1.0f;
        p.weights.set(n, k, narrow(p.format, std::ldexp(value, int(scales[k]))));
      }
    p.expectExact("gap " + std::to_string(gap));
  }
}

TEST(Gemm, ASumThatNeedsOneBitMoreThanFp64HasIsNotTakenForExact) {
  // In units of the smallest lane's last bits the sum is 2^53 + 2^29 + 1: a half of fp32's last bit above 2^53, and 1 that
  // fp64 loses. Exponents span 36, within two of what is exact for 8 lanes of bf16: 53 - 2 x 8 - 3 = 34.
  Problem p(ElementType::Bf16, 1, 16, 8);
  const auto lane = [&](size_t k, float activation, float weight) {
    p.activations.set(0, k, narrow(p.format, activation));
    for (size_t n = 0; n < 16; ++n)
      p.weights.set(n, k, narrow(p.format, weight));
  };
  lane(0, 129, 129), lane(1, 130, -128); // 16641 - 16640
  lane(2, std::ldexp(128.0f, 8), std::ldexp(128.0f, 7));
  const float big = 0x1p18f;
  lane(3, 192 * big, 192 * big), lane(4, 192 * big, 192 * big), lane(5, 192 * big, 128 * big);
  lane(6, 128 * big, 128 * big), lane(7, 128 * big, 128 * big);
  ASSERT_EQ(std::bit_cast<float>(p.truth()[0]), 0x1p53f + 0x1p30f);
  p.expectExact("a bit beyond fp64");
}

TEST(Gemm, TheSlowestProofIsReached) {
  // One huge pair that cancels exactly and one lane at its rounding error: fp64 sees nothing.
  Problem p(ElementType::Bf16, 6, 32, 64);
  for (size_t i = 0; i < 6; ++i) {
    p.activations.set(i, 0, narrow(p.format, 0x1p60f));
    p.activations.set(i, 1, narrow(p.format, 0x1p60f));
    p.activations.set(i, 2, narrow(p.format, 0x1p-60f));
  }
  for (size_t n = 0; n < 32; ++n) {
    p.weights.set(n, 0, narrow(p.format, 0x1p60f));
    p.weights.set(n, 1, narrow(p.format, -0x1p60f));
    p.weights.set(n, 2, narrow(p.format, float(n)));
  }
  for (CpuLevel level : levels) {
    ProofCounters counters;
    EXPECT_TRUE(p.product(level, &counters) == p.truth()) << int(level);
    EXPECT_EQ(counters.outputs, 6u * 32);
    EXPECT_EQ(counters.ambiguous, 6u * 32);
    EXPECT_EQ(counters.recomputed, 6u * 32);
  }
}

TEST(Gemm, SumsThatOverflowFp32BecomeInfinity) {
  Problem p(ElementType::Bf16, 1, 16, 16);
  for (size_t k = 0; k < 2; ++k) {
    p.activations.set(0, k, narrow(p.format, 0x1p64f));
    for (size_t n = 0; n < 16; ++n)
      p.weights.set(n, k, narrow(p.format, n % 2 ? -0x1p63f : 0x1p63f));
  }
  p.expectExact("overflow");
  EXPECT_EQ(p.truth()[0], 0x7f800000u);
}

TEST(Gemm, Int8IsExactAtItsExtremes) {
  std::mt19937 random(4);
  for (int kind = 0; kind < 3; ++kind) {
    Problem p(ElementType::Int8, 14, 320, 320);
    for (Vectors *v : {&p.activations, &p.weights})
      for (uint8_t &byte : v->low)
        byte = kind == 0 ? uint8_t(random()) : kind == 1 ? 0x80 : random() % 2 ? 0x7f : 0x80;
    p.expectExact("int8");
  }
}

TEST(Gemm, EveryShapeAndRangeWorks) {
  std::mt19937 random(5);
  for (int round = 0; round < 120; ++round) {
    ElementType format = round % 2 ? ElementType::Int8 : floatFormats[round / 2 % 4];
    unsigned lanes = 1 + random() % 100;
    Problem p(format, 1 + random() % 55, 16 * (1 + random() % 9), lanes);
    for (Vectors *v : {&p.activations, &p.weights})
      for (size_t i = 0; i < v->count; ++i)
        for (size_t k = 0; k < lanes; ++k)
          v->set(i, k,
                 format == ElementType::Int8 ? random() & 0xff : narrow(format, normal(random)));
    unsigned groups = unsigned(p.weights.count / 16), first = random() % groups;
    p.range.firstColumn = 16 * first;
    p.range.columnCount = 16 * (random() % (groups - first + 1));
    p.range.k0 = random() % lanes;
    p.range.k1 = p.range.k0 + random() % (lanes - p.range.k0 + 1);
    p.expectExact("lanes " + std::to_string(p.range.k0) + " to " + std::to_string(p.range.k1) +
                  " of " + std::to_string(lanes) + ", columns " +
                  std::to_string(p.range.firstColumn) + " + " +
                  std::to_string(p.range.columnCount));
  }
}

TEST(Gemm, LanesOutsideTheRangeAreNotMultiplied) {
  // Infinity times zero there would be NaN.
  Problem p(ElementType::Fp16, 2, 16, 32);
  for (size_t i = 0; i < 2; ++i)
    for (size_t k = 0; k < 32; ++k)
      p.activations.set(i, k, narrow(p.format, k < 16 ? 1.0f : INFINITY));
  p.range.k1 = 16;
  for (CpuLevel level : levels)
    EXPECT_TRUE(p.product(level) == std::vector<uint32_t>(2 * 16, 0));
}

TEST(PlaneWeights, AnInstallAfterAProductIsSeenByTheNext) {
  PlaneWeights weights(32, 32);
  std::vector<uint8_t> row(32, 1), column(32, 2), other(32, 3);
  ByteRow rows[] = {row.data()};
  std::vector<uint32_t> out(32);
  auto product = [&] {
    gemm(weights, nullptr, ElementType::Int8, rows, nullptr, 1, 0, 32, out.data());
    return out;
  };
  EXPECT_EQ(product()[5], 0u) << "a new buffer holds zeros";
  weights.installColumns(5, 1, column.data(), 0);
  EXPECT_EQ(product()[5], 64u);
  EXPECT_EQ(out[4], 0u);
  weights.installColumns(4, 2, other.data(), 0);
  EXPECT_EQ(product()[5], 96u);
  EXPECT_EQ(out[4], 96u);
  weights.clear();
  EXPECT_TRUE(product() == std::vector<uint32_t>(32, 0));
}

TEST(PlaneWeights, AnInstallOfHighBytesIsSeenToo) {
  PlaneWeights low(16, 16), high(16, 16);
  std::vector<uint8_t> zero(16, 0), one(16, 0x3c), two(16, 0x40); // upper bytes of 1.0 and 2.0
  ByteRow lowRows[] = {zero.data()}, highRows[] = {one.data()};
  std::vector<uint32_t> out(16);
  for (auto [bytes, expected] : {std::pair{&one, 16.0f}, {&two, 32.0f}}) {
    high.installColumns(0, 16, bytes->data(), 0);
    gemm(low, &high, ElementType::Fp16, lowRows, highRows, 1, 0, 16, out.data());
    EXPECT_EQ(std::bit_cast<float>(out[7]), expected);
  }
}

TEST(PlaneWeights, KeepTheFourPackingsMadeLastUntilAnInstallIntoTheirColumns) {
  const unsigned lanes = 32, columns = 96;
  PlaneWeights weights(lanes, columns);
  const auto packing = [&](unsigned group) {
    return weights.packed(nullptr, ElementType::Int8, {0, lanes, 16 * group, 16}, CpuLevel::Portable);
  };
  const std::vector<uint8_t> column(lanes, 3);
  const auto first = packing(0), second = packing(1);
  EXPECT_EQ(packing(0), first);
  weights.installColumns(0, 16, column.data(), 0);
  EXPECT_EQ(packing(1), second) << "of the other columns";
  EXPECT_NE(packing(0), first);
  weights.installColumns(15, 1, column.data(), 0);
  EXPECT_EQ(packing(1), second);
  std::weak_ptr<const PackedWeights> oldest = packing(2);
  for (unsigned group : {3, 4, 5, 0})
    packing(group);
  EXPECT_TRUE(oldest.expired()) << "there are four others";
  std::weak_ptr<const PackedWeights> kept = packing(1);
  for (unsigned group : {2, 3, 4})
    packing(group);
  EXPECT_FALSE(kept.expired());
}

TEST(PlaneWeights, TwoThreadsMayMultiplyByOneBuffer) {
  std::mt19937 random(6);
  Problem p(ElementType::Bf16, 40, 64, 64);
  for (Vectors *v : {&p.activations, &p.weights})
    for (size_t i = 0; i < v->count; ++i)
      for (size_t k = 0; k < 64; ++k)
        v->set(i, k, narrow(p.format, normal(random)));
  PlaneWeights low = p.plane(p.weights.low), high = p.plane(p.weights.high);
  auto lowRows = p.activations.rows(p.activations.low);
  auto highRows = p.activations.rows(p.activations.high);
  std::vector<uint32_t> expected = p.truth(), out(expected.size());
  auto half = [&](size_t first) {
    for (int repeat = 0; repeat < 20; ++repeat)
      gemm(low, &high, p.format, lowRows.data() + first, highRows.data() + first, 20, 0, 64,
           out.data() + first * 64);
  };
  std::thread other(half, 20);
  half(0);
  other.join();
  EXPECT_TRUE(out == expected);
}

TEST(Gemm, AccumulationWrapsInt32AndRoundsFp32) {
  uint32_t accumulators[] = {0x7fffffff, 5}, products[] = {1, uint32_t(-7)};
  accumulateRows(ElementType::Int8, products, accumulators, 2);
  EXPECT_EQ(accumulators[0], 0x80000000u);
  EXPECT_EQ(int32_t(accumulators[1]), -2);
  uint32_t sums[] = {std::bit_cast<uint32_t>(0x1p24f), std::bit_cast<uint32_t>(INFINITY)};
  uint32_t terms[] = {std::bit_cast<uint32_t>(1.0f), std::bit_cast<uint32_t>(-INFINITY)};
  accumulateRows(ElementType::Fp16, terms, sums, 2);
  EXPECT_EQ(std::bit_cast<float>(sums[0]), 0x1p24f);
  EXPECT_EQ(sums[1], 0x7fc00000u);
}

} // namespace
