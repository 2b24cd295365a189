// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ALU operations against IEEE arithmetic of the host compiler, against the C library's 80-bit
// functions (transcendentals), and each instruction set against the others.

#include "arch/isa/semantics/Alu.h"
#include "arch/isa/semantics/RowKernels.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

using namespace millrace;
using namespace millrace::semantics;

namespace {

constexpr uint32_t nanBits = 0x7fc00000;

uint32_t bitsOf(float value) { return std::bit_cast<uint32_t>(value); }
float floatOf(uint32_t bits) { return std::bit_cast<float>(bits); }
float apply(AluOp op, float a, float b = 0, float c = 0) {
  return floatOf(applyAlu(op, bitsOf(a), bitsOf(b), bitsOf(c)));
}

const std::vector<uint32_t> specials = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x80800000, 0x3f800000,
    0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001,
    0x3f000000, 0x3fc00000, 0x40200000, 0xc0200000, 0x4b000000, 0x4b7fffff, 0x4effffff, 0x4f000000,
    0xcf000000, 0x497fffff, 0x49800000, 0x49800001, 0x3f7fffff, 0x3f800001, 0x00000020, 0x0000001f};

/// Every pair of special values, then random patterns of all magnitudes.
struct Operands {
  std::vector<uint32_t> a, b, c;
  Operands() {
    std::mt19937 random(11);
    for (uint32_t x : specials)
      for (uint32_t y : specials) {
        a.push_back(x);
        b.push_back(y);
        c.push_back(random());
      }
    std::normal_distribution<float> normal(0, 3);
    for (int i = 0; i < 20000; ++i) {
      bool ordinary = i & 1;
      a.push_back(ordinary ? bitsOf(normal(random)) : uint32_t(random()));
      b.push_back(ordinary ? bitsOf(normal(random)) : uint32_t(random()));
      c.push_back(random());
    }
    a.resize(a.size() / 16 * 16 + 5, 0); // rows whose end fills no vector
    b.resize(a.size(), 0);
    c.resize(a.size(), 0);
  }
};

TEST(Alu, EveryInstructionSetGivesTheSameBits) {
  Operands x;
  for (const AluOpInfo &info : aluOpTable) {
    std::vector<uint32_t> expected(x.a.size()), got(x.a.size());
    size_t op = size_t(info.op);
    rowKernelsPortable.alu[op](x.a.data(), x.b.data(), x.c.data(), expected.data(), x.a.size());
    for (CpuLevel level : {CpuLevel::Avx2, CpuLevel::Avx512}) {
      rowKernels(level).alu[op](x.a.data(), x.b.data(), x.c.data(), got.data(), got.size());
      EXPECT_TRUE(got == expected) << info.mnemonic << " at level " << int(level);
    }
    for (size_t i = 0; i < got.size(); i += 7)
      ASSERT_EQ(applyAlu(info.op, x.a[i], x.b[i], x.c[i]), expected[i]) << info.mnemonic;
  }
}

TEST(Alu, ARowMayBeWrittenOverItsOperand) {
  Operands x;
  for (AluOp op : {AluOp::ExpF32, AluOp::SinF32, AluOp::AddF32, AluOp::SelectI32}) {
    std::vector<uint32_t> expected(x.a.size()), inPlace = x.a;
    applyAlu(op, x.a.data(), x.b.data(), x.c.data(), expected.data(), x.a.size());
    applyAlu(op, inPlace.data(), x.b.data(), x.c.data(), inPlace.data(), x.a.size());
    EXPECT_TRUE(inPlace == expected) << aluOpInfo(op).mnemonic;
  }
}

TEST(Alu, AnFp32ResultThatIsNanIsCanonical) {
  Operands x;
  for (const AluOpInfo &info : aluOpTable) {
    if (info.result != LaneType::F32)
      continue;
    for (size_t i = 0; i < x.a.size(); ++i) {
      uint32_t result = applyAlu(info.op, x.a[i], x.b[i], x.c[i]);
      if (std::isnan(floatOf(result))) {
        ASSERT_EQ(result, nanBits) << info.mnemonic;
      }
    }
  }
}

TEST(Alu, UnusedOperandsAreNotRead) {
  uint32_t a = bitsOf(2.0f), b = bitsOf(3.0f), out = 0;
  applyAlu(AluOp::NegF32, &a, nullptr, nullptr, &out, 1);
  EXPECT_EQ(floatOf(out), -2.0f);
  applyAlu(AluOp::MulF32, &a, &b, nullptr, &out, 1);
  EXPECT_EQ(floatOf(out), 6.0f);
}

