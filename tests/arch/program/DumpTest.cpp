// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RandomImage.h"

#include "arch/program/Assembler.h"
#include "arch/program/Dump.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace millrace::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class Dump : public testing::Test {
protected:
  const Machine machine = machineNamed("mesh-4x4");
  Image image = *assemble(R"(machine mesh-4x4
tensor X west slice=3 rows=0..9 name="the input"
data X iota
note "kernels" "[1, 2]"
note "remark" "not JSON"
binding input "x" host=float grid=int8 shape=10,8 scale=0.5
place west slices=3 row=0 lane=0 start=0,0
loop count=10 row=1 dim=0 step=1
loop count=8 lane=1 dim=1 step=1
step grid cycles=100
@0 mem.w.3 read n0=10 s0=1 out=w.in.5 tensor=X node="conv/1" from memory: X
@2 alu.1 alu n0=10 function=pass a=w.in.5 node="relu/2"
@50 alu.12 nop count=5
pe 3
@7 alu.1 alu function=pass a=latch
step host "softmax" inputs=0
step grid cycles=23
)",
                          "test.s", &machine);
  static size_t lines(const std::string &text, const std::string &with) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(with, at)) != text.npos; ++at)
      ++n;
    return n;
  }
  std::string listing(const DumpFilter &filter) const { return dumpText(image, machine, filter); }
};

TEST_F(Dump, the_text_has_header_steps_tensors_bindings_notes_and_instructions) {
  const std::string text = listing({});
  for (const char *part :
       {"machine       mesh-4x4, hash ", "PEs           16\n", "cycles        123 predicted\n",
        "instructions  4, producers 1\n", "data          320 bytes in 1 blocks\n",
        "  0  grid  100 cycles, 4 instructions\n", "  1  host  softmax, 1 inputs, 0 outputs\n",
        "  0  pe 0 mem.w.3  [0, 10)  .. to ..  the input\n",
        "  input 'x' float 10x8 as int8, 1 placements\n",
        "    pe 0 mem.w.3 from row 0 lane 0: 10 (row 1, lane 0, index 0 by 1) x 8 (row 0, lane 1, "
        "index 1 by 1)\n",
        "  kernels: [1, 2]\n", "  #0  @0 mem.w.3 read n0=10 s0=1 out=w.in.5  ; conv/1\n",
        "step 0, pe 3\n  #0  @7 alu.1 alu function=pass a=latch"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST_F(Dump, filters_let_through_what_they_say) {
  const auto count = [&](const DumpFilter &filter) { return lines(listing(filter), "  #"); };
  DumpFilter filter;
  EXPECT_EQ(count(filter), 4u);
  filter.pe = 3;
  EXPECT_EQ(count(filter), 1u);
  filter = {};
  filter.queue = "alu";
  EXPECT_EQ(count(filter), 3u);
  filter.queue = "alu.1";
  EXPECT_EQ(count(filter), 2u) << "alu.12 is another queue";
  filter = {};
  filter.node = "relu";
  EXPECT_EQ(count(filter), 1u);
  filter = {};
  filter.step = 2;
  EXPECT_EQ(count(filter), 0u);
}

TEST_F(Dump, a_burst_is_listed_for_every_cycle_that_it_runs_in) {
  const auto count = [&](uint64_t from, uint64_t to) {
    DumpFilter filter;
    filter.pe = 0, filter.from = from, filter.to = to;
    return lines(listing(filter), "  #");
  };
  EXPECT_EQ(count(9, 9), 2u) << "the read runs in cycles 0 to 9";
  EXPECT_EQ(count(10, 10), 1u);
  EXPECT_EQ(count(12, 49), 0u);
  EXPECT_EQ(count(54, 60), 1u) << "the nop holds its queue in cycles 50 to 54";
  EXPECT_EQ(count(55, 60), 0u);
}

TEST_F(Dump, producers_are_listed_on_request) {
  DumpFilter filter;
  EXPECT_THAT(listing(filter), Not(HasSubstr("from pe 0 block 0")));
  filter.producers = true;
  EXPECT_THAT(listing(filter),
              HasSubstr("      memory i0 0+10 i1 0+1 from pe 0 block 0 row 0 by 1, 10\n"));
}

TEST_F(Dump, json_counts_what_the_image_holds) {
  const auto json = nlohmann::json::parse(dumpJson(image, machine));
  EXPECT_EQ(json["machine"], "mesh-4x4");
  EXPECT_EQ(json["pes"], 16);
  EXPECT_EQ(json["predicted_cycles"], 123);
  EXPECT_EQ(json["instructions"], 4);
  EXPECT_EQ(json["elements"], 10 + 10 + 1 + 1);
  EXPECT_EQ(json["per_opcode"]["alu"], 2);
  EXPECT_EQ(json["per_unit"]["alu"], 3);
  EXPECT_EQ(json["steps"][1]["function"], "softmax");
  EXPECT_EQ(json["bindings"][0]["elements"], 80);
  EXPECT_EQ(json["bindings"][0]["elements_written"], 80);
  EXPECT_EQ(json["notes"]["kernels"][1], 2);
  EXPECT_EQ(json["notes"]["remark"], "not JSON");
}

TEST_F(Dump, random_images_of_any_machine_are_dumped_on_any_machine) {
  const Machine small = machineNamed("tsp-small"), large = machineNamed("tsp-v1");
  const Image ofLarge = RandomImage(large, 1).make();
  DumpFilter all;
  all.producers = true;
  for (const Machine *m : {&small, &large}) {
    EXPECT_GT(dumpText(ofLarge, *m, all).size(), 1000u);
    EXPECT_GT(dumpJson(ofLarge, *m).size(), 100u);
  }
  EXPECT_THAT(dumpText(ofLarge, small), HasSubstr("(not that of tsp-small)"));
}

} // namespace
} // namespace millrace::test
