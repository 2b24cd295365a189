// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counters that are all different, so that no figure can be taken for another.
#include "simulator/report/Report.h"

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace millrace::sim {
namespace {

class Reports : public testing::Test {
protected:
  Machine machine;
  SimulationResult result;
  Image image;

  Reports() {
    Expected<Machine> loaded = loadMachine(
        "tsp-small", {"fabric.topology=ring", "fabric.rows=1", "fabric.columns=3", "c2c.ports=2",
                      "fabric.link.latency=20 cycles", "fabric.link.slot=6 cycles"});
    EXPECT_TRUE(loaded) << loaded.error();
    machine = *loaded;
    machine.energy = EnergySpec();
    EnergySpec &e = machine.energy;
    e.macInt8 = 2, e.macFloat = 3, e.aluLane = 5, e.sramByte = 7, e.streamByteHop = 11, e.linkByte = 13;
    result.measuredCycles = 1000;
    result.pes.resize(3);
    for (Counters &c : result.pes)
      c.busy.assign(machine.queues(), 0);
    result.total.busy.assign(machine.queues(), 0);
    Counters &c = result.total;
    c.macsInt8 = 101, c.macsFloat = 103, c.aluLanes = 107, c.sramReads = 109, c.sramWrites = 113;
    c.streamVectors = 127, c.streamHops = 131, c.linkVectors = 137;
  }
};

TEST_F(Reports, EnergyIsCostTimesEvent) {
  const nlohmann::json energy = toJson(result, image, machine)["energy_picojoules"];
  EXPECT_EQ(energy["macs"], 101 * 2.0 + 103 * 3.0);
  EXPECT_EQ(energy["alus"], 107 * 5.0);
  EXPECT_EQ(energy["sram"], (109 + 113) * 32 * 7.0);
  EXPECT_EQ(energy["streams"], 131 * 32 * 11.0) << "by hops, not by vectors";
  EXPECT_EQ(energy["links"], 137 * 32 * 13.0);
}

TEST_F(Reports, ALinkIsHeldForASlotByEachVectorAndTheBusiestComesFirst) {
  result.pes[0].busy[machine.queue({UnitKind::Send, Hemisphere::West, 0})] = 10;
  result.pes[2].busy[machine.queue({UnitKind::Send, Hemisphere::West, 1})] = 25;
  const std::vector<LinkUse> uses = linkUses(result, machine);
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].link.from, 2u);
  EXPECT_EQ(uses[0].link.to, 1u);
  EXPECT_EQ(uses[0].vectors, 25u);
  EXPECT_DOUBLE_EQ(uses[0].share, 25 * 6 / 1000.0);
  EXPECT_EQ(uses[1].link.from, 0u);
  EXPECT_DOUBLE_EQ(uses[1].share, 10 * 6 / 1000.0);
}

TEST_F(Reports, HostTransfersTakeTheirBytesAndALatencyEachWay) {
  machine.host.bytesPerSecond = 1000, machine.host.latencySeconds = 0.5;
  Binding in;
  in.role = Binding::Role::Input, in.hostType = "float32", in.shape = {5, 7};
  image.bindings = {in};
  EXPECT_DOUBLE_EQ(hostSeconds(image, machine), 0.5 + 0.140);
  Binding out = in;
  out.role = Binding::Role::Output, out.hostType = "int8";
  Binding constant = in;
  constant.role = Binding::Role::HostConstant;
  Binding other = out; // not a second binding of the same output, which moves once
  other.name = "other";
  image.bindings = {in, out, out, other, constant};
  EXPECT_DOUBLE_EQ(hostSeconds(image, machine), 1 + 0.140 + 0.070);
}

TEST_F(Reports, AUnitsShareIsOfAllItsQueuesOnAllPesAndOfAllCycles) {
  const auto queue = [&](UnitKind kind, Hemisphere h = Hemisphere::West) { return machine.queue({kind, h, 0}); };
  result.total.busy[queue(UnitKind::MxmActivate)] = 100;
  result.total.busy[queue(UnitKind::MxmActivate, Hemisphere::East)] = 20;
  result.total.busy[queue(UnitKind::Alu)] = 300;
  result.total.partnerActivations = 60;
  result.total.partnerAccumulations = 30;
  const nlohmann::json shares = toJson(result, image, machine)["utilisation"];
  const double planes = 2.0 * machine.mxm.planes * 3 * 1000;
  EXPECT_DOUBLE_EQ(shares["mxm activate"], 180 / planes);
  EXPECT_DOUBLE_EQ(shares["mxm accumulate"], 30 / planes);
  EXPECT_DOUBLE_EQ(shares["mxm install"], 0);
  EXPECT_DOUBLE_EQ(shares["vxm"], 300 / (double(machine.vxm.alus) * 3 * 1000));
  for (const char *unit : {"mem", "sxm", "send", "receive"})
    EXPECT_DOUBLE_EQ(shares[unit], 0) << unit;
  EXPECT_EQ(shares.size(), 8u);
  result.measuredCycles = 0;
  for (const Utilisation &u : utilisations(result, machine))
    EXPECT_EQ(u.share, 0) << u.unit << " of no cycles";
  result.total.busy.clear();
  EXPECT_TRUE(utilisations(result, machine).empty()) << "no queue was counted";
}

TEST_F(Reports, CountersAppearUnderTheirNames) {
  const nlohmann::json json = toJson(result, image, machine);
  EXPECT_EQ(json["macs_executed"], 101 + 103);
  EXPECT_EQ(json["sram_reads"], 109);
  EXPECT_EQ(json["sram_writes"], 113);
  EXPECT_EQ(json["stream_vectors"], 127);
  EXPECT_EQ(json["stream_hops"], 131);
  EXPECT_EQ(json["link_vectors"], 137);
  EXPECT_EQ(json["measured_cycles"], 1000);
}

} // namespace
} // namespace millrace::sim