/// Equal, or both NaN.
void expectSame(AluOp op, uint32_t got, float expected, uint32_t a, uint32_t b) {
  uint32_t want = std::isnan(expected) ? nanBits : bitsOf(expected);
  ASSERT_EQ(got, want) << aluOpInfo(op).mnemonic << std::hex << " of " << a << " and " << b;
}

TEST(Alu, Fp32ArithmeticIsIeee) {
  Operands x;
  for (size_t i = 0; i < x.a.size(); ++i) {
    uint32_t a = x.a[i], b = x.b[i];
    // volatile: computed at run time, in fp32.
    volatile float fa = floatOf(a), fb = floatOf(b);
    expectSame(AluOp::AddF32, applyAlu(AluOp::AddF32, a, b), fa + fb, a, b);
    expectSame(AluOp::SubF32, applyAlu(AluOp::SubF32, a, b), fa - fb, a, b);
    expectSame(AluOp::MulF32, applyAlu(AluOp::MulF32, a, b), fa * fb, a, b);
    expectSame(AluOp::DivF32, applyAlu(AluOp::DivF32, a, b), fa / fb, a, b);
    expectSame(AluOp::RcpF32, applyAlu(AluOp::RcpF32, a), 1.0f / fa, a, b);
    expectSame(AluOp::SqrtF32, applyAlu(AluOp::SqrtF32, a), std::sqrt(fa), a, b);
    expectSame(AluOp::FloorF32, applyAlu(AluOp::FloorF32, a), std::floor(fa), a, b);
    expectSame(AluOp::CeilF32, applyAlu(AluOp::CeilF32, a), std::ceil(fa), a, b);
    expectSame(AluOp::RoundF32, applyAlu(AluOp::RoundF32, a), std::nearbyint(fa), a, b);
    expectSame(AluOp::TruncF32, applyAlu(AluOp::TruncF32, a), std::trunc(fa), a, b);
    expectSame(AluOp::NegF32, applyAlu(AluOp::NegF32, a), -fa, a, b);
    expectSame(AluOp::AbsF32, applyAlu(AluOp::AbsF32, a), std::fabs(fa), a, b);
    expectSame(AluOp::EqF32, applyAlu(AluOp::EqF32, a, b), fa == fb, a, b);
    expectSame(AluOp::NeF32, applyAlu(AluOp::NeF32, a, b), fa != fb, a, b);
    expectSame(AluOp::LtF32, applyAlu(AluOp::LtF32, a, b), fa < fb, a, b);
    expectSame(AluOp::LeF32, applyAlu(AluOp::LeF32, a, b), fa <= fb, a, b);
    expectSame(AluOp::GtF32, applyAlu(AluOp::GtF32, a, b), fa > fb, a, b);
    expectSame(AluOp::GeF32, applyAlu(AluOp::GeF32, a, b), fa >= fb, a, b);
  }
}

TEST(Alu, MaximumAndMinimumOrderZerosAndLetNanWin) {
  EXPECT_EQ(applyAlu(AluOp::MaxF32, bitsOf(-0.0f), bitsOf(0.0f)), bitsOf(0.0f));
  EXPECT_EQ(applyAlu(AluOp::MaxF32, bitsOf(0.0f), bitsOf(-0.0f)), bitsOf(0.0f));
  EXPECT_EQ(applyAlu(AluOp::MinF32, bitsOf(0.0f), bitsOf(-0.0f)), bitsOf(-0.0f));
  EXPECT_EQ(applyAlu(AluOp::MaxF32, bitsOf(-0.0f), bitsOf(-0.0f)), bitsOf(-0.0f));
  EXPECT_EQ(applyAlu(AluOp::MaxF32, 0x7f800001, bitsOf(1.0f)), nanBits);
  EXPECT_EQ(applyAlu(AluOp::MinF32, bitsOf(1.0f), 0xffc00000), nanBits);
  EXPECT_EQ(apply(AluOp::MaxF32, -3, 2), 2);
  EXPECT_EQ(apply(AluOp::MinF32, -3, 2), -3);
  EXPECT_EQ(apply(AluOp::MaxF32, 7, 7), 7);
  EXPECT_EQ(applyAlu(AluOp::ReluF32, bitsOf(-0.0f)), bitsOf(0.0f));
  EXPECT_EQ(apply(AluOp::ReluF32, -5), 0);
  EXPECT_EQ(applyAlu(AluOp::ReluF32, 0xffc00000), nanBits);
  EXPECT_EQ(applyAlu(AluOp::SignF32, bitsOf(-0.0f)), 0u);
  EXPECT_EQ(apply(AluOp::SignF32, -0x1p-149f), -1);
}

