// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The machine files that ship.

#include "arch/spec/MachineFile.h"
#include "arch/spec/Schema.h"

#include <gmock/gmock.h>

namespace millrace {
namespace {

class ShippedMachine : public testing::TestWithParam<std::string> {
protected:
  void SetUp() override {
    Expected<Machine> loaded = loadMachine(GetParam());
    ASSERT_TRUE(loaded) << loaded.error();
    machine = *loaded;
  }
  Machine machine;
};

TEST_P(ShippedMachine, IsCalledAsItsFile) { EXPECT_EQ(machine.name, GetParam()); }

TEST_P(ShippedMachine, SaysWhereEveryNumberComesFrom) {
  for (const Key &key : machineKeys()) {
    if (key.unit == "text" || key.path.starts_with("energy."))
      continue; // no energy is stated yet: all are zero
    for (const std::string &path : pathsOf(key, machine)) {
      EXPECT_EQ(machine.trust.count(path), 1u) << path;
      EXPECT_EQ(machine.source.count(path), 1u) << path;
    }
  }
}

TEST_P(ShippedMachine, LoadsAgainFromItsResolvedTextAsTheSame) {
  Expected<Machine> again = parseMachine(toYaml(machine));
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(again->hash(), machine.hash());
  EXPECT_EQ(again->name, machine.name);
  EXPECT_EQ(again->description, machine.description);
  EXPECT_EQ(again->trust, machine.trust);
  EXPECT_EQ(again->source, machine.source);
  EXPECT_EQ(toYaml(*again), toYaml(machine));
}

TEST_P(ShippedMachine, HasAllQueuesNamed) {
  for (unsigned queue = 0; queue < machine.queues(); ++queue)
    EXPECT_EQ(machine.queue(machine.unit(queue)), queue) << machine.queueName(queue);
}

INSTANTIATE_TEST_SUITE_P(All, ShippedMachine, testing::ValuesIn(machineNames()),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ShippedMachines, AreTheFourThatTheManualNames) {
  EXPECT_THAT(machineNames(), testing::ElementsAre("lp30", "mesh-4x4", "tsp-small", "tsp-v1"));
}

/// The table of latencies in docs/spec/machine.md.
TEST(TspV1, HasTheDocumentedLatencies) {
  Expected<Machine> m = loadMachine("tsp-v1");
  ASSERT_TRUE(m) << m.error();
  const LatencySpec &l = m->latency;
  EXPECT_EQ(l.sxmEntry + l.transposer + l.transposerExit, 9u);
  EXPECT_EQ(l.sxmEntry + l.distributor, 6u);
  EXPECT_EQ(l.sxmEntry + l.permutor, 60u);
  EXPECT_EQ(l.aluEntry + l.aluOp + l.aluExit, 7u);
  EXPECT_EQ(l.mxmMultiply + l.mxmAccumulate, 47u);
  EXPECT_EQ(l.mxmEntry + l.mxmMultiply, 21u);
  EXPECT_EQ(m->lastPosition(), 11u);
  EXPECT_EQ(m->position(0), 1u);
  EXPECT_EQ(m->position(43), 11u);
  EXPECT_EQ(m->trust.at("memory.slices"), Trust::Quoted);
  EXPECT_EQ(m->trust.at("latency.mem_read"), Trust::Public);
  EXPECT_EQ(m->trust.at("mxm.accumulator_rows"), Trust::Inferred);
}

TEST(Mesh, KeepsItsBasesNumbersAndTheirSources) {
  Expected<Machine> mesh = loadMachine("mesh-4x4"), tsp = loadMachine("tsp-v1");
  ASSERT_TRUE(mesh && tsp);
  EXPECT_EQ(mesh->lanes(), 32u);                                  // tsp-small
  EXPECT_EQ(mesh->latency.mxmMultiply, tsp->latency.mxmMultiply); // tsp-v1
  EXPECT_EQ(mesh->source.at("vxm.alus"), tsp->source.at("vxm.alus"));
  EXPECT_EQ(mesh->lastPosition(), 6u);
}

/// Makes the number at `path` another one.
void change(Machine &machine, const Key &key, const std::string &path) {
  const std::string name = findKey(path).name;
  std::visit(
      [&](auto member) {
        auto &number = *member(machine, name);
        if constexpr (!std::is_same_v<std::decay_t<decltype(number)>, std::string>)
          number = number * 2 + 1;
      },
      key.member);
}

TEST(Hash, ChangesWithEveryNumberButEnergy) {
  Expected<Machine> original = loadMachine("mesh-4x4", {"latency.alu_ops.exp.f32=9"});
  ASSERT_TRUE(original) << original.error();
  unsigned changed = 0;
  for (const Key &key : machineKeys()) {
    if (key.unit == "text")
      continue;
    for (const std::string &path : pathsOf(key, *original)) {
      Machine machine = *original;
      change(machine, key, path);
      EXPECT_EQ(machine.hash() != original->hash(), !key.path.starts_with("energy.")) << path;
      ++changed;
    }
  }
  EXPECT_GT(changed, 60u);
}

TEST(Hash, IgnoresNamesAndSourcesButNotTheTopology) {
  Expected<Machine> original = loadMachine("tsp-v1");
  ASSERT_TRUE(original) << original.error();
  Machine machine = *original;
  machine.name = machine.description = "other";
  machine.trust.clear();
  machine.source.clear();
  EXPECT_EQ(machine.hash(), original->hash());
  machine.fabric.topology = "ring";
  EXPECT_NE(machine.hash(), original->hash());
}

TEST(Hash, ChangesWithALinkAlone) {
  Expected<Machine> original = loadMachine("mesh-4x4");
  ASSERT_TRUE(original) << original.error();
  for (unsigned Link::*field :
       {&Link::from, &Link::to, &Link::port, &Link::toPort, &Link::latency, &Link::slot}) {
    Machine machine = *original;
    ++(machine.links[7].*field);
    EXPECT_NE(machine.hash(), original->hash());
  }
}

} // namespace
/// tsp-small changed in one way, and what its refusal must say.
struct Wrong {
  void (*change)(Machine &);
  const char *says;
};

TEST(Verify, NamesEveryContradictionOfAMachineThatNoFileHasChecked) {
  const Wrong cases[] = {
      {[](Machine &m) { m.superlanes = 0; }, "'superlanes'"},
      {[](Machine &m) { m.clockHz = 0; }, "'clock'"},
      {[](Machine &m) { m.memory.banks = 0; }, "'memory.banks'"},
      {[](Machine &m) { m.streams = 16384; }, "use at most 16383"},
      {[](Machine &m) { m.c2c.ports = 40000; }, "instructions name at most 65535"},
      {[](Machine &m) { m.mxm.columns = m.mxm.columnsPerInstall = 12; },
       "mxm.columns_per_install = 12: an install needs an aligned group"},
      {[](Machine &m) { m.mxm.columns = 2 * m.lanes(); }, "a result would not fit into one vector"},
      {[](Machine &m) { m.mxm.formats.push_back(m.mxm.formats[0]); }, "is listed twice"},
      {[](Machine &m) { m.fabric.rows = 0; }, "'fabric.rows'"},
      {[](Machine &m) { m.fabric.rows = m.fabric.columns = 256; }, "65536 PEs"},
      {[](Machine &m) { m.vxm.runningAccumulators = 0; }, "'vxm.running_accumulators'"},
  };
  for (const Wrong &wrong : cases) {
    Machine machine = *loadMachine("tsp-small");
    ASSERT_TRUE(machine.verify());
    wrong.change(machine);
    const Status status = machine.verify();
    ASSERT_FALSE(status) << wrong.says;
    EXPECT_NE(status.error().find(wrong.says), std::string::npos) << status.error();
  }
}

TEST(Verify, NamesEveryContradictionOfALink) {
  const auto refusal = [](void (*change)(Machine &)) {
    Machine machine = *loadMachine("tsp-small");
    machine.fabric.columns = 2;
    machine.c2c.ports = 2;
    machine.links = {{0, 1, 0, 0, 5, 1}, {1, 0, 0, 0, 5, 1}};
    change(machine);
    const Status status = machine.verify();
    return status ? std::string() : status.error();
  };
  EXPECT_EQ(refusal([](Machine &) {}), "");
  const Wrong cases[] = {
      {[](Machine &m) { m.links[1].from = 0, m.links[1].to = 1, m.links[1].toPort = 1; },
       "already sends"},
      {[](Machine &m) { m.links[1].from = 0, m.links[1].to = 1, m.links[1].port = 1; },
       "already receives"},
      {[](Machine &m) { m.links[0].slot = 0; }, "slot 0 must be at least 1 cycle"},
      {[](Machine &m) { m.links[0].latency = 0; }, "latency 0 and slot 1"},
  };
  for (const Wrong &wrong : cases)
    EXPECT_NE(refusal(wrong.change).find(wrong.says), std::string::npos)
        << wrong.says << ": " << refusal(wrong.change);
}

} // namespace millrace
