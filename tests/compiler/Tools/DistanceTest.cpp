// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Distance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace millrace::driver {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T> HostTensor tensorOf(HostType type, std::initializer_list<T> values) {
  HostTensor tensor = HostTensor::zeros(type, {int64_t(values.size())});
  std::copy(values.begin(), values.end(), tensor.as<T>());
  return tensor;
}

HostTensor floats(std::initializer_list<float> values) {
  return tensorOf(HostType::Float32, values);
}

TEST(Distance, IsRelativeToTheOther) {
  const Distance d = distance(floats({3, 4.5F, 0}), floats({3, 4, 0}));
  EXPECT_DOUBLE_EQ(d.relativeL2, 0.1);
  EXPECT_EQ(d.differing, 1u);
  EXPECT_EQ(d.elements, 3u);
  EXPECT_EQ(distance(floats({0, 0}), floats({0, 0})).relativeL2, 0);
  EXPECT_EQ(distance(floats({1, 0}), floats({0, 0})).relativeL2, kInfinity);
}

TEST(Distance, InfinitiesAndNaNAreEqualToThemselves) {
  const Distance same = distance(floats({kInfinity, -kInfinity, NAN, 1}),
                                 floats({kInfinity, -kInfinity, -NAN, 1}));
  EXPECT_EQ(same.relativeL2, 0);
  EXPECT_EQ(same.differing + same.infinite + same.nan, 0u);
  const Distance lost = distance(floats({kInfinity, NAN, -kInfinity, 1}), floats({1, 2, 3, 1}));
  EXPECT_FALSE(std::isfinite(lost.relativeL2));
  EXPECT_EQ(lost.differing, 3u);
  EXPECT_EQ(lost.infinite, 2u);
  EXPECT_EQ(lost.nan, 1u);
  EXPECT_FALSE(distance(floats({1}), floats({kInfinity})).relativeL2 <= 1);
  EXPECT_EQ(distance(floats({1}), floats({kInfinity})).infinite, 0u) << "the other one's";
}

TEST(Distance, ZerosOfTwoSignsDifferInBitsAlone) {
  const Distance d = distance(floats({0.0F, 1}), floats({-0.0F, 1}));
  EXPECT_EQ(d.differing, 1u);
  EXPECT_EQ(d.relativeL2, 0);
}

TEST(Distance, CountsIntegersAsTheyAre) {
  EXPECT_DOUBLE_EQ(distance(tensorOf<int8_t>(HostType::Int8, {-1, 10}),
                            tensorOf<int8_t>(HostType::Int8, {0, 10}))
                       .relativeL2,
                   0.1);
  EXPECT_DOUBLE_EQ(distance(tensorOf<uint8_t>(HostType::UInt8, {255}),
                            tensorOf<uint8_t>(HostType::UInt8, {250}))
                       .relativeL2,
                   0.02);
  EXPECT_EQ(distance(tensorOf<int64_t>(HostType::Int64, {-3}), floats({-3})).differing, 0u);
}

TEST(Distance, ReadsFloatsOf16Bits) {
  EXPECT_EQ(distance(tensorOf<uint16_t>(HostType::Float16, {0x3c00, 0x7c00}),
                     floats({1, kInfinity}))
                .differing,
            0u);
  EXPECT_EQ(distance(tensorOf<uint16_t>(HostType::BFloat16, {0x3f80}), floats({1})).differing, 0u);
}

} // namespace
} // namespace millrace::driver