TEST(Alu, IntegerArithmeticIsModuloTwoToThe32) {
  Operands x;
  for (size_t i = 0; i < x.a.size(); ++i) {
    uint32_t a = x.a[i], b = x.b[i];
    int64_t wideA = int32_t(a), wideB = int32_t(b);
    auto check = [&](AluOp op, int64_t expected) {
      ASSERT_EQ(applyAlu(op, a, b), uint32_t(uint64_t(expected)))
          << aluOpInfo(op).mnemonic << " of " << wideA << " and " << wideB;
    };
    check(AluOp::AddI32, wideA + wideB);
    check(AluOp::SubI32, wideA - wideB);
    check(AluOp::MulI32, wideA * wideB);
    check(AluOp::DivI32, wideB == 0 ? 0 : wideA / wideB);
    check(AluOp::MaxI32, std::max(wideA, wideB));
    check(AluOp::MinI32, std::min(wideA, wideB));
    check(AluOp::NegI32, -wideA);
    check(AluOp::AbsI32, std::abs(wideA));
    check(AluOp::ReluI32, std::max<int64_t>(wideA, 0));
    check(AluOp::SignI32, (wideA > 0) - (wideA < 0));
    check(AluOp::EqI32, wideA == wideB);
    check(AluOp::NeI32, wideA != wideB);
    check(AluOp::LtI32, wideA < wideB);
    check(AluOp::LeI32, wideA <= wideB);
    check(AluOp::GtI32, wideA > wideB);
    check(AluOp::GeI32, wideA >= wideB);
    check(AluOp::And, a & b);
    check(AluOp::Or, a | b);
    check(AluOp::Xor, a ^ b);
    check(AluOp::Not, ~a);
    check(AluOp::Pass, a);
  }
}

TEST(Alu, ShiftsBeyondTheWordEmptyIt) {
  EXPECT_EQ(applyAlu(AluOp::ShiftLeft, 0x80000001, 1), 2u);
  EXPECT_EQ(applyAlu(AluOp::ShiftLeft, 1, 31), 0x80000000u);
  EXPECT_EQ(applyAlu(AluOp::ShiftLeft, 1, 32), 0u);
  EXPECT_EQ(applyAlu(AluOp::ShiftRightLogical, 0x80000000, 31), 1u);
  EXPECT_EQ(applyAlu(AluOp::ShiftRightLogical, 0x80000000, 33), 0u);
  EXPECT_EQ(applyAlu(AluOp::ShiftRightArithmetic, 0x80000000, 31), 0xffffffffu);
  EXPECT_EQ(applyAlu(AluOp::ShiftRightArithmetic, 0x80000000, 0xffffffff), 0xffffffffu);
  EXPECT_EQ(applyAlu(AluOp::ShiftRightArithmetic, 0x40000000, 100), 0u);
}

TEST(Alu, SelectChoosesByItsCondition) {
  EXPECT_EQ(applyAlu(AluOp::SelectF32, bitsOf(1.0f), 5, 6), 5u);
  EXPECT_EQ(applyAlu(AluOp::SelectF32, bitsOf(-0.0f), 5, 6), 6u);
  EXPECT_EQ(applyAlu(AluOp::SelectF32, 0x7fc00000, 5, 6), 5u);
  EXPECT_EQ(applyAlu(AluOp::SelectI32, 0x80000000, 5, 6), 5u);
  EXPECT_EQ(applyAlu(AluOp::SelectI32, 0, 5, 6), 6u);
}

