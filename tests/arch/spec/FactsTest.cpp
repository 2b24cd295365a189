// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/spec/Facts.h"
#include "arch/spec/MachineFile.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace millrace {
namespace {

using testing::HasSubstr;

Facts facts(const std::string &name, const std::vector<std::string> &overrides = {}) {
  Expected<Machine> machine = loadMachine(name, overrides);
  if (!machine) {
    ADD_FAILURE() << machine.error();
    return {};
  }
  return factsOf(*machine);
}

double tops(const Facts &f, ElementType type) {
  for (const FormatRate &rate : f.formats)
    if (rate.type == type)
      return rate.operationsPerSecond / 1e12;
  return 0;
}

TEST(Facts, OfTspV1AreThePublishedFigures) {
  const Facts f = facts("tsp-v1", {"clock=1 GHz"});
  EXPECT_DOUBLE_EQ(tops(f, ElementType::Int8), 819.2);
  EXPECT_DOUBLE_EQ(tops(f, ElementType::Fp16), 819.2 / 4);
  EXPECT_EQ(f.streamBytesPerCycle, 20u * 1024);
  EXPECT_EQ(f.sramBytesPerCycle, 55u * 1024);
  EXPECT_EQ(f.capacityBytes, 220u * 1024 * 1024);
  EXPECT_EQ(f.weightBytes, 409600u);
  EXPECT_EQ(f.queues, 144u);
  EXPECT_EQ(f.queuesWithC2c, 144u + 2 * 16);
  EXPECT_DOUBLE_EQ(tops(facts("tsp-v1"), ElementType::Int8), 819.2 * 0.9);
}

TEST(Facts, OfLp30MeetThePublishedRoundFigures) {
  const Facts f = facts("lp30");
  EXPECT_NEAR(tops(f, ElementType::E4M3), 1228.8, 1e-9);
  EXPECT_DOUBLE_EQ(double(f.sramBytesPerCycle) * f.clockHz, 153.6e12);
  EXPECT_EQ(f.capacityBytes, 500u * 1024 * 1024);
  EXPECT_DOUBLE_EQ(f.linkLatencySeconds, 350e-9);
}

TEST(Facts, OfTheSmallMachinesFollowFromTheirSize) {
  EXPECT_EQ(facts("tsp-small").capacityBytes, 22u * 1024 * 1024);
  const Facts mesh = facts("mesh-4x4");
  EXPECT_EQ(mesh.capacityBytes, 3u * 1024 * 1024);
  EXPECT_EQ(mesh.pes, 16u);
  EXPECT_EQ(mesh.links, 48u);
  EXPECT_DOUBLE_EQ(mesh.linkBytesPerSecond, 32 * 900e6);
}

TEST(Facts, ArePrintedForPeople) {
  const std::string text = toText(facts("tsp-v1"));
  EXPECT_THAT(text, HasSubstr("737.3 TOPS (819.2 at 1 GHz)"));
  EXPECT_THAT(text, HasSubstr("20 KiB/cycle"));
  EXPECT_THAT(text, HasSubstr("55 KiB/cycle"));
  EXPECT_THAT(text, HasSubstr("220 MiB"));
  EXPECT_THAT(text, HasSubstr("144, with C2C 176"));
}

TEST(Facts, ArePrintedForPrograms) {
  const nlohmann::json json = toJson(facts("tsp-v1"));
  EXPECT_EQ(json["queues"], 144);
  EXPECT_EQ(json["formats"]["int8"]["macs_per_cycle"], 409600);
  EXPECT_EQ(json["capacity_bytes"], 230686720);
  EXPECT_GT(json["numbers"]["quoted"], 5);
}

} // namespace
} // namespace millrace
