// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RandomImage.h"

#include "arch/program/Assembler.h"
#include "arch/program/ImageCheck.h"
#include "arch/program/ImageFile.h"

#include <gmock/gmock.h>

namespace millrace::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Reads one row, adds one to every byte in an ALU, writes it back.
const std::string kAddOne = R"(machine tsp-small
tensor X west slice=3 rows=0..9     ; ten rows of input
data X iota
tensor Y west slice=4 rows=100..109
step grid cycles=140
pe 0
load: @0  mem.w.3 read n0=10 s0=1 out=w.in.5 tensor=X from memory: X[0]
add:  @2  alu.2 alu function=add.i32 a=w.in.5 b=immediate immediate=0x1 west=w.out.7 width=1 n0=10 node="add one" from a: load
      @11 mem.w.4 write n0=10 s0=1 address=100 a=w.out.7 tensor=Y from a: add[0]
)";

class Assembly : public testing::Test {
protected:
  const Machine machine = machineNamed("tsp-small");

  Image image(const std::string &text) {
    Expected<Image> result = assemble(text, "test.s", &machine);
    EXPECT_TRUE(result) << result.error();
    return result ? *result : Image();
  }
  std::string error(const std::string &text) {
    Expected<Image> result = assemble(text, "test.s", &machine);
    return result ? "no error" : result.error();
  }
  /// The error of one line inside a program that is right without it.
  std::string errorOf(const std::string &line) {
    return error("machine tsp-small\ntensor X west slice=3 rows=0..9\nstep grid\n" + line);
  }
};

TEST_F(Assembly, a_program_of_three_instructions_becomes_an_image) {
  const Image i = image(kAddOne);
  Status verified = verifyImage(i, machine);
  ASSERT_TRUE(verified) << verified.error();
  ASSERT_EQ(i.instructions.size(), 1u);
  ASSERT_EQ(i.instructions[0].size(), 3u);
  const Instruction &add = i.instructions[0][1];
  EXPECT_EQ(add.cycle, 2u);
  EXPECT_EQ(machine.queueName(add.queue), "alu.2");
  EXPECT_EQ(add.n0, 10);
  EXPECT_EQ(add.function, uint8_t(AluOp::AddI32));
  EXPECT_EQ(add.immediate, 1u);
  EXPECT_EQ(add.out[0], machine.stream(Hemisphere::West, Direction::Outward, 7));
  EXPECT_EQ(add.out[1], kNoStream);
  EXPECT_EQ(i.strings[add.provenance], "add one");
  EXPECT_EQ(i.instructions[0][2].tensor, 1u);
  EXPECT_EQ(i.steps[0].predictedCycles, 140u);
  EXPECT_EQ(i.steps[0].pes[0].end, 3u);
  EXPECT_EQ(i.machineHash, machine.hash());
}

TEST_F(Assembly, producers_are_found_by_label_and_by_tensor) {
  const Image i = image(kAddOne);
  ASSERT_EQ(i.producers[0].size(), 3u);
  const Producer &ofRead = i.producers[0][i.instructions[0][0].producers];
  EXPECT_EQ(ofRead.of, ProducerOf::Memory);
  EXPECT_EQ(ofRead.instruction, kInitialContents);
  EXPECT_EQ(ofRead.block, 0u);
  const Producer &ofAdd = i.producers[0][i.instructions[0][1].producers];
  EXPECT_EQ(ofAdd.of, ProducerOf::A);
  EXPECT_EQ(ofAdd.instruction, 0u);
  EXPECT_EQ(ofAdd.byte, kAllBytes);
  EXPECT_EQ(ofAdd.count0, 10u);
  EXPECT_EQ(ofAdd.step0, 1);
}

TEST_F(Assembly, instructions_may_stand_in_any_order_and_labels_follow_them) {
  const Image i = image("machine tsp-small\nstep grid\n"
                        "late: @9 alu.1 alu function=pass a=alu.0 from a: early\n"
                        "early: @6 alu.0 alu function=pass a=w.in.0\n");
  EXPECT_EQ(i.instructions[0][0].cycle, 6u);
  EXPECT_EQ(i.producers[0][0].instruction, 0u);
}