TEST(Alu, NarrowValuesLieInTheLowBytes) {
  EXPECT_EQ(applyAlu(AluOp::CvtI8I32, 0xabcdef80), uint32_t(-128));
  EXPECT_EQ(applyAlu(AluOp::CvtU8I32, 0xabcdef80), 128u);
  EXPECT_EQ(applyAlu(AluOp::CvtI8F32, 0x123456ff), bitsOf(-1.0f));
  EXPECT_EQ(applyAlu(AluOp::CvtU8F32, 0x123456ff), bitsOf(255.0f));
  EXPECT_EQ(applyAlu(AluOp::CvtF32I8, bitsOf(-1.0f)), 0xffu);
  EXPECT_EQ(applyAlu(AluOp::CvtI32I8, uint32_t(-1000)), 0x80u);
  EXPECT_EQ(applyAlu(AluOp::CvtI32U8, uint32_t(-1000)), 0u);
  EXPECT_EQ(applyAlu(AluOp::CvtF16F32, 0xffff3c00), bitsOf(1.0f));
  EXPECT_EQ(applyAlu(AluOp::CvtF16F32, 0x1234c000), bitsOf(-2.0f));
  EXPECT_EQ(applyAlu(AluOp::CvtBf16F32, 0xffffbf80), bitsOf(-1.0f));
  EXPECT_EQ(applyAlu(AluOp::CvtE4m3F32, 0xffffff38), bitsOf(1.0f));
  EXPECT_EQ(applyAlu(AluOp::CvtE5m2F32, 0xffffffbc), bitsOf(-1.0f));
  EXPECT_EQ(applyAlu(AluOp::CvtF32F16, bitsOf(-2.0f)), 0xc000u);
  EXPECT_EQ(applyAlu(AluOp::CvtF32F16, bitsOf(-1e9f)), 0xfc00u);
  EXPECT_EQ(applyAlu(AluOp::CvtF32F16Fin, bitsOf(-1e9f)), 0xfbffu);
  EXPECT_EQ(applyAlu(AluOp::CvtF32Bf16Fin, bitsOf(INFINITY)), 0x7f80u);
  EXPECT_EQ(applyAlu(AluOp::CvtF32I32, bitsOf(-2.5f)), uint32_t(-2));
  EXPECT_EQ(applyAlu(AluOp::CvtI32F32, uint32_t(-7)), bitsOf(-7.0f));
}

//===----------------------------------------------------------------------===//
// Transcendentals
//===----------------------------------------------------------------------===//

/// Error in units of the last place of fp32 at the true value, subnormals included.
double ulpError(float got, long double truth) {
  int exponent;
  std::frexp(truth, &exponent);
  long double ulp = std::ldexp(1.0L, std::max(exponent - 24, -149));
  return double(std::fabs((long double)got - truth) / ulp);
}

struct Transcendental {
  AluOp op;
  long double (*truth)(long double);
  float low, high; ///< samples lie here, besides random bit patterns
};

long double sigmoidTruth(long double x) { return 1 / (1 + std::exp(-x)); }
long double rsqrtTruth(long double x) { return 1 / std::sqrt(x); }

const Transcendental transcendentals[] = {
    {AluOp::ExpF32, [](long double x) { return std::exp(x); }, -104, 89},
    {AluOp::Exp2F32, [](long double x) { return std::exp2(x); }, -150, 128},
    {AluOp::LogF32, [](long double x) { return std::log(x); }, 0, 3},
    {AluOp::TanhF32, [](long double x) { return std::tanh(x); }, -10, 10},
    {AluOp::SigmoidF32, sigmoidTruth, -104, 30},
    {AluOp::RsqrtF32, rsqrtTruth, 0, 10},
    {AluOp::ErfF32, [](long double x) { return std::erf(x); }, -4.5, 4.5},
    {AluOp::SinF32, [](long double x) { return std::sin(x); }, -100, 100},
    {AluOp::CosF32, [](long double x) { return std::cos(x); }, -100, 100},
};

TEST(Alu, TranscendentalsAreWithinTheStatedUlp) {
  std::mt19937 random(17);
  for (const Transcendental &t : transcendentals) {
    std::uniform_real_distribution<float> range(t.low, t.high);
    double worst = 0;
    for (int i = 0; i < 200000; ++i) {
      uint32_t a = i & 1 ? bitsOf(range(random)) : uint32_t(random());
      long double truth = t.truth(floatOf(a));
      float got = floatOf(applyAlu(t.op, a));
      if (std::isnan(truth)) {
        ASSERT_EQ(bitsOf(got), nanBits) << aluOpInfo(t.op).mnemonic << " of " << floatOf(a);
      } else if (std::isinf(float(truth))) {
        ASSERT_EQ(got, float(truth)) << aluOpInfo(t.op).mnemonic << " of " << floatOf(a);
      } else {
        double error = ulpError(got, truth);
        worst = std::max(worst, error);
        ASSERT_LE(error, 0.5001) << aluOpInfo(t.op).mnemonic << " of " << floatOf(a);
      }
    }
    EXPECT_GT(worst, 0.4) << "the samples do not exercise " << aluOpInfo(t.op).mnemonic;
  }
}

