// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/isa/semantics/Losses.h"

#include "arch/isa/semantics/Alu.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace millrace::semantics {
namespace {

float asFloat(uint32_t bits) { return std::bit_cast<float>(bits); }

/// A conversion, one to the same format that does not saturate, and the way back.
struct Format {
  AluOp narrow, overflowing, widen;
};

class Losses : public testing::TestWithParam<Format> {};

/// Beyond is what the conversion that overflows makes no finite number of.
TEST_P(Losses, AreFiniteNumbersThatOverflow) {
  const auto [narrow, overflowing, widen] = GetParam();
  const auto end = rangeEndOf(narrow);
  ASSERT_TRUE(end);
  std::vector<uint32_t> numbers;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) // every sign, exponent and 7 bits
    for (uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xf000u, 0xffffu})
      numbers.push_back(upper << 16 | lower);
  for (int step = -2; step <= 2; ++step) // and around the end
    for (uint32_t sign : {0u, 0x80000000u})
      numbers.push_back((end->bits + uint32_t(step)) | sign);
  size_t beyond = 0;
  for (uint32_t bits : numbers) {
    const float stored = asFloat(applyAlu(widen, applyAlu(overflowing, bits)));
    const bool isLost = std::isfinite(asFloat(bits)) && !std::isfinite(stored) &&
                        std::abs(asFloat(bits)) < std::numeric_limits<float>::max();
    ASSERT_EQ(countBeyond(*end, &bits, 1), isLost ? 1u : 0u) << asFloat(bits);
    beyond += isLost;
    const float kept = asFloat(applyAlu(widen, applyAlu(narrow, bits)));
    if (isLost) {
      EXPECT_EQ(end->becomes, std::isinf(kept)   ? "infinite"
                              : std::isnan(kept) ? "nan"
                                                 : "saturated");
      EXPECT_EQ(std::isfinite(kept), std::abs(kept) == end->largest);
    }
  }
  EXPECT_GT(beyond, 0u);
  EXPECT_EQ(countBeyond(*end, numbers.data(), numbers.size()), beyond);
}

INSTANTIATE_TEST_SUITE_P(
    All, Losses,
    testing::Values(Format{AluOp::CvtF32F16, AluOp::CvtF32F16, AluOp::CvtF16F32},
                    Format{AluOp::CvtF32F16Fin, AluOp::CvtF32F16, AluOp::CvtF16F32},
                    Format{AluOp::CvtF32Bf16, AluOp::CvtF32Bf16, AluOp::CvtBf16F32},
                    Format{AluOp::CvtF32Bf16Fin, AluOp::CvtF32Bf16, AluOp::CvtBf16F32},
                    Format{AluOp::CvtF32E4m3, AluOp::CvtF32E4m3, AluOp::CvtE4m3F32},
                    Format{AluOp::CvtF32E4m3Sat, AluOp::CvtF32E4m3, AluOp::CvtE4m3F32},
                    Format{AluOp::CvtF32E5m2, AluOp::CvtF32E5m2, AluOp::CvtE5m2F32},
                    Format{AluOp::CvtF32E5m2Sat, AluOp::CvtF32E5m2, AluOp::CvtE5m2F32}));

TEST(LossesOf, OtherOperationsAreNone) {
  for (AluOp op : {AluOp::CvtF32I8, AluOp::CvtI32F32, AluOp::MulF32, AluOp::Pass})
    EXPECT_FALSE(rangeEndOf(op));
}

} // namespace
} // namespace millrace::semantics
