// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/base/StreamFile.h"

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>
#include <random>

namespace millrace::sim {

/// The slow truth: registers that really shift, one position every `hop` cycles.
class ShiftRegisters {
public:
  ShiftRegisters(unsigned last, unsigned hop) : delay((last + 1) * hop), hop(hop) {}
  void cycle() {
    for (size_t k = delay.size(); k-- > 1;)
      delay[k] = delay[k - 1];
    delay[0] = Tag();
  }
  void inject(unsigned x, Tag tag) { delay[x * hop] = tag; }
  Tag at(unsigned x) const { return delay[x * hop]; }

private:
  std::vector<Tag> delay;
  unsigned hop;
};

TEST(StreamFile, DiagonalsEqualRegistersThatShift) {
  for (unsigned hop : {1u, 2u, 3u}) {
    auto machine = loadMachine("tsp-v1", {"latency.hop=" + std::to_string(hop)});
    ASSERT_TRUE(machine) << machine.error();
    const Timing timing(*machine);
    VectorPool pool(machine->lanes());
    StreamFile streams(*machine, timing, pool);
    const StreamId outward = machine->stream(Hemisphere::East, Direction::Outward, 3);
    const StreamId inward = machine->stream(Hemisphere::West, Direction::Inward, 31);
    ShiftRegisters truth[2] = {{timing.last, hop}, {timing.last, hop}};
    std::mt19937 random(hop);
    for (Cycle now = 0; now < 3000; ++now) {
      for (ShiftRegisters &r : truth)
        r.cycle();
      for (unsigned k = 0; k < 2; ++k) {
        if (random() % 3)
          continue;
        const StreamId stream = k ? inward : outward;
        const unsigned position = random() % (timing.last + 1);
        const Tag tag{uint32_t(random() % 1000), uint32_t(now)};
        streams.inject(now, {stream, uint16_t(position), 0, tag});
        truth[k].inject(k ? timing.last - position : position, tag);
      }
      streams.advance(now, [](Cycle, const auto &, const auto &) { FAIL(); });
      for (unsigned position = 0; position <= timing.last; ++position) {
        for (unsigned k = 0; k < 2; ++k) {
          const StreamCell *cell = streams.sample(k ? inward : outward, position, now);
          EXPECT_EQ(cell ? cell->tag : Tag(), truth[k].at(k ? timing.last - position : position))
              << "cycle " << now << " position " << position;
        }
      }
    }
  }
}

TEST(StreamFile, AnInjectionAfterALongRestIsPlacedInItsOwnCycle) {
  auto machine = loadMachine("tsp-v1");
  ASSERT_TRUE(machine) << machine.error();
  const Timing timing(*machine);
  VectorPool pool(machine->lanes());
  StreamFile streams(*machine, timing, pool);
  const StreamId s = machine->stream(Hemisphere::East, Direction::Outward, 0);
  auto nothing = [](Cycle, const auto &, const auto &) {};
  EXPECT_TRUE(streams.rest(7));
  EXPECT_TRUE(streams.rest(5000)) << "nothing waits";
  streams.inject(5003, {s, 2, 0, {1, 0}});
  EXPECT_FALSE(streams.rest(5001)) << "one injection waits";
  streams.advance(5003, nothing);
  EXPECT_TRUE(streams.rest(5003));
  const StreamCell *cell = streams.sample(s, 2, 5003);
  ASSERT_NE(cell, nullptr);
  EXPECT_EQ(cell->tag, (Tag{1, 0}));
  EXPECT_EQ(streams.sample(s, 2, 5002), nullptr);
  EXPECT_EQ(streams.sample(s, 2, 5004), nullptr);
}

TEST(StreamFile, CountsHopsUpToTheLastSampler) {
  auto machine = loadMachine("tsp-v1");
  ASSERT_TRUE(machine) << machine.error();
  const Timing timing(*machine);
  VectorPool pool(machine->lanes());
  StreamFile streams(*machine, timing, pool);
  const StreamId s = machine->stream(Hemisphere::East, Direction::Outward, 0);
  auto nothing = [](Cycle, const auto &, const auto &) {};
  streams.inject(10, {s, 2, 0, {1, 0}});
  streams.advance(10, nothing);
  EXPECT_NE(streams.sample(s, 5, 13), nullptr);
  EXPECT_NE(streams.sample(s, 4, 12), nullptr);
  EXPECT_EQ(streams.sample(s, 5, 14), nullptr) << "behind it";
  streams.clear();
  EXPECT_EQ(streams.vectorHops(), 3u);
  EXPECT_EQ(streams.injected(), 1u);
}

} // namespace millrace::sim