TEST(Alu, PowIsWithinTheStatedUlp) {
  std::mt19937 random(19);
  std::uniform_real_distribution<float> base(0, 20), exponent(-20, 20);
  for (int i = 0; i < 200000; ++i) {
    uint32_t a = bitsOf(base(random)), b = bitsOf(exponent(random));
    if (i % 3 == 0)
      a = random(), b = random();
    if (i % 3 == 1)
      a = bitsOf(-base(random)), b = bitsOf(std::floor(exponent(random)));
    long double truth = std::pow((long double)floatOf(a), (long double)floatOf(b));
    float got = floatOf(applyAlu(AluOp::PowF32, a, b));
    if (std::isnan(truth))
      ASSERT_EQ(bitsOf(got), nanBits) << floatOf(a) << " to the " << floatOf(b);
    else if (std::isinf(float(truth)) || truth == 0)
      ASSERT_EQ(got, float(truth)) << floatOf(a) << " to the " << floatOf(b);
    else
      ASSERT_LE(ulpError(got, truth), 0.5001) << floatOf(a) << " to the " << floatOf(b);
  }
}

TEST(Alu, PowHasTheSpecialCasesOfIeee) {
  for (uint32_t a : specials)
    for (uint32_t b : specials) {
      float expected = std::pow(floatOf(a), floatOf(b));
      // The C library's pow of a signaling NaN is NaN even where a quiet one gives 1.
      if (a == 0x7f800001 || b == 0x7f800001)
        expected = b == 0 || b == 0x80000000 || a == 0x3f800000 ? 1.0f : NAN;
      float got = floatOf(applyAlu(AluOp::PowF32, a, b));
      if (std::isfinite(expected) && expected != 0)
        ASSERT_LE(ulpError(got, std::pow((long double)floatOf(a), (long double)floatOf(b))),
                  0.5001);
      else
        expectSame(AluOp::PowF32, bitsOf(got), expected, a, b);
    }
}

TEST(Alu, TranscendentalsHaveTheirLimits) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(apply(AluOp::ExpF32, 0), 1);
  EXPECT_EQ(apply(AluOp::ExpF32, -infinity), 0);
  EXPECT_EQ(apply(AluOp::ExpF32, 89), infinity);
  EXPECT_EQ(apply(AluOp::Exp2F32, -149), 0x1p-149f);
  EXPECT_EQ(apply(AluOp::Exp2F32, 10), 1024);
  EXPECT_EQ(applyAlu(AluOp::LogF32, bitsOf(1)), 0u);
  EXPECT_EQ(apply(AluOp::LogF32, -0.0f), -infinity);
  EXPECT_EQ(applyAlu(AluOp::LogF32, bitsOf(-1)), nanBits);
  EXPECT_EQ(apply(AluOp::LogF32, infinity), infinity);
  EXPECT_EQ(apply(AluOp::TanhF32, infinity), 1);
  EXPECT_EQ(apply(AluOp::TanhF32, -infinity), -1);
  EXPECT_EQ(applyAlu(AluOp::TanhF32, bitsOf(-0.0f)), bitsOf(-0.0f));
  EXPECT_EQ(apply(AluOp::TanhF32, 0x1p-149f), 0x1p-149f);
  EXPECT_EQ(apply(AluOp::SigmoidF32, 0), 0.5f);
  EXPECT_EQ(apply(AluOp::SigmoidF32, -infinity), 0);
  EXPECT_EQ(apply(AluOp::SigmoidF32, infinity), 1);
  EXPECT_EQ(apply(AluOp::ErfF32, infinity), 1);
  EXPECT_EQ(applyAlu(AluOp::ErfF32, bitsOf(-0.0f)), bitsOf(-0.0f));
  EXPECT_EQ(apply(AluOp::RsqrtF32, 0), infinity);
  EXPECT_EQ(apply(AluOp::RsqrtF32, 4), 0.5f);
  EXPECT_EQ(applyAlu(AluOp::SinF32, bitsOf(-0.0f)), bitsOf(-0.0f));
  EXPECT_EQ(apply(AluOp::CosF32, 0), 1);
  EXPECT_EQ(applyAlu(AluOp::SinF32, bitsOf(infinity)), nanBits);
  EXPECT_EQ(applyAlu(AluOp::CosF32, bitsOf(-infinity)), nanBits);
}

TEST(AluOpTable, MnemonicsAndNumbersNameOneOperationEach) {
  for (const AluOpInfo &info : aluOpTable) {
    EXPECT_EQ(aluOpFromMnemonic(info.mnemonic), info.op);
    EXPECT_EQ(aluOpFromNumber(uint64_t(info.op)), info.op);
    EXPECT_GE(info.operands, 1u);
    EXPECT_LE(info.operands, 3u);
  }
  EXPECT_FALSE(aluOpFromNumber(aluOpCount));
  EXPECT_FALSE(aluOpFromMnemonic("no.such.op"));
}

} // namespace
