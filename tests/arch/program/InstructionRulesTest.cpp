// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an instruction may name (R4, R7, T12), where a binding may lie and where a block may end: the last place that is allowed, and
// the one behind it.
#include "RandomImage.h"

#include "arch/program/ImageCheck.h"

#include <gmock/gmock.h>

namespace millrace::test {
namespace {

using testing::HasSubstr;

class Rules : public testing::Test {
protected:
  const Machine machine = machineNamed("tsp-v1"); // with four planes

  std::string error(Unit unit, Instruction i) const {
    i.queue = uint16_t(machine.queue(unit));
    const Status s = verifyInstruction(i, machine);
    return s ? "no error" : s.error();
  }
  Instruction activate(ElementType format) const {
    Instruction i;
    i.opcode = Opcode::Activate, i.format = format, i.k1 = 8, i.g1 = 1;
    i.a = {OperandKind::Stream, 1, machine.stream(Hemisphere::West, Direction::Outward, 4)};
    return i;
  }
  static Unit plane(unsigned index, UnitKind kind = UnitKind::MxmActivate) {
    return {kind, Hemisphere::West, index};
  }
};

TEST_F(Rules, SixteenBitFormatsWorkOnAnEvenPlaneAndTheNext) {
  ASSERT_GE(machine.mxm.planes, 2u);
  for (unsigned p = 0; p < machine.mxm.planes; ++p) {
    EXPECT_EQ(error(plane(p), activate(ElementType::Int8)), "no error");
    if (p % 2 == 0)
      EXPECT_EQ(error(plane(p), activate(ElementType::Fp16)), "no error");
    else
      EXPECT_THAT(error(plane(p), activate(ElementType::Fp16)), HasSubstr("an even plane and the next one (R4)"));
  }
  Machine wide = machine; // where the odd plane in the middle has one behind it
  wide.mxm.planes = 4;
  Instruction i = activate(ElementType::Fp16);
  i.queue = uint16_t(wide.queue(plane(1)));
  const Status s = verifyInstruction(i, wide);
  ASSERT_FALSE(s);
  EXPECT_THAT(s.error(), HasSubstr("(R4)"));
}

TEST_F(Rules, AnActivationMultipliesAsManyLanesAsItsFormatPasses) {
  for (ElementType format : {ElementType::Int8, ElementType::Fp16}) {
    const unsigned most = machine.mxm.format(format)->lanesPerPass;
    Instruction i = activate(format);
    i.k0 = 0, i.k1 = uint16_t(most);
    EXPECT_EQ(error(plane(0), i), "no error");
    i.k0 = uint16_t(machine.lanes() - most), i.k1 = uint16_t(machine.lanes());
    EXPECT_EQ(error(plane(0), i), "no error");
    i.k1 = uint16_t(machine.lanes() + 1);
    EXPECT_THAT(error(plane(0), i), HasSubstr("at most " + std::to_string(most)));
    i.k0 = i.k1 = 5;
    EXPECT_THAT(error(plane(0), i), HasSubstr("are not what a pass multiplies"));
  }
  Instruction i = activate(ElementType::Fp16);
  i.k0 = 3, i.k1 = uint16_t(4 + machine.mxm.format(ElementType::Fp16)->lanesPerPass);
  EXPECT_THAT(error(plane(0), i), HasSubstr("are not what a pass multiplies")) << "within the vector, but one too many";
}

TEST_F(Rules, AnEmittedResultLeavesInward) {
  Instruction i;
  i.opcode = Opcode::Accumulate, i.format = ElementType::Int8, i.function = uint8_t(AccumulateMode::Emit);
  i.out[0] = machine.stream(Hemisphere::West, Direction::Inward, 4);
  EXPECT_EQ(error(plane(0, UnitKind::MxmAccumulate), i), "no error");
  i.out[0] = machine.stream(Hemisphere::West, Direction::Outward, 4);
  EXPECT_THAT(error(plane(0, UnitKind::MxmAccumulate), i), HasSubstr("must leave inward"));
}

TEST_F(Rules, ColumnGroupsBuffersAndAccumulatorRowsEndWhereThePlaneDoes) {
  const unsigned groups = machine.mxm.columns / machine.mxm.columnsPerInstall;
  Instruction i = activate(ElementType::Int8);
  i.g0 = uint16_t(groups - 1), i.g1 = uint16_t(groups);
  EXPECT_EQ(error(plane(0), i), "no error");
  i.g1 = uint16_t(groups + 1);
  EXPECT_THAT(error(plane(0), i), HasSubstr("column groups"));
  i.g0 = i.g1 = 1;
  EXPECT_THAT(error(plane(0), i), HasSubstr("column groups"));
  i = activate(ElementType::Int8);
  i.buffer = uint8_t(machine.mxm.buffers - 1);
  EXPECT_EQ(error(plane(0), i), "no error");
  i.buffer = uint8_t(machine.mxm.buffers);
  EXPECT_THAT(error(plane(0), i), HasSubstr("weight buffer"));
  Instruction sum;
  sum.opcode = Opcode::Accumulate, sum.format = ElementType::Int8, sum.out[0] = kNoStream;
  sum.address = machine.mxm.accumulatorRows - 1;
  EXPECT_EQ(error(plane(0, UnitKind::MxmAccumulate), sum), "no error");
  ++sum.address;
  EXPECT_THAT(error(plane(0, UnitKind::MxmAccumulate), sum), HasSubstr("accumulator rows"));
}

TEST_F(Rules, ABindingEndsAtTheLastLaneRowAndSlice) {
  Binding b;
  b.name = "x", b.role = Binding::Role::Input, b.hostType = "int8", b.gridType = ElementType::Int8, b.shape = {4};
  Placement p;
  p.slices = {uint16_t(machine.memory.slices - 1)}, p.start = {0};
  p.row = machine.rowsPerSlice() - 1, p.lane = machine.lanes() - 4;
  BindingLoop loop;
  loop.count = 4, loop.laneStep = 1, loop.dim = 0, loop.step = 1;
  p.loops = {loop};
  const auto error = [&](const Placement &placement) {
    b.placements = {placement};
    const Status s = verifyBinding(b, machine);
    return s ? std::string("no error") : s.error();
  };
  EXPECT_EQ(error(p), "no error");
  Placement beyond = p;
  ++beyond.lane;
  EXPECT_THAT(error(beyond), HasSubstr("lanes [317, 320] lie outside [0, 319]"));
  beyond = p, ++beyond.row;
  EXPECT_THAT(error(beyond), HasSubstr("rows"));
  beyond = p, ++beyond.slices[0];
  EXPECT_THAT(error(beyond), HasSubstr("slice"));
}

TEST_F(Rules, ABlockEndsWithTheData) {
  Image image = RandomImage(machine, 5).make();
  image.blocks.resize(1);
  Block &b = image.blocks[0];
  b.bytes = 16, b.rows = 3;
  b.offset = image.data.size() - 48;
  ASSERT_GE(image.data.size(), 64u);
  image.producers.assign(image.producers.size(), {}); // which name blocks
  for (auto &list : image.instructions)
    for (Instruction &i : list.edit())
      i.producers = 0, i.producerCount = 0;
  EXPECT_TRUE(checkImage(image)) << checkImage(image).error();
  ++b.offset;
  ASSERT_FALSE(checkImage(image)) << "it ends a byte behind the data";
  EXPECT_THAT(checkImage(image).error(), HasSubstr("the end of its data"));
  b.offset += 15;
  EXPECT_FALSE(checkImage(image)) << "its last row lies behind the data";
}

TEST_F(Rules, AnInputIsOfTheUnitsHemisphere) {
  Instruction i = activate(ElementType::Int8);
  EXPECT_EQ(error(plane(0), i), "no error");
  i.a.index = machine.stream(Hemisphere::East, Direction::Outward, 4);
  EXPECT_THAT(error(plane(0), i), HasSubstr("its operand e.out.4 is of the other hemisphere"));
}

TEST_F(Rules, GroupsAreOneTwoOrFourStreamsWideAndFlagsAreKnown) {
  Instruction i;
  i.opcode = Opcode::Alu, i.function = uint8_t(AluOp::AddF32);
  i.a = {OperandKind::Stream, 4, machine.stream(Hemisphere::East, Direction::Inward, 8)};
  i.b = {OperandKind::Latch, 0, 0};
  i.out[1] = machine.stream(Hemisphere::East, Direction::Outward, 4), i.outWidth = 4;
  const Unit alu{UnitKind::Alu, Hemisphere::West, 2};
  EXPECT_EQ(error(alu, i), "no error");
  i.a.width = 3;
  EXPECT_THAT(error(alu, i), HasSubstr("must be 1, 2 or 4 streams wide"));
  i.a.width = 4, i.outWidth = 3;
  EXPECT_THAT(error(alu, i), HasSubstr("a result is 1, 2 or 4 streams wide, not 3"));
  i.outWidth = 4, i.flags = 0x80;
  EXPECT_THAT(error(alu, i), HasSubstr("flags 128 are not known"));
}

TEST_F(Rules, AnOutputLiesInMemoryOrIsMadeByAHostStep) {
  Image image = RandomImage(machine, 5).make();
  Binding output;
  output.name = "made", output.role = Binding::Role::Output, output.hostType = "float32", output.gridType = ElementType::Fp32;
  output.shape = {4};
  image.bindings.push_back(output);
  const auto error = [&] {
    const Status s = verifyImage(image, machine);
    return s ? std::string("no error") : s.error();
  };
  EXPECT_THAT(error(), HasSubstr("output 'made' lies nowhere in memory, and no host step makes it"));
  for (Step &step : image.steps)
    if (step.kind == Step::Kind::Host)
      step.outputs.push_back(uint32_t(image.bindings.size() - 1));
  EXPECT_EQ(error(), "no error");
}

TEST_F(Rules, PermutorsTakeBijectionsOnly) {
  Image image = RandomImage(machine, 5).make();
  image.laneMaps.assign(1, std::vector<uint16_t>(machine.lanes()));
  for (unsigned l = 0; l < machine.lanes(); ++l)
    image.laneMaps[0][l] = uint16_t(machine.lanes() - 1 - l);
  for (auto &list : image.instructions)
    list = std::vector<Instruction>{};
  for (auto &producers : image.producers)
    producers = std::vector<Producer>{};
  for (Step &step : image.steps)
    for (PeRange &range : step.pes)
      range = {0, step.kind == Step::Kind::Grid && &step == &image.steps.front() ? 1u : 0u};
  ASSERT_EQ(image.steps.front().kind, Step::Kind::Grid);
  for (size_t s = 1; s < image.steps.size(); ++s)
    for (PeRange &range : image.steps[s].pes)
      range = {1, 1};
  Instruction config;
  config.opcode = Opcode::Config, config.queue = uint16_t(machine.queue({UnitKind::Permutor, Hemisphere::East, 0}));
  for (auto &list : image.instructions)
    list = std::vector<Instruction>{config};
  const auto error = [&] {
    const Status s = verifyImage(image, machine);
    return s ? std::string("no error") : s.error();
  };
  EXPECT_EQ(error(), "no error");
  image.laneMaps[0][7] = image.laneMaps[0][8];
  EXPECT_THAT(error(), HasSubstr("takes lane 311 twice"));
  image.laneMaps[0][7] = 0xffff;
  EXPECT_THAT(error(), HasSubstr("has a lane without a source"));
  for (auto &list : image.instructions)
    list.edit()[0].queue = uint16_t(machine.queue({UnitKind::Distributor, Hemisphere::East, 0}));
  EXPECT_EQ(error(), "no error") << "a distributor may repeat and leave out lanes";
  Instruction second = config;
  second.cycle = 1;
  image.steps.front().pes.assign(image.steps.front().pes.size(), {0, 2});
  for (size_t s = 1; s < image.steps.size(); ++s)
    image.steps[s].pes.assign(image.steps[s].pes.size(), {2, 2});
  for (auto &list : image.instructions)
    list.edit().push_back(second);
  EXPECT_THAT(error(), HasSubstr("has a lane without a source")) << "a permutor after a distributor may not";
}

} // namespace
} // namespace millrace::test
