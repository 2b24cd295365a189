// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/spec/Machine.h"

#include <gtest/gtest.h>

#include <set>

namespace millrace {
namespace {

/// The slices, planes, ALUs and SXM units of a TSP, with 16 ports.
Machine tspUnits() {
  Machine m;
  m.memory = {.slices = 44, .slicesPerRegister = 4, .banks = 2, .rowsPerBank = 4096};
  m.mxm.planes = 2;
  m.vxm.alus = 16;
  m.sxm = {.transposers = 2,
           .permutors = 1,
           .distributors = 4,
           .shifters = 2,
           .selectors = 4,
           .rotators = 1};
  m.c2c.ports = 16;
  return m;
}

TEST(Queues, OfATspAre144AndTwoForEachOf16Ports) {
  Machine m = tspUnits();
  EXPECT_EQ(m.queues(), 144u + 32u);
  m.c2c.ports = 0;
  EXPECT_EQ(m.queues(), 2u * (44 + 14 + 6) + 16);
}

TEST(Queues, EveryNumberNamesOneUnitAndBack) {
  const Machine m = tspUnits();
  std::set<std::string> names;
  for (unsigned queue = 0; queue < m.queues(); ++queue) {
    EXPECT_EQ(m.queue(m.unit(queue)), queue);
    EXPECT_TRUE(names.insert(m.queueName(queue)).second) << m.queueName(queue);
  }
}

TEST(Queues, LieInTheDocumentedOrder) {
  const Machine m = tspUnits();
  EXPECT_EQ(m.queueName(0), "mem.w.0");
  EXPECT_EQ(m.queueName(44 + 12), "mem.e.12");
  EXPECT_EQ(m.queueName(88), "mxm.w.0.install");
  EXPECT_EQ(m.queueName(88 + 1), "mxm.w.0.activate");
  EXPECT_EQ(m.queueName(88 + 6 + 3 + 2), "mxm.e.1.accumulate");
  EXPECT_EQ(m.queueName(100), "sxm.w.transposer.0");
  EXPECT_EQ(m.queueName(100 + 14 + 2), "sxm.e.permutor.0");
  EXPECT_EQ(m.queueName(100 + 14 + 13), "sxm.e.rotator.0");
  EXPECT_EQ(m.queueName(128 + 3), "alu.3");
  EXPECT_EQ(m.queueName(144 + 1), "send.1");
  EXPECT_EQ(m.queueName(160 + 1), "receive.1");
  EXPECT_EQ(m.queueName(176), "queue.176"); // names nothing, and says so
}

TEST(AluLatency, OfAnOperationListedByItselfReplacesTheCommonOne) {
  Machine m = tspUnits();
  m.latency.aluOps["exp.f32"] = 7;
  EXPECT_EQ(m.latency.aluLatency("exp.f32"), 7u);
  EXPECT_EQ(m.latency.aluLatency("add.f32"), 3u);
}

} // namespace
} // namespace millrace
