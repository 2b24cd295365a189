// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TestMachine.h"

#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Codegen/Grid/Tactics.h"
#include "compiler/Forms/Builders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

using namespace millrace;
using namespace millrace::grid;

namespace {

/// Cycles that depend on every part of a tactic; fewest for maps of 128 rows in eighths.
uint64_t made(const Tactic &tactic) {
  return 1000 + uint64_t(std::abs(tactic.mapRows - 128)) + (tactic.bands == 8 ? 0 : 50) +
         (tactic.order == "graph" ? 10 : 0) + tactic.seed;
}

TEST(Tactics, EffortNoneTriesNone) {
  const Found found = searchTactics({}, 5000, 100, 0, {}, [](const Tactic &) -> uint64_t {
    ADD_FAILURE();
    return 1;
  });
  EXPECT_EQ(found.best, Tactic());
}

TEST(Tactics, FindsTheBestAndSaysWhatWasTried) {
  const Found found = searchTactics({}, 5000, 100, 1, {}, made);
  EXPECT_EQ(found.best.text(), "critical, maps of 128 rows, sweeps of 1/8 of the accumulators");
  ASSERT_EQ(found.tried.size(), 21u);
  EXPECT_EQ(found.tried.front().tactic, Tactic());
  EXPECT_EQ(found.tried.front().cycles, 5000u);
  for (size_t i = 1; i < found.tried.size(); ++i) {
    EXPECT_EQ(found.tried[i].cycles, made(found.tried[i].tactic));
    EXPECT_GE(found.tried[i].cycles, made(found.best));
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(found.tried[i].tactic, found.tried[j].tactic);
  }
}

TEST(Tactics, MoreEffortTriesTheSameAndMore) {
  const Found some = searchTactics({}, 5000, 100, 1, {}, made),
              more = searchTactics({}, 5000, 100, 2, {}, made);
  EXPECT_EQ(more.tried.size(), 70u);
  for (size_t i = 0; i < some.tried.size(); ++i)
    EXPECT_EQ(some.tried[i].tactic, more.tried[i].tactic);
}

TEST(Tactics, FewerPesAreTriedBesideAllElse) {
  const auto slowLinks = [](const Tactic &tactic) {
    return made(tactic) + (tactic.pes == 3 ? 0 : 500);
  };
  const Found all = searchTactics({}, 5000, 100, 1, {}, slowLinks),
              fewer = searchTactics({}, 5000, 100, 1, {.pes = {7, 3, 1}}, slowLinks);
  EXPECT_EQ(fewer.tried.size(), all.tried.size() + 3);
  std::vector<unsigned> pes;
  for (const Tried &tried : fewer.tried)
    if (tried.tactic.pes && (pes.empty() || tried.tactic.pes != pes.back()))
      pes.push_back(tried.tactic.pes);
  EXPECT_EQ(pes, (std::vector<unsigned>{7, 3, 1, 3})) << "and the best one from then on";
  EXPECT_EQ(fewer.best.text(),
            "critical, maps of 128 rows, sweeps of 1/8 of the accumulators, over 3 PEs");
}

TEST(Tactics, HalvesInTwoBanksAreTriedFirstAndBesideAllElse) {
  const auto slowBanks = [](const Tactic &tactic) {
    return made(tactic) + (tactic.otherBanks ? 0 : 500);
  };
  for (const uint64_t bursts : {100, 200'000}) {
    const Found all = searchTactics({}, 5000, bursts, 1, {}, slowBanks),
                halves = searchTactics({}, 5000, bursts, 1, {.halves = true}, slowBanks);
    ASSERT_EQ(halves.tried.size(), all.tried.size() + 1) << bursts;
    EXPECT_TRUE(halves.tried[1].tactic.otherBanks);
    EXPECT_TRUE(halves.best.otherBanks) << "and the best one from then on";
  }
  EXPECT_EQ(searchTactics({}, 5000, 2'000'000, 1, {.halves = true}, slowBanks).tried.size(), 1u);
}

TEST(Tactics, KernelsAreScheduledTogetherWhereOnePeComputes) {
  const auto alone = [](const Tactic &tactic) {
    return made(tactic) + (tactic.pes == 1 ? 0 : 500);
  };
  const Found one = searchTactics({}, 5000, 100, 1, {.pes = {1}}, alone),
              two = searchTactics({}, 5000, 100, 1, {.pes = {2}}, alone);
  const auto together = [](const Found &found) {
    return std::any_of(found.tried.begin(), found.tried.end(),
                       [](const Tried &tried) { return tried.tactic.flight > 1; });
  };
  EXPECT_TRUE(together(one));
  EXPECT_FALSE(together(two));
}

TEST(Tactics, FewerPesAreAColumnLessAndPowersOfTwo) {
  Machine machine = test::testMachine(1);
  EXPECT_EQ(fewerPes(machine), std::vector<unsigned>());
  machine.fabric.rows = 4;
  machine.fabric.columns = 5;
  EXPECT_EQ(fewerPes(machine), (std::vector<unsigned>{16, 8, 4, 2, 1}));
  EXPECT_EQ(fewerPes(machine, 16), (std::vector<unsigned>{8, 4, 2, 1}));
  machine.fabric.columns = 7;
  EXPECT_EQ(fewerPes(machine), (std::vector<unsigned>{24, 16, 8, 4, 2, 1}));
  machine.fabric.rows = 1;
  EXPECT_EQ(fewerPes(machine), (std::vector<unsigned>{6, 4, 2, 1}));
  EXPECT_EQ(fewerPes(machine, 1), std::vector<unsigned>());
}

TEST(Tactics, LargeProgramsAreTriedLessOften) {
  EXPECT_EQ(searchTactics({}, 5000, 200'000, 1, {}, made).tried.size(), 6u);
  EXPECT_EQ(searchTactics({}, 5000, 1'000'000, 1, {}, made).tried.size(), 4u);
  EXPECT_EQ(searchTactics({}, 5000, 2'000'000, 1, {}, made).tried.size(), 1u);
  EXPECT_EQ(searchTactics({}, 5000, 1'000'000, 2, {}, made).tried.size(), 6u);
}

TEST(Tactics, PlacesOfRowsAreTriedBeforeLengths) {
  const auto apart = [](const Tactic &tactic) {
    return made(tactic) - (tactic.meeting == 15 ? 400 : 0) - (tactic.segments == 8 ? 30 : 0);
  };
  const Found found = searchTactics({}, 5000, 140'000, 1, {}, apart);
  ASSERT_EQ(found.tried.size(), 8u);
  EXPECT_EQ(found.tried[2].tactic.meeting, 100u);
  EXPECT_EQ(found.tried[4].tactic.segments, 4u);
  EXPECT_EQ(found.best.text(),
            "critical, rows in 8 segments, rows apart by time, at a cost of 15");
}

TEST(Tactics, WhatHasNoRoomIsNotTaken) {
  const Found found =
      searchTactics({}, 5000, 100, 2, {}, [](const Tactic &) -> uint64_t { return 0; });
  EXPECT_EQ(found.best, Tactic());
}

TEST(Tactics, KeepsAnOrderThatWasAskedFor) {
  Tactic asked;
  asked.order = "critical";
  for (const Tried &tried : searchTactics(asked, 5000, 100, 2, {.orders = false}, made).tried) {
    EXPECT_EQ(tried.tactic.order, "critical");
    EXPECT_EQ(tried.tactic.seed, 0u);
  }
}

TEST(Tactics, PartsOfTheMachineAreTriedAfterAllElse) {
  const auto crowded = [](const Tactic &tactic) {
    return made(tactic) - (tactic.used.planes == 2 ? 400 : 0) - (tactic.mixed ? 20 : 0);
  };
  const Machine machine = test::testMachine(1);
  const std::vector<Used> parts = partsOf(machine);
  const Found all = searchTactics({}, 5000, 100, 1, {}, crowded),
              some = searchTactics({}, 5000, 100, 1, {.places = true, .parts = {{.planes = 2}}},
                                   crowded);
  for (size_t i = 0; i < all.tried.size(); ++i)
    EXPECT_EQ(all.tried[i].tactic, some.tried[i].tactic);
  EXPECT_EQ(some.best.text(), "critical, maps of 128 rows, sweeps of 1/8 of the accumulators, "
                              "weights beside activations, 2 planes");
  for (const Used &part : parts) {
    EXPECT_LE(part.planes, machine.mxm.planes);
    EXPECT_LE(part.alus, machine.vxm.alus);
    EXPECT_NE(part, Used());
  }
}

/// So that the time that large programs take by default stays what it was.
TEST(Tactics, LargeProgramsTryPartsOfTheMachineFromEffortTwoOn) {
  const auto partsTried = [](uint64_t bursts, unsigned effort) {
    const Found found =
        searchTactics({}, 5000, bursts, effort, {.places = true, .parts = {{.planes = 2}}}, made);
    return std::count_if(found.tried.begin(), found.tried.end(), [](const Tried &t) {
      return t.tactic.used != Used() || t.tactic.mixed || t.tactic.otherSlices ||
             t.tactic.otherBanks;
    });
  };
  EXPECT_GT(partsTried(15'000, 1), 0);
  EXPECT_EQ(partsTried(15'001, 1), 0);
  EXPECT_GT(partsTried(15'001, 2), 0);
}

/// The image is one of the whole machine, which leaves the rest alone.
TEST(Tactics, APartOfTheMachineIsAllThatIsUsed) {
  const Machine machine = test::testMachine(1);
  const forms::KernelGraph graph = forms::buildPerceptron(200, 300, 4, ElementType::Fp16);
  for (const Used &part : partsOf(machine)) {
    CompileReport report;
    CompileOptions options;
    options.tactic.used = part;
    const Expected<Image> image = compile(graph, machine, options, report);
    if (!image) // too little memory, or too few ALUs for an epilogue
      continue;
    EXPECT_EQ(image->machineHash, machine.hash());
    for (const Instruction &i : image->instructions[0]) {
      const Unit unit = machine.unit(i.queue);
      switch (unit.kind) {
      case UnitKind::Mem:
        EXPECT_TRUE(!part.slicesPerRegister ||
                    unit.index % machine.memory.slicesPerRegister < part.slicesPerRegister);
        EXPECT_TRUE(!part.banks || i.address / machine.memory.rowsPerBank < part.banks);
        break;
      case UnitKind::Alu:
        EXPECT_TRUE(!part.alus || unit.index < part.alus);
        break;
      case UnitKind::MxmInstall:
      case UnitKind::MxmActivate:
      case UnitKind::MxmAccumulate:
        EXPECT_TRUE(!part.planes || unit.index < part.planes);
        break;
      default:
        break;
      }
    }
  }
}

/// Whatever is found: the count that the search saw, never more than without it, twice the same.
TEST(Tactics, NeverMoreCyclesThanWithout) {
  const Machine machine = test::testMachine(4);
  for (const forms::KernelGraph &graph :
       {forms::buildPerceptron(200, 300, 4, ElementType::Fp16),
        forms::buildAttention(60, 64, 32, true),
        forms::buildMaxPool(64, 40, 40, 2, 2, 0, ElementType::Fp16)}) {
    std::vector<uint64_t> cycles;
    for (const unsigned effort : {0u, 1u, 2u, 2u}) {
      CompileReport report;
      CompileOptions options;
      options.effort = effort;
      const Expected<Image> image = compile(graph, machine, options, report);
      ASSERT_TRUE(image) << image.error();
      cycles.push_back(report.predictedCycles);
      EXPECT_EQ(report.tried.size() > 1, effort > 0);
      for (const Tried &tried : report.tried) {
        if (tried.cycles) { // before pruning
          EXPECT_LE(report.predictedCycles, tried.cycles);
        }
      }
    }
    EXPECT_LE(cycles[1], cycles[0]);
    EXPECT_LE(cycles[2], cycles[1]);
    EXPECT_EQ(cycles[2], cycles[3]);
  }
}

} // namespace
