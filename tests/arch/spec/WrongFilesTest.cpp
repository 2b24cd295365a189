// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every kind of wrong machine file, with the words that the user sees.

#include "arch/spec/MachineFile.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>

namespace millrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct WrongFile {
  const char *claim; ///< name of the test
  const char *text;  ///< after "name: v\nbase: tsp-v1\n", so it begins at line 3
  std::vector<const char *> words;
  std::vector<std::string> overrides = {};
};

class Wrong : public testing::TestWithParam<WrongFile> {};

TEST_P(Wrong, IsRejectedInTheseWords) {
  const WrongFile &wrong = GetParam();
  Expected<Machine> machine =
      parseMachine(std::string("name: v\nbase: tsp-v1\n") + wrong.text, "v.yaml", wrong.overrides);
  ASSERT_FALSE(machine);
  for (const char *words : wrong.words)
    EXPECT_THAT(machine.error(), HasSubstr(words));
}

const WrongFile kWrongFiles[] = {
    {"UnknownKey",
     "memory: { slice: 44 }",
     {"v.yaml:3", "unknown key 'memory.slice'", "'memory.slices'"}},
    {"UnknownSection", "\nmemry:\n  slices: 44", {"v.yaml:4", "unknown key 'memry'", "'memory'"}},
    {"KeyInTheWrongSection", "mxm: { alus: 16 }", {"unknown key 'mxm.alus'", "'vxm.alus'"}},
    {"KeyOutsideItsSection", "hop: 2", {"unknown key 'hop'", "'latency.hop'"}},
    {"KeyGivenTwice", "streams: 32\nstreams: 64", {"v.yaml:4", "'streams' is given twice"}},
    {"ValueGivenTwice",
     "streams: { value: 32, value: 64 }",
     {"v.yaml:3", "'streams.value' is given twice"}},
    {"SourceThatIsNoText", "streams: { value: 32, source: [a, b] }", {"'source' is one text"}},
    {"LinksOfATopologyThatMakesItsOwn",
     "fabric: { rows: 2, topology: ring, links: [{ from: 0, to: 1 }] }",
     {"v.yaml:3: 'fabric.links.0.from' is given", "'fabric.topology' is ring", "set it to list"}},
    {"LinksThatAreNone", "fabric: { topology: list, links: [] }", {"v.yaml:3", "is empty"}},
    {"LinkFromNowhere",
     "fabric: { rows: 2, topology: list, links: [{ to: 1 }] }",
     {"v.yaml: 'fabric.links.0.from' is missing", "two PEs"}},
    {"SyntaxError", "memory: { slices: 44", {"v.yaml:", "is no YAML"}},
    {"ValueForASection", "memory: 220 MiB", {"v.yaml:3", "'memory' is a section", "memory.slices"}},
    {"SectionForAValue", "streams: [32, 32]", {"v.yaml:3", "'streams' needs one value"}},
    {"UnknownWordBesideAValue",
     "streams: { value: 32, sorce: x }",
     {"'streams.sorce'", "'source'"}},
    {"ValueWithoutValue", "streams: { source: x }", {"'streams' needs one value"}},
    {"UnknownTrust",
     "streams: { value: 32, trust: rumour }",
     {"'trust: rumour'", "published, quoted"}},
    {"NoNumber", "streams: many", {"v.yaml:3: 'streams' = 'many' is no number"}},
    {"EmptyNumber", "streams:", {"'streams' needs one value"}},
    {"NoWholeNumber", "streams: 32.5", {"'streams' = 32.5 is no whole number of streams"}},
    {"TooSmall",
     "memory: { slices: 0 }",
     {"'memory.slices' = 0 lies outside 1 to 16384 slices", "choose"}},
    {"Negative", "latency: { hop: -1 }", {"'latency.hop' = -1 lies outside"}},
    {"TooLarge", "vxm: { alus: 1000 }", {"'vxm.alus' = 1000 lies outside 1 to 255 ALUs"}},
    {"MissingUnit", "clock: 900", {"'clock' = '900' has no unit; write one of GHz, MHz, kHz, Hz"}},
    {"UnknownUnit", "clock: 900 Mhz", {"the unknown unit 'Mhz'", "GHz, MHz, kHz, Hz"}},
    {"UnitOfAnotherDimension", "clock: 900 MiB", {"the unknown unit 'MiB'"}},
    {"TimeThatIsNoWholeCycle",
     "latency: { hop: 1 ns }",
     {"'latency.hop'", "0.9 cycles at 900 MHz", "in cycles"}},
    {"SizeThatIsNoWholeRow",
     "memory: { rows_per_bank: 1 MiB }",
     {"3276.8 rows of 320 B", "write it in rows"}},
    {"UnknownFormat",
     "mxm: { formats: { fp17: { planes: 2 } } }",
     {"names no element type", "'fp16'"}},
    {"UnknownTopology",
     "fabric: { topology: mash }",
     {"'fabric.topology' = 'mash' is unknown", "'mesh'"}},
    {"SlicesThatLeaveARegisterPartlyEmpty",
     "memory: { slices: 42 }",
     {"memory.slices = 42", "slices_per_register = 4"}},
    {"RowsThatAreNotTheLanes", "mxm: { rows: 160 }", {"mxm.rows = 160", "vector length 320"}},
    {"ColumnsThatFillNoGroup",
     "mxm: { columns: 310 }",
     {"mxm.columns = 310", "columns_per_install = 16"}},
    {"FormatWithTooFewPlanes",
     "mxm: { formats: { fp16: { planes: 1 } } }",
     {"mxm.formats.fp16", "2 bytes", "not 1"}},
    {"FormatWithoutLanes",
     "mxm: { formats: { e4m3: { planes: 1 } } }",
     {"'mxm.formats.e4m3.lanes_per_pass' = 0"}},
    {"PlanesThatDoNotPair", "mxm: { planes: 3 }", {"2 planes at once", "mxm.planes = 3"}},
    {"ManyPesOnTheirOwn", "fabric: { rows: 2 }", {"'fabric.topology' is single", "= 2"}},
    {"TooFewPorts",
     "fabric: { rows: 2, columns: 2, topology: mesh }\nc2c: { ports: 2 }",
     {"c2c.ports = 2", "raise it"}},
    {"TooManyStreams",
     "streams: 1024\nmxm: { columns_per_install: 16 }\nlanes_per_superlane: 4000",
     {"4000 lies outside"}},
    {"PortsBeyondTheLine",
     "c2c: { position: 12 }",
     {"c2c.position = 12", "last stream position 11"}},
    {"UnknownBase", "base: tsp-v2", {"'base' is given twice"}},
    {"UnknownOperation",
     "latency: { alu_ops: { exp.f23: 9 cycles } }",
     {"v.yaml:3: 'latency.alu_ops.exp.f23' names no operation", "did you mean 'exp.f32'?"}},
    {"OverrideWithoutValue", "", {"--set streams", "has no '='"}, {"streams"}},
    {"OverrideOfAnUnknownKey",
     "",
     {"--set memory.slice=16", "'memory.slices'"},
     {"memory.slice=16"}},
    {"OverrideOutOfRange", "", {"--set vxm.alus=0: 'vxm.alus' = 0 lies outside"}, {"vxm.alus=0"}},
};

