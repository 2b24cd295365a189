// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Progress.h"

#include <gtest/gtest.h>

namespace millrace::driver {
namespace {

TEST(Progress, IsNeverMoreThanAHundredPercent) {
  EXPECT_EQ(percentOf(0, 7), 0u);
  EXPECT_EQ(percentOf(3, 7), 42u);
  EXPECT_EQ(percentOf(7, 7), 100u);
  EXPECT_EQ(percentOf(8, 7), 100u); // host steps beside kernels, instructions that repeat
  EXPECT_EQ(percentOf(UINT64_MAX, 3), 100u);
}

TEST(Progress, OfMoreThanAFifthOfAllNumbersDoesNotWrapAround) {
  EXPECT_EQ(percentOf(UINT64_MAX / 2, UINT64_MAX), 50u);
}

} // namespace
} // namespace millrace::driver
