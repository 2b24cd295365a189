// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files that are right: units, bases, overrides. WrongFilesTest.cpp has the others.

#include "arch/spec/MachineFile.h"
#include "arch/spec/Quantity.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>

namespace millrace {
namespace {

Machine variant(const std::string &text, const std::vector<std::string> &overrides = {}) {
  Expected<Machine> machine = parseMachine("name: v\nbase: tsp-v1\n" + text, "v.yaml", overrides);
  if (!machine) {
    ADD_FAILURE() << machine.error();
    return {};
  }
  return *machine;
}

TEST(Units, MayBeWrittenInMultiples) {
  const Machine m =
      variant("clock: 0.75 GHz\nhost: { rate: 32 GB/s, latency: 4 us }\n"
              "memory: { rows_per_bank: 640 KiB }\nfabric: { link: { latency: 400 ns } }\n");
  EXPECT_EQ(m.clockHz, 750e6);
  EXPECT_EQ(m.host.bytesPerSecond, 32e9);
  EXPECT_EQ(m.host.latencySeconds, 4e-6);
  EXPECT_EQ(m.memory.rowsPerBank, 2048u); // 640 KiB / 320 B
  EXPECT_EQ(m.fabric.link.latency, 300u); // 400 ns x 0.75 GHz
}

TEST(Units, OfCountsMayBeLeftOutOrInTheSingular) {
  EXPECT_EQ(variant("latency: { hop: 2 cycles }").latency.hop, 2u);
  EXPECT_EQ(variant("latency: { hop: 1 cycle }").latency.hop, 1u);
  EXPECT_EQ(variant("latency: { hop: 2 }").latency.hop, 2u);
}

TEST(Units, PrintAsTheyReadBack) {
  for (double number : {900e6, 1.5e9, 123456789.0, 1.0})
    EXPECT_EQ(*parseQuantity(printQuantity(number, "Hz"), "Hz", {}), number);
  EXPECT_EQ(printQuantity(900e6, "Hz"), "900 MHz");
  EXPECT_EQ(printQuantity(10 / 1e6, "s"), "10 us");
  EXPECT_EQ(printQuantity(24e9, "B/s"), "24 GB/s");
  EXPECT_EQ(printQuantity(216, "cycles"), "216 cycles");
}

TEST(Values, MayCarryTheirSource) {
  const Machine m = variant("streams: { value: 64, source: \"a paper\", trust: published }");
  EXPECT_EQ(m.streams, 64u);
  EXPECT_EQ(m.source.at("streams"), "a paper");
  EXPECT_EQ(m.trust.at("streams"), Trust::Published);
}

TEST(Values, WithoutASourceTakeTheOneOfTheirSection) {
  const Machine m = variant("latency:\n  source: measured\n  trust: derived\n  hop: 2\n"
                            "  mem_read: { value: 3, source: guessed, trust: inferred }\n");
  EXPECT_EQ(m.source.at("latency.hop"), "measured");
  EXPECT_EQ(m.trust.at("latency.hop"), Trust::Derived);
  EXPECT_EQ(m.source.at("latency.mem_read"), "guessed");
}

TEST(Values, OfAVariantDoNotInheritTheSourceOfWhatTheyReplace) {
  const Machine m = variant("latency: { hop: 2 }");
  EXPECT_EQ(m.source.count("latency.hop"), 0u);
  EXPECT_EQ(m.trust.count("latency.hop"), 0u);
}

TEST(Variants, StandOnBasesToAnyDepth) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "millrace-bases";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "one.yaml") << "name: one\nbase: tsp-small\nvxm: { alus: 8 }\n";
  std::ofstream(folder / "two.yaml") << "name: two\nbase: one\nstreams: 64\n";
  Expected<Machine> two = loadMachine((folder / "two.yaml").string());
  ASSERT_TRUE(two) << two.error();
  EXPECT_EQ(two->name, "two");
  EXPECT_EQ(two->streams, 64u);
  EXPECT_EQ(two->vxm.alus, 8u);
  EXPECT_EQ(two->lanes(), 32u);
  EXPECT_EQ(two->memory.slices, 44u);
}

TEST(Variants, DoNotInheritADescription) { EXPECT_EQ(variant("").description, ""); }

TEST(Formats, KeepTheOrderOfTheFileAndNewOnesFollow) {
  const Machine m = variant("mxm: { formats: { e4m3: { planes: 1, lanes_per_pass: 160 } } }");
  ASSERT_EQ(m.mxm.formats.size(), 4u);
  EXPECT_EQ(m.mxm.formats[0].type, ElementType::Int8);
  EXPECT_EQ(m.mxm.formats[3].type, ElementType::E4M3);
  ASSERT_TRUE(m.mxm.format(ElementType::Fp16));
  EXPECT_EQ(m.mxm.format(ElementType::Fp16)->planes, 2u);
  EXPECT_EQ(m.mxm.format(ElementType::Fp16)->lanesPerPass, 160u);
  EXPECT_EQ(m.mxm.format(ElementType::E5M2), nullptr);
}

TEST(Operations, MayHaveLatenciesOfTheirOwn) {
  const Machine m = variant("latency: { alu_ops: { exp.f32: 9 cycles } }");
  EXPECT_EQ(m.latency.aluLatency("exp.f32"), 9u);
  EXPECT_EQ(m.latency.aluLatency("add.f32"), 3u);
  Expected<Machine> again = parseMachine(toYaml(m));
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(again->hash(), m.hash());
}

TEST(Overrides, LieOnTopOfTheFileAndAreMarkedInferred) {
  const Machine m = variant("memory: { slices: 40 }",
                            {"memory.slices=16", "clock=1 GHz", "latency.alu_ops.exp.f32=5"});
  EXPECT_EQ(m.memory.slices, 16u);
  EXPECT_EQ(m.clockHz, 1e9);
  EXPECT_EQ(m.latency.aluLatency("exp.f32"), 5u);
  EXPECT_EQ(m.trust.at("memory.slices"), Trust::Inferred);
  EXPECT_EQ(m.source.at("memory.slices"), "--set");
}

TEST(Overrides, ChangeTheDerivedLinks) {
  Expected<Machine> m = loadMachine("mesh-4x4", {"fabric.rows=2", "fabric.link.latency=5"});
  ASSERT_TRUE(m) << m.error();
  EXPECT_EQ(m->links.size(), 2u * (2 * 3 + 4));
  EXPECT_EQ(m->links[0].latency, 5u);
}

} // namespace
} // namespace millrace