INSTANTIATE_TEST_SUITE_P(Files, Wrong, testing::ValuesIn(kWrongFiles),
                         [](const auto &info) { return std::string(info.param.claim); });

TEST(WrongFiles, WithoutANameOrARequiredKeyNameIt) {
  EXPECT_THAT(parseMachine("base: tsp-v1\n", "v.yaml").error(),
              HasSubstr("v.yaml: 'name' is missing"));
  EXPECT_THAT(parseMachine("name: v\n", "v.yaml").error(),
              AllOf(HasSubstr("'clock' is missing"), HasSubstr("56 other keys"),
                    HasSubstr("base")));
  EXPECT_THAT(parseMachine("", "v.yaml").error(), HasSubstr("v.yaml: holds no keys"));
}

TEST(WrongFiles, UnknownNamesAreAnsweredWithTheNearestMachine) {
  EXPECT_THAT(loadMachine("tsp-v2").error(),
              AllOf(HasSubstr("unknown machine 'tsp-v2'"), HasSubstr("'tsp-v1'")));
  EXPECT_THAT(loadMachine("nowhere/x.yaml").error(), HasSubstr("no machine file 'nowhere/x.yaml'"));
  EXPECT_THAT(parseMachine("name: v\nbase: mesh-4x5\n", "v.yaml").error(),
              AllOf(HasSubstr("v.yaml:2: base: unknown machine"), HasSubstr("'mesh-4x4'")));
}

TEST(WrongFiles, BasesInACycleAreNamedInTheirOrder) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "millrace-cycle";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "a.yaml") << "name: a\nbase: b\n";
  std::ofstream(folder / "b.yaml") << "name: b\nbase: c\n";
  std::ofstream(folder / "c.yaml") << "name: c\nbase: a\n";
  EXPECT_THAT(loadMachine((folder / "a.yaml").string()).error(),
              HasSubstr("bases form a cycle: a -> b -> c -> a"));
}

} // namespace
} // namespace millrace