TEST_F(Assembly, data_takes_hex_iota_random_and_every_element_type) {
  const auto bytes = [&](const std::string &form) {
    const Image i = image("machine tsp-small\ntensor X west slice=0 rows=0..0\ndata X " + form);
    return std::vector<unsigned>(i.data.begin(), i.data.begin() + 8);
  };
  EXPECT_THAT(bytes("hex 00ff 1"
                    "2"),
              ElementsAre(0, 0xff, 0x12, 0, 0, 0, 0, 0));
  EXPECT_THAT(bytes("iota"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(bytes("int8 -1 127"), ElementsAre(0xff, 0x7f, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(bytes("fp16 1 -2"), ElementsAre(0, 0x3c, 0, 0xc0, 0, 0, 0, 0));
  EXPECT_THAT(bytes("bf16 1"), ElementsAre(0x80, 0x3f, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(bytes("fp32 1 0.5"), ElementsAre(0, 0, 0x80, 0x3f, 0, 0, 0, 0x3f));
  EXPECT_THAT(bytes("int32 -2"), ElementsAre(0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0));
  EXPECT_THAT(bytes("all int8 3"), ElementsAre(3, 3, 3, 3, 3, 3, 3, 3));
  EXPECT_THAT(bytes("byte=1 fp16 1 -2"), ElementsAre(0x3c, 0xc0, 0, 0, 0, 0, 0, 0));
  EXPECT_EQ(bytes("random 5"), bytes("random 5"));
  EXPECT_NE(bytes("random 5"), bytes("random 6"));
}

TEST_F(Assembly, random_legal_images_survive_disassembly_bit_for_bit) {
  for (const char *name : {"tsp-small", "mesh-4x4", "lp30"}) {
    const Machine other = machineNamed(name);
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const Image before = RandomImage(other, seed).make(40, 1 + unsigned(seed % 3));
      const std::string text = disassemble(before, other);
      Expected<Image> after = assemble(text, "round.s", &other);
      ASSERT_TRUE(after) << name << ", seed " << seed << ": " << after.error();
      ASSERT_EQ(encodeImage(*after), encodeImage(before)) << name << ", seed " << seed;
    }
  }
}

TEST_F(Assembly, producer_tables_in_another_order_survive_too) {
  Image before = RandomImage(machine, 4).make();
  std::vector<Instruction> &list = before.instructions[0].edit();
  std::swap(list[3].producers, list[9].producers);
  std::swap(list[3].producerCount, list[9].producerCount);
  before.producers[0].edit().emplace_back();
  Expected<Image> after = assemble(disassemble(before, machine), "round.s", &machine);
  ASSERT_TRUE(after) << after.error();
  EXPECT_EQ(encodeImage(*after), encodeImage(before));
}

TEST_F(Assembly, the_machine_is_loaded_by_its_name) {
  Expected<Image> result = assemble("machine mesh-4x4\nstep grid\n", "test.s");
  ASSERT_TRUE(result) << result.error();
  EXPECT_EQ(result->instructions.size(), 16u);
  EXPECT_EQ(result->machineHash, machineNamed("mesh-4x4").hash());
  EXPECT_THAT(assemble("machine tsp-smal\n", "test.s").error(), HasSubstr("test.s:1:9: "));
}

TEST_F(Assembly, errors_name_line_column_and_what_was_expected) {
  EXPECT_THAT(error(""), HasSubstr("test.s: the text names no machine"));
  EXPECT_EQ(error("; nothing\nstep grid"),
            "test.s:2:1: name the machine first, like 'machine tsp-small'");
  EXPECT_THAT(errorOf("foo"),
              HasSubstr("test.s:4:1: 'foo' begins no line; there are @CYCLE LABEL: "));
  EXPECT_EQ(error("machine tsp-small\n@0 alu.0 nop"),
            "test.s:2:1: begin a step first, like 'step grid cycles=100'");
  EXPECT_THAT(errorOf("@x alu.0 nop"), HasSubstr("test.s:4:2: 'x' is not a whole number"));
  EXPECT_THAT(errorOf("x: 0 alu.0 nop"), HasSubstr("test.s:4:4: '0' should be the dispatch cycle"));
  EXPECT_THAT(errorOf("@0 alu.99 nop"), HasSubstr("test.s:4:4: 'alu.99' is no queue of tsp-small"));
  EXPECT_THAT(errorOf("@0 alu.0 nup"), HasSubstr("test.s:4:10: 'nup' is no instruction"));
  EXPECT_THAT(errorOf("@0 alu.0"), HasSubstr("test.s:4:9: the instruction is missing here"));
  EXPECT_THAT(errorOf("@0 alu.0 nop buffer=1"),
              HasSubstr("test.s:4:14: nop has no 'buffer'; it has count and node"));
  EXPECT_THAT(errorOf("@0 alu.0 nop count=70000"),
              HasSubstr("test.s:4:20: count=70000 is outside [0, 65535]"));
  EXPECT_THAT(errorOf("@0 alu.0 nop count=1 count=2"),
              HasSubstr("test.s:4:22: count is given twice"));
  EXPECT_THAT(errorOf("@0 mem.w.3 read out=w.out.32"),
              HasSubstr("test.s:4:21: stream 32 does not exist; there are 32"));
  EXPECT_THAT(errorOf("@0 mem.w.3 read out=q.1"),
              HasSubstr("test.s:4:21: 'q.1' is no stream; write w.out.5"));
  EXPECT_THAT(errorOf("@0 mem.w.3 read out=w.out.1 tensor=Z"),
              HasSubstr("test.s:4:36: there is no tensor 'Z' above this line"));
  EXPECT_THAT(errorOf("@0 alu.0 alu function=ad.f32"),
              HasSubstr("test.s:4:23: 'ad.f32' is no ALU operation"));
  EXPECT_THAT(errorOf("@0 alu.0 read out=w.out.1"),
              HasSubstr("test.s:4:1: queue alu.0 does not dispatch it"));
  EXPECT_THAT(errorOf("@0 alu.0 alu function=pass a=alu.1 from a: who"),
              HasSubstr("test.s:4:44: 'who' is no label and no tensor"));
  EXPECT_THAT(errorOf("@0 alu.0 alu function=pass a=alu.1 from z: who"),
              HasSubstr("test.s:4:41: 'z:' should be one of a: b: c: memory:"));
  EXPECT_THAT(errorOf("x: @0 alu.0 nop\nx: @1 alu.0 nop"),
              HasSubstr("test.s:5:1: label 'x:' is already taken"));
  EXPECT_THAT(errorOf("data X int8 300"), HasSubstr("test.s:4:13: 300 is outside [-128, 127]"));
  EXPECT_THAT(errorOf("data X hex 0g"), HasSubstr("test.s:4:13: 'g' is no hex digit"));
  EXPECT_THAT(errorOf("data X words 1"), HasSubstr("test.s:4:8: 'words' is no form of data"));
  EXPECT_THAT(errorOf("data X rows=5..12 iota"), HasSubstr("tensor 'X' has 10 rows"));
  EXPECT_THAT(errorOf("data Q iota"), HasSubstr("test.s:4:6: there is no tensor 'Q'"));
  EXPECT_THAT(errorOf("tensor Y north slice=1 rows=0..1"),
              HasSubstr("test.s:4:10: 'north' is no hemisphere; write one of west, east"));
  EXPECT_THAT(errorOf("tensor Y west slice=1 rows=9..1"),
              HasSubstr("test.s:4:28: '9..1' is no range"));
  EXPECT_THAT(errorOf("tensor Y west rows=0..1"), HasSubstr("test.s:4:1: slice= is missing"));
  EXPECT_THAT(
      errorOf("tensor Y west slice=1 rows=0..1 color=red"),
      HasSubstr("test.s:4:33: 'color=red' is not expected here; what may stand here: slice="));
  EXPECT_THAT(errorOf("binding input \"x\" host=float32 grid=int8 shape=4 scale=0.5x"), HasSubstr("'0.5x' is not a number"));
  EXPECT_THAT(errorOf("note \"open"), HasSubstr("test.s:4:6: this text does not end"));
  EXPECT_THAT(errorOf("note \"\\q\" \"\""), HasSubstr("test.s:4:8: unknown escape"));
  EXPECT_THAT(errorOf("pe 1"), HasSubstr("test.s:4:4: 1: 1 is outside [0, 0]"));
}

TEST_F(Assembly, escapes_stand_for_the_bytes_that_they_name) {
  const Image i = image("machine tsp-small\nnote \"a\\x41\\x7f\\n\\t\\\\\\\"\" \"1\"\n");
  ASSERT_EQ(i.notes.size(), 1u);
  EXPECT_EQ(i.notes.begin()->first, "aA\x7f\n\t\\\"");
}

TEST_F(Assembly, the_contents_of_a_tensor_are_of_the_pe_that_holds_it) {
  const Machine mesh = machineNamed("mesh-4x4");
  Expected<Image> i = assemble("machine mesh-4x4\npe 1\ntensor X west slice=3 rows=0..9\ndata X iota\nstep grid\npe 0\n"
                               "@0 mem.w.3 read address=0 out=w.in.5 tensor=X from memory: X[2]\n",
                               "test.s", &mesh);
  ASSERT_TRUE(i) << i.error();
  ASSERT_EQ(i->producers[0].size(), 1u);
  EXPECT_EQ(i->producers[0][0].pe, 1u);
  EXPECT_EQ(i->producers[0][0].first, 2u);
}

TEST_F(Assembly, a_block_stands_as_it_is_written) {
  const Image i = image("machine tsp-small\ntensor X west slice=3 rows=0..9\nbytes zero 64\n"
                        "block X pe=0 east slice=5 rows=2+2 bytes=32 offset=0\nstep grid\n");
  ASSERT_EQ(i.blocks.size(), 1u);
  const Block &b = i.blocks[0];
  EXPECT_EQ(std::tuple(b.pe, b.hemisphere, b.slice, b.row, b.rows, b.bytes, b.offset),
            std::tuple(0, Hemisphere::East, 5, 2u, 2u, 32, 0u));
}

TEST_F(Assembly, damaged_text_is_an_error_or_an_image_never_a_crash) {
  const std::string good = disassemble(RandomImage(machine, 2).make(20), machine);
  std::mt19937_64 random(3);
  unsigned accepted = 0;
  for (int k = 0; k < 400; ++k) {
    std::string text = good;
    for (uint64_t n = 1 + random() % 3; n-- > 0;)
      text[random() % text.size()] = " \n=:.;,\"\\#[]+-0129aexw\x80"[random() % 23];
    if (random() % 4 == 0)
      text.resize(random() % text.size());
    accepted += bool(assemble(text, "damaged.s", &machine));
  }
  EXPECT_GT(accepted, 10u);
  EXPECT_LT(accepted, 400u);
}

} // namespace
} // namespace millrace::test
