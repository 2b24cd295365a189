// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RandomImage.h"

#include "arch/isa/Print.h"
#include "arch/program/ImageCheck.h"

#include <gmock/gmock.h>

namespace millrace::test {
namespace {

using testing::HasSubstr;

TEST(VerifyImage, random_legal_images_of_every_machine_pass) {
  for (const char *name : {"tsp-v1", "tsp-small", "lp30", "mesh-4x4"}) {
    const Machine machine = machineNamed(name);
    for (uint64_t seed = 0; seed < 5; ++seed) {
      Status s = verifyImage(RandomImage(machine, seed).make(), machine);
      ASSERT_TRUE(s) << name << ", seed " << seed << ": " << s.error();
    }
  }
}

class VerifyTspSmall : public testing::Test {
protected:
  const Machine machine = machineNamed("tsp-small");
  Image image = RandomImage(machine, 5).make();

  std::string error(const VerifyOptions &options = {}) const {
    Status s = verifyImage(image, machine, options);
    return s ? "no error" : s.error();
  }
  /// What verifyInstruction says of a legal one after a change.
  template <class F> std::string changed(Unit unit, Instruction i, F change) const {
    i.queue = uint16_t(machine.queue(unit));
    EXPECT_TRUE(verifyInstruction(i, machine)) << verifyInstruction(i, machine).error();
    change(i);
    Status s = verifyInstruction(i, machine);
    return s ? "no error" : s.error();
  }
  Instruction read() const {
    Instruction i;
    i.opcode = Opcode::Read, i.address = 10;
    i.out[0] = machine.stream(Hemisphere::West, Direction::Outward, 3);
    return i;
  }
  Instruction activate() const {
    Instruction i;
    i.opcode = Opcode::Activate, i.k1 = uint16_t(machine.lanes()), i.g1 = 1;
    i.a = {OperandKind::Stream, 1, machine.stream(Hemisphere::West, Direction::Outward, 4)};
    return i;
  }
  Instruction add() const {
    Instruction i;
    i.opcode = Opcode::Alu, i.function = uint8_t(AluOp::AddF32);
    i.a = {OperandKind::Stream, 4, machine.stream(Hemisphere::East, Direction::Inward, 8)};
    i.b = {OperandKind::Latch, 0, 0};
    i.out[1] = machine.stream(Hemisphere::East, Direction::Outward, 4);
    i.outWidth = 4;
    return i;
  }
  static constexpr Unit slice{UnitKind::Mem, Hemisphere::West, 3},
      plane{UnitKind::MxmActivate, Hemisphere::West, 0}, alu{UnitKind::Alu, Hemisphere::West, 2};
};

TEST_F(VerifyTspSmall, an_image_for_another_machine_is_rejected_unless_any_is_allowed) {
  image.machineHash ^= 1;
  EXPECT_THAT(error(), HasSubstr("compile again for this machine"));
  VerifyOptions any;
  any.anyMachine = true;
  EXPECT_EQ(error(any), "no error");
}

TEST_F(VerifyTspSmall, a_queue_that_does_not_dispatch_the_opcode_is_rejected) {
  EXPECT_THAT(
      changed(slice, read(), [&](Instruction &i) { i.queue = uint16_t(machine.queue(alu)); }),
      HasSubstr("queue alu.2 does not dispatch it"));
  EXPECT_THAT(changed(slice, read(), [](Instruction &i) { i.queue = 0xffff; }),
              HasSubstr("queue 65535 does not exist"));
}

TEST_F(VerifyTspSmall, illegal_loops_are_rejected) {
  EXPECT_THAT(changed(slice, read(), [](Instruction &i) { i.n0 = 0; }), HasSubstr("is 0"));
  EXPECT_THAT(changed(slice, read(), [](Instruction &i) { i.n0 = 5, i.n1 = 2, i.c1 = 4; }),
              HasSubstr("c1 = 4 begins the next round before 5 elements 1 cycles apart"));
}

TEST_F(VerifyTspSmall, fields_that_the_opcode_does_not_use_must_be_at_their_default) {
  EXPECT_THAT(changed(slice, read(), [](Instruction &i) { i.buffer = 1; }),
              HasSubstr("buffer is 1, which the instruction does not use"));
  EXPECT_THAT(changed(slice, read(), [](Instruction &i) { i.b.kind = OperandKind::Latch; }),
              HasSubstr("b is latch, which the instruction does not use"));
  EXPECT_THAT(changed(slice, read(), [](Instruction &i) { i.immediate = 0x10; }),
              HasSubstr("immediate is 0x10"));
}

TEST_F(VerifyTspSmall, rows_beyond_the_slice_are_rejected_wherever_the_loops_reach) {
  const auto last = machine.rowsPerSlice() - 1;
  EXPECT_EQ(changed(slice, read(), [&](Instruction &i) { i.address = last; }), "no error");
  EXPECT_THAT(changed(slice, read(), [&](Instruction &i) { i.address = last + 1; }),
              HasSubstr("lie outside [0, " + std::to_string(last) + "]"));
  EXPECT_THAT(changed(slice, read(), [](Instruction &i) { i.n0 = 12, i.s0 = -1; }),
              HasSubstr("rows [-1, 10] lie outside"));
}

TEST_F(VerifyTspSmall, streams_must_be_aligned_and_of_the_unit_s_hemisphere) {
  const StreamId east = machine.stream(Hemisphere::East, Direction::Outward, 3);
  EXPECT_THAT(changed(slice, read(), [&](Instruction &i) { i.out[0] = east; }),
              HasSubstr("its result e.out.3 is of the other hemisphere"));
  EXPECT_THAT(changed(slice, read(), [](Instruction &i) { i.out[0] = kNoStream; }),
              HasSubstr("its result none is not an aligned group of 1 streams"));
  EXPECT_THAT(changed(alu, add(), [](Instruction &i) { i.a.index += 2; }),
              HasSubstr("operand e.in.10 is not an aligned group of 4 streams"))
      << "an unaligned group of four";
}

TEST(VerifyInstruction, lanes_that_an_operation_takes_of_a_superlane_must_be_there) {
  Machine machine = machineNamed("tsp-small");
  Instruction transpose;
  transpose.opcode = Opcode::Transpose;
  transpose.queue = uint16_t(machine.queue({UnitKind::Transposer, Hemisphere::West, 0}));
  transpose.a = {OperandKind::Stream, 1, machine.stream(Hemisphere::West, Direction::Outward, 16)};
  transpose.out[0] = machine.stream(Hemisphere::West, Direction::Inward, 0);
  Instruction gather;
  gather.opcode = Opcode::Gather;
  gather.queue = uint16_t(machine.queue({UnitKind::Mem, Hemisphere::West, 3}));
  gather.a = {OperandKind::Stream, 1, machine.stream(Hemisphere::West, Direction::Outward, 2)};
  gather.out[0] = machine.stream(Hemisphere::West, Direction::Inward, 5);
  auto error = [&](const Instruction &i, unsigned lanes) {
    machine.lanesPerSuperlane = lanes, machine.superlanes = 32 / lanes;
    Status s = verifyInstruction(i, machine);
    return s ? std::string("no error") : s.error();
  };
  EXPECT_EQ(error(transpose, 16), "no error");
  EXPECT_EQ(error(transpose, 32), "no error");
  EXPECT_THAT(error(transpose, 8),
              HasSubstr("it works on 16 lanes of every superlane; tsp-small has 8"));
  EXPECT_EQ(error(gather, 2), "no error");
  EXPECT_THAT(error(gather, 1), HasSubstr("it works on 2 lanes of every superlane"));
}

TEST_F(VerifyTspSmall, matrix_operands_must_exist) {
  EXPECT_THAT(changed(plane, activate(), [&](Instruction &i) { i.buffer = 9; }),
              HasSubstr("weight buffer 9 does not exist"));
  EXPECT_THAT(changed(plane, activate(), [&](Instruction &i) { i.k1 = 0; }),
              HasSubstr("lanes [0, 0) are not what a pass multiplies"));
  EXPECT_THAT(changed(plane, activate(), [&](Instruction &i) { i.g1 = 99; }),
              HasSubstr("column groups [0, 99) are none, or more than"));
  EXPECT_THAT(changed(plane, activate(), [&](Instruction &i) { i.format = ElementType::E4M3; }),
              HasSubstr("the MXM of tsp-small has no format e4m3"));
}

TEST_F(VerifyTspSmall, an_alu_needs_the_operands_of_its_operation) {
  EXPECT_THAT(changed(alu, add(), [](Instruction &i) { i.b = {}; }),
              HasSubstr("add.f32 takes 2 operands here; operand b is none"));
  EXPECT_THAT(changed(alu, add(), [](Instruction &i) { i.flags = AluFlag::Running; }),
              HasSubstr("add.f32 takes 1 operand here; operand b is latch"));
  EXPECT_THAT(changed(alu, add(), [](Instruction &i) { i.b = {OperandKind::Alu, 0, 99}; }),
              HasSubstr("alu.99 does not exist"));
  EXPECT_THAT(changed(alu, add(), [](Instruction &i) { std::swap(i.out[0], i.out[1]); }),
              HasSubstr("its result e.out.4 must leave outward, west"));
}

TEST_F(VerifyTspSmall, instructions_must_be_sorted_and_each_in_one_step) {
  std::swap(image.instructions[0].edit()[2], image.instructions[0].edit()[3]);
  EXPECT_THAT(error(), HasSubstr("instruction 3 of pe 0 stands behind a later one"));
  std::swap(image.instructions[0].edit()[2], image.instructions[0].edit()[3]);
  --image.steps.back().pes[0].end;
  EXPECT_THAT(error(), HasSubstr("of pe 0 on belong to no step"));
  image.steps[2].pes[0].begin = 0;
  EXPECT_THAT(error(), HasSubstr("step 2 of pe 0 begins with instruction 0, not with 30"));
}

TEST_F(VerifyTspSmall, bindings_must_lie_in_memory) {
  image.bindings[0].placements[0].lane = machine.lanes() - 1;
  EXPECT_THAT(error(), HasSubstr("lie outside [0, 31]"));
  image.bindings[0].placements[0].lane = 0;
  image.bindings[0].placements[0].row = 0xffffffff;
  EXPECT_THAT(error(), HasSubstr("placement 0: rows [4294967295, "));
}

TEST_F(VerifyTspSmall, what_is_read_from_memory_must_lie_in_placements) {
  // 2^31 elements would be 8 GiB on the host, and no machine holds them.
  Binding &b = image.bindings[0];
  b.role = Binding::Role::Output;
  b.shape.back() = int64_t(1) << 28;
  EXPECT_THAT(error(), HasSubstr("its placements hold "));
  b.role =
      Binding::Role::Input; // the host's own tensor may be larger than what the grid takes of it
  EXPECT_EQ(error(), "no error");
}

TEST_F(VerifyTspSmall, lane_maps_must_be_as_long_as_a_vector) {
  image.laneMaps[1].pop_back();
  EXPECT_THAT(error(), HasSubstr("lane map 1 has 31 lanes; a vector has 32"));
}

} // namespace
} // namespace millrace::test
