// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/HostNumbers.h"
#include "arch/isa/semantics/Convert.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace millrace::test {
namespace {
using ::testing::HasSubstr;

/// The elements after conversion, or the error.
template <class Grid, class Host>
Expected<std::vector<Grid>> toGridAs(HostElement from, std::vector<Host> host, ElementType to) {
  std::vector<Grid> grid(host.size());
  if (Status s =
          toGrid(from, host.data(), to, reinterpret_cast<uint8_t *>(grid.data()), host.size());
      !s)
    return s.takeError();
  return grid;
}
template <class Host, class Grid>
Expected<std::vector<Host>> fromGridAs(ElementType from, std::vector<Grid> grid, HostElement to) {
  std::vector<Host> host(grid.size());
  if (Status s = fromGrid(from, reinterpret_cast<const uint8_t *>(grid.data()), to, host.data(),
                          grid.size());
      !s)
    return s.takeError();
  return host;
}

TEST(HostNumbers, TypesHaveTheirOnnxNames) {
  EXPECT_EQ(hostElementNamed("float"), HostElement::Float32);
  EXPECT_EQ(hostElementNamed("float32"), HostElement::Float32);
  EXPECT_EQ(hostElementNamed("double"), HostElement::Float64);
  EXPECT_EQ(hostElementNamed("int64"), HostElement::Int64);
  EXPECT_EQ(hostElementNamed("string"), std::nullopt);
  EXPECT_EQ(byteWidth(HostElement::Bool), 1u);
  EXPECT_EQ(byteWidth(HostElement::Bfloat16), 2u);
  EXPECT_EQ(byteWidth(HostElement::Float64), 8u);
}

TEST(HostNumbers, A64BitFloatIsRoundedOnceToFp16AndStaysFinite) {
  // 1 + 2^-11 lies halfway between 1 and the next fp16; a little more must go up, though fp32 drops
  // it.
  const double half = 1 + std::ldexp(1.0, -11), above = half + std::ldexp(1.0, -40),
               below = half - std::ldexp(1.0, -40);
  auto grid = toGridAs<uint16_t, double>(
      HostElement::Float64, {half, above, below, -above, 1e300, INFINITY, NAN}, ElementType::Fp16);
  ASSERT_TRUE(grid);
  EXPECT_THAT(*grid, ::testing::ElementsAre(0x3c00, 0x3c01, 0x3c00, 0xbc01, 0x7bff, 0x7c00, 0x7e00));
}

TEST(HostNumbers, EveryFp16SurvivesTheWayToFp32AndBack) {
  std::vector<uint16_t> all(65536);
  for (unsigned k = 0; k < all.size(); ++k)
    all[k] = uint16_t(k);
  auto wide = toGridAs<uint32_t>(HostElement::Float16, all, ElementType::Fp32);
  ASSERT_TRUE(wide);
  auto back = fromGridAs<uint16_t>(ElementType::Fp32, *wide, HostElement::Float16);
  ASSERT_TRUE(back);
  for (unsigned k = 0; k < all.size(); ++k) {
    const bool nan = (k & 0x7fff) > 0x7c00;
    ASSERT_EQ((*back)[k], nan ? 0x7e00 : k);
  }
}

TEST(HostNumbers, SameTypesKeepEveryBitEvenOfNaN) {
  auto grid =
      toGridAs<uint16_t, uint16_t>(HostElement::Bfloat16, {0xffa5, 0x7f81}, ElementType::Bf16);
  ASSERT_TRUE(grid);
  EXPECT_THAT(*grid, ::testing::ElementsAre(0xffa5, 0x7f81));
}

TEST(HostNumbers, IntegersOutOfRangeAreErrorsThatNameElementAndLimits) {
  auto grid = toGridAs<int8_t, int64_t>(HostElement::Int64, {127, -128, 128}, ElementType::Int8);
  ASSERT_FALSE(grid);
  EXPECT_EQ(grid.error(), "element 2 is 128, outside int8 [-128, 127]");
  EXPECT_TRUE((toGridAs<int8_t, int64_t>(HostElement::Int64, {127, -128}, ElementType::Int8)));
  EXPECT_FALSE(
      (toGridAs<int32_t, int64_t>(HostElement::Int64, {int64_t(1) << 31}, ElementType::Int32)));
  EXPECT_FALSE(
      (toGridAs<int32_t, uint64_t>(HostElement::UInt64, {~uint64_t(0)}, ElementType::Int32)));
  EXPECT_FALSE((toGridAs<uint8_t, int32_t>(HostElement::Int32, {-1}, ElementType::UInt8)));
  EXPECT_FALSE((toGridAs<int8_t, uint8_t>(HostElement::UInt8, {128}, ElementType::Int8)));
  EXPECT_FALSE((fromGridAs<int8_t, int32_t>(ElementType::Int32, {128}, HostElement::Int8)));
  auto wide = fromGridAs<int64_t, int32_t>(ElementType::Int32, {-5, INT32_MIN}, HostElement::Int64);
  ASSERT_TRUE(wide);
  EXPECT_THAT(*wide, ::testing::ElementsAre(-5, INT32_MIN));
}

TEST(HostNumbers, AnIntegerMustBeExactInAFloatFormat) {
  EXPECT_TRUE((toGridAs<uint16_t, int64_t>(HostElement::Int64, {2048, -65504}, ElementType::Fp16)));
  auto odd = toGridAs<uint16_t, int64_t>(HostElement::Int64, {2049}, ElementType::Fp16);
  ASSERT_FALSE(odd);
  EXPECT_THAT(odd.error(), HasSubstr("element 0 is 2049, which fp16 does not hold exactly"));
  EXPECT_FALSE((toGridAs<uint16_t, int64_t>(HostElement::Int64, {65536}, ElementType::Fp16)));
  EXPECT_TRUE(
      (toGridAs<float, int64_t>(HostElement::Int64, {int64_t(1) << 40}, ElementType::Fp32)));
  EXPECT_FALSE(
      (toGridAs<float, int64_t>(HostElement::Int64, {(int64_t(1) << 40) + 1}, ElementType::Fp32)));
  EXPECT_FALSE((toGridAs<float, int64_t>(HostElement::Int64, {INT64_MAX}, ElementType::Fp32)));
  std::vector<int32_t> many(5000, 3);
  many[4999] = 257;
  auto last = toGridAs<uint16_t>(HostElement::Int32, many, ElementType::Bf16);
  ASSERT_FALSE(last);
  EXPECT_THAT(last.error(), HasSubstr("element 4999 is 257"));
}

TEST(HostNumbers, FloatsAndIntegersNeedAScale) {
  EXPECT_THAT((toGridAs<int8_t, float>(HostElement::Float32, {1}, ElementType::Int8)).error(),
              HasSubstr("float32 does not become int8 without a scale"));
  EXPECT_FALSE((toGridAs<uint8_t, float>(HostElement::Float32, {1}, ElementType::E4M3)));
  EXPECT_FALSE((fromGridAs<float, int8_t>(ElementType::Int8, {1}, HostElement::Float32)));
}

TEST(HostNumbers, FloatsThatAreIntegersBecomeIntegersAndOthersAreErrors) {
  auto good = fromGridAs<int64_t, float>(ElementType::Fp32, {3, -7, 16777216}, HostElement::Int64);
  ASSERT_TRUE(good);
  EXPECT_THAT(*good, ::testing::ElementsAre(3, -7, 16777216));
  auto bad = fromGridAs<int64_t, float>(ElementType::Fp32, {3, 0.5}, HostElement::Int64);
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error(), HasSubstr("element 1 is 0.5, which is no int64"));
  EXPECT_FALSE((fromGridAs<int8_t, float>(ElementType::Fp32, {128}, HostElement::Int8)));
  EXPECT_TRUE((fromGridAs<int8_t, float>(ElementType::Fp32, {-128}, HostElement::Int8)));
  EXPECT_FALSE((fromGridAs<int64_t, float>(ElementType::Fp32, {NAN}, HostElement::Int64)));
  EXPECT_FALSE((fromGridAs<int64_t, float>(ElementType::Fp32, {9.3e18f}, HostElement::Int64)));
}

TEST(HostNumbers, ABoolIsZeroOrOne) {
  auto grid = toGridAs<int8_t, uint8_t>(HostElement::Bool, {0, 1, 255}, ElementType::Int8);
  ASSERT_TRUE(grid);
  EXPECT_THAT(*grid, ::testing::ElementsAre(0, 1, 1));
  auto half = toGridAs<uint16_t, uint8_t>(HostElement::Bool, {0, 2}, ElementType::Fp16);
  ASSERT_TRUE(half);
  EXPECT_THAT(*half, ::testing::ElementsAre(0, 0x3c00));
  auto back =
      fromGridAs<uint8_t, uint16_t>(ElementType::Fp16, {0x8000, 0x0001, 0x7e00}, HostElement::Bool);
  ASSERT_TRUE(back);
  EXPECT_THAT(*back, ::testing::ElementsAre(0, 1, 1));
  auto ints = fromGridAs<uint8_t, int32_t>(ElementType::Int32, {0, 256, -1}, HostElement::Bool);
  ASSERT_TRUE(ints);
  EXPECT_THAT(*ints, ::testing::ElementsAre(0, 1, 1));
}

} // namespace
} // namespace millrace::test
