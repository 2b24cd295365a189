// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Schedules that do not fit a multiprocessor are refused with the number and what to change.
#include "compiler/Codegen/Gpu/Gemm/GemmSchedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::gpu;
using testing::HasSubstr;

namespace {

std::string refusal(const GemmSchedule &schedule) {
  Expected<GemmLayout> layout = planGemm(schedule);
  return layout ? "" : layout.error();
}

} // namespace

TEST(GemmSchedule, LaysStagesOutOneAfterAnother) {
  Expected<GemmLayout> layout = planGemm(GemmSchedule::make(128, 256, 64, 3, 2));
  ASSERT_TRUE(layout) << layout.error();
  EXPECT_EQ(layout->bytesA, 128u * 64 * 2);
  EXPECT_EQ(layout->bytesB, 256u * 64 * 2);
  EXPECT_EQ(layout->c, 3u * 49152);
  EXPECT_EQ(layout->barriers, 3u * 49152 + 65536);
  EXPECT_EQ(layout->total, 3u * 49152 + 65536 + 48);
}

TEST(GemmSchedule, GivesConsumersWhatTheProducerLeaves) {
  EXPECT_EQ(GemmSchedule::make(128, 256, 64, 3, 2).launchRegisters(), 168u);
  EXPECT_EQ(GemmSchedule::make(128, 256, 64, 3, 2).consumerRegisters, 232u);
  EXPECT_EQ(GemmSchedule::make(64, 256, 64, 4, 1).consumerRegisters, 240u);
  EXPECT_EQ(GemmSchedule::make(192, 128, 64, 3, 3).consumerRegisters, 152u);
}

TEST(GemmSchedule, SharedMemoryBoundsTheStages) {
  EXPECT_EQ(refusal(GemmSchedule::make(128, 256, 64, 3, 2)), "");
  EXPECT_EQ(refusal(GemmSchedule::make(128, 256, 64, 4, 2)),
            "4 stages of 49152 bytes and a tile of C take 262208 bytes of shared memory, and a CTA "
            "may use 232448; use at most 3 stages");
}

TEST(GemmSchedule, RegistersBoundTheTile) {
  EXPECT_THAT(refusal(GemmSchedule::make(256, 256, 64, 2, 2)),
              HasSubstr("accumulators of 256 registers and 32 others in a budget of 232"));
  GemmSchedule greedy = GemmSchedule::make(128, 256, 64, 3, 2);
  greedy.consumerRegisters = 240;
  EXPECT_EQ(refusal(greedy), "budgets of 66560 registers together, and the launch has 64512; lower "
                             "the consumers' to 232");
}

TEST(GemmSchedule, TilesFitTheInstructions) {
  EXPECT_THAT(refusal(GemmSchedule::make(96, 128, 64, 3, 1)), HasSubstr("tile_m 96"));
  EXPECT_THAT(refusal(GemmSchedule::make(128, 96, 64, 3, 2)), HasSubstr("tile_n 96"));
  EXPECT_THAT(refusal(GemmSchedule::make(128, 128, 32, 3, 2)), HasSubstr("tile_k 32"));
  EXPECT_THAT(refusal(GemmSchedule::make(128, 128, 64, 1, 2)), HasSubstr("1 stages"));
  EXPECT_THAT(refusal(GemmSchedule::make(128, 128, 64, 3, 0)), HasSubstr("0 consumer"));
  EXPECT_THAT(refusal(GemmSchedule::make(128, 128, 64, 3, 2, 3)), HasSubstr("clusters of 3"));
}
