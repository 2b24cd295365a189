// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Damaged images: an error, a violation, or a harmless change; never a crash or a hang, and the
// same verdict with and without values.
#include "tests/simulator/system/Program.h"

#include <random>

namespace millrace::sim::test {

/// A program that uses every unit once on tsp-small.
static Program everything() {
  Program p(machineNamed("tsp-small"));
  const unsigned lanes = p.machine.lanes(), last = p.machine.lastPosition();
  auto outward = [&](unsigned slice) { return Cycle(1 + last - p.machine.position(slice)); };
  for (unsigned s = 0; s < 16; ++s) {
    p.rows(E, 8 + s, 0, std::vector<Row>(4, Row(lanes, uint8_t(s + 1))));
    p.read(100 - outward(8 + s), E, 8 + s, 0, p.stream(E, Out, s), times(2));
    p.read(150 - outward(8 + s), E, 8 + s, 2, p.stream(E, Out, s));
  }
  p.install(100, E, 0, 0, 0, p.on(E, Out, 0), times(2));
  p.rows(E, 1, 0, std::vector<Row>(6, Row(lanes, 3)));
  p.read(110 - outward(1), E, 1, 0, p.stream(E, Out, 16), times(6));
  p.activate(110, E, 0, 0, p.on(E, Out, 16), ElementType::Int8, 0, 32, 2, times(6));
  p.accumulate(131, E, 0, 0, AccumulateMode::Emit, ElementType::Int8, p.stream(E, In, 0), times(6));
  const Cycle vxm = 131 + 38 + last;
  p.compute(vxm, 0, AluOp::AddI32, p.on(E, In, 0, 4), Program::immediate(), kNoStream, 1, times(6))
      .immediate = 5;
  p.compute(vxm + 3, 1, AluOp::CvtI32I8, Program::alu(0), {}, p.stream(W, Out, 0), 1, times(6));
  p.tensor(W, 2, 0, 6);
  p.write(vxm + 3 + 7 + p.machine.position(2), W, 2, 0, p.on(W, Out, 0), times(6));
  Instruction &t = p.add(150, {UnitKind::Transposer, E, 0}, Opcode::Transpose);
  t.a = p.on(E, Out, 0), t.out[0] = p.stream(E, In, 16);
  Instruction &shift = p.add(159, {UnitKind::Shifter, E, 0}, Opcode::Shift);
  shift.a = p.on(E, In, 16), shift.out[0] = p.stream(E, In, 15), shift.immediate = 3;
  const unsigned far = p.machine.memory.slices - 1; // at the last position
  p.tensor(E, far, 0, 1);
  p.write(159 + 8, E, far, 0, p.on(E, In, 15));
  Row map(lanes);
  p.rows(W, 5, 0, {map});
  p.read(300, W, 5, 0, p.stream(W, Out, 5));
  Instruction &g = p.add(301, {UnitKind::Mem, W, 6}, Opcode::Gather);
  g.tensor = p.rows(W, 6, 0, {Row(lanes, 9), Row(lanes, 8)});
  g.a = p.on(W, Out, 5), g.out[0] = p.stream(W, Out, 6);
  p.tensor(W, 7, 0, 1);
  p.write(302, W, 7, 0, p.on(W, Out, 6));
  return p;
}

static void damage(Instruction &i, std::mt19937 &random) {
  auto any = [&](unsigned n) { return unsigned(random() % n); };
  switch (any(18)) {
  case 0:
    i.cycle += any(9);
    break;
  case 1:
    i.cycle -= std::min<uint64_t>(i.cycle, any(9));
    break;
  case 2:
    i.queue = uint16_t(any(200));
    break;
  case 3:
    i.opcode = Opcode(any(28));
    break;
  case 4:
    i.function = uint8_t(random());
    break;
  case 5:
    i.n0 = uint16_t(any(4) ? any(12) : random());
    break;
  case 6:
    i.n1 = uint16_t(any(4) ? any(12) : random());
    break;
  case 7:
    i.c0 = any(4), i.c1 = any(4) ? any(99) : uint32_t(random());
    break;
  case 8:
    i.s0 = int32_t(any(9)) - 4, i.s1 = int32_t(random());
    break;
  case 9:
    i.address = any(2) ? any(9) : uint32_t(random());
    break;
  case 10:
    i.a.index = uint16_t(any(2) ? any(130) : random());
    break;
  case 11:
    i.a.kind = OperandKind(any(6)), i.a.width = uint8_t(any(6));
    break;
  case 12:
    i.b.kind = OperandKind(any(6)), i.b.width = uint8_t(any(6)), i.b.index = uint16_t(any(40));
    break;
  case 13:
    i.out[any(2)] = StreamId(any(2) ? any(130) : random());
    break;
  case 14:
    i.buffer = uint8_t(any(4)), i.format = ElementType(any(9));
    break;
  case 15:
    i.k0 = uint16_t(any(40)), i.k1 = uint16_t(any(40));
    break;
  case 16:
    i.g0 = uint16_t(any(4)), i.g1 = uint16_t(any(4)), i.flags = uint8_t(any(3));
    break;
  default:
    i.tensor = any(40), i.producers = any(3), i.producerCount = uint16_t(any(2));
  }
}

TEST(Damage, NeverCrashesAndIsJudgedAlikeWithAndWithoutValues) {
  Program whole = everything();
  const SimulationResult right = whole.run();
  ASSERT_FALSE(right.violation) << verdict(right);
  unsigned errors = 0, violations = 0, harmless = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    std::mt19937 random(seed);
    Image image = whole.image;
    auto &list = image.instructions[0].edit();
    damage(list[random() % list.size()], random);
    SimulationOptions options = handWritten();
    auto values = simulate(image, whole.machine, options);
    options.values = false;
    auto cycles = simulate(image, whole.machine, options);
    ASSERT_EQ(bool(values), bool(cycles)) << seed;
    if (!values) {
      ++errors;
      EXPECT_EQ(values.error(), cycles.error());
      continue;
    }
    ++(values->violation ? violations : harmless);
    // Which rows a gather reads is data: only values can show that they are wrong.
    const bool gathers =
        values->violation && values->violation->instruction.find("gather") != std::string::npos;
    if (!gathers) {
      EXPECT_EQ(verdict(*values), verdict(*cycles)) << seed;
    }
    if (isShort(*values)) {
      EXPECT_EQ(differenceOn(image, whole.machine, options), "") << seed;
      options.values = true;
      EXPECT_EQ(differenceOn(image, whole.machine, options), "") << seed;
    }
  }
  RecordProperty("errors", int(errors));
  RecordProperty("violations", int(violations));
  RecordProperty("harmless", int(harmless));
  EXPECT_GT(errors, 50u);
  EXPECT_GT(violations, 100u);
}

TEST(Damage, ALatencyThatDiffersByOneIsNoticed) {
  Program p = everything();
  p.run();
  const LatencySpec latency = p.machine.latency;
  unsigned LatencySpec::*used[] = {
      &LatencySpec::hop,        &LatencySpec::memRead,        &LatencySpec::memGather,
      &LatencySpec::memWrite,   &LatencySpec::aluEntry,       &LatencySpec::aluOp,
      &LatencySpec::aluChain,   &LatencySpec::aluExit,        &LatencySpec::sxmEntry,
      &LatencySpec::transposer, &LatencySpec::transposerExit, &LatencySpec::shifter,
      &LatencySpec::mxmEntry,   &LatencySpec::mxmMultiply,    &LatencySpec::mxmAccumulate,
      &LatencySpec::mxmExit,    &LatencySpec::startBarrier,   &LatencySpec::superlaneStagger};
  for (auto parameter : used) {
    p.machine.latency = latency;
    ++(p.machine.latency.*parameter);
    SimulationOptions options = handWritten();
    options.ignoreMachineHash = true;
    auto r = simulate(p.image, p.machine, options);
    ASSERT_TRUE(r) << r.error();
    EXPECT_TRUE(r->violation) << "one parameter went unnoticed";
  }
}

TEST(Machines, WhoseResultsLeaveBeforeTheLastColumnGroupIsUsedAreRefused) {
  // tsp-small has 2 column groups, tsp-v1 20: entry + multiply + accumulate + exit of 19 is too
  // few.
  for (unsigned accumulate : {5u, 6u}) {
    auto machine = loadMachine("tsp-v1", {"latency.mxm_entry=1", "latency.mxm_multiply=13",
                                          "latency.mxm_exit=0", "latency.mxm_accumulate=6"});
    ASSERT_TRUE(machine) << machine.error();
    machine->latency.mxmAccumulate = accumulate; // no file can say 5
    Program p(*machine);
    p.image.machineHash = machine->hash();
    p.image.steps.assign(1, Step());
    p.image.steps[0].pes = {{0, 0}};
    p.image.steps[0].predictedCycles = 1 + 55;
    for (auto simulator : {simulate, simulateSlowly}) {
      const auto r = simulator(p.image, *machine, {}, nullptr);
      EXPECT_EQ(bool(r), accumulate == 6);
      if (!r) {
        EXPECT_NE(r.error().find("raise latency.mxm_accumulate to at least 6"), std::string::npos)
            << r.error();
      }
    }
  }
}

TEST(Machines, WhoseColumnGroupsAreNotOfSixteenColumnsAreRefused) {
  for (unsigned columns : {8u, 16u}) {
    Program p = Program(machineNamed("tsp-small"));
    p.machine.mxm.columnsPerInstall = columns;
    p.image.machineHash = p.machine.hash();
    p.image.steps.assign(1, Step());
    p.image.steps[0].pes = {{0, 0}};
    for (auto simulator : {simulate, simulateSlowly}) {
      const auto r = simulator(p.image, p.machine, {}, nullptr);
      EXPECT_EQ(bool(r), columns == 16);
      if (!r) {
        EXPECT_NE(r.error().find("no multiple of 16"), std::string::npos) << r.error();
      }
    }
  }
}

TEST(Machines, WithoutALatencyBetweenTwoRegistersAreRefused) {
  Program p = Program(machineNamed("tsp-small"));
  p.machine.latency.hop = 0; // no file can say so
  p.image.machineHash = p.machine.hash();
  p.image.steps.assign(1, Step());
  p.image.steps[0].pes = {{0, 0}};
  for (auto simulator : {simulate, simulateSlowly}) {
    const auto r = simulator(p.image, p.machine, {}, nullptr);
    ASSERT_FALSE(r);
    EXPECT_NE(r.error().find("hop"), std::string::npos) << r.error();
  }
}

/// Writes 5 to the first byte of row 0 of a slice, or fails.
struct Host : HostStepRunner {
  bool fails = false;
  Status run(const Image &, const Step &, RowAccess &memory) override {
    if (fails)
      return Error{"the host has no such table"};
    memory.write(0, W, 0, 0)[0] = 5;
    return Success{};
  }
};

/// A host step, then a grid step that copies what it wrote to slice 1.
static Program hostThenGrid() {
  Program p(machineNamed("tsp-small"));
  p.rows(W, 0, 0, {Row(p.machine.lanes(), 3)});
  p.tensor(W, 1, 0, 1);
  p.read(10, W, 0, 0, p.stream(W, Out, 0));
  p.write(11, W, 1, 0, p.on(W, Out, 0));
  p.sort();
  p.image.machineHash = p.machine.hash();
  Step host;
  host.kind = Step::Kind::Host;
  host.function = "table";
  Step grid;
  grid.pes = {{0, 2}};
  grid.predictedCycles = uint64_t(1 + 11 + p.machine.latency.memWrite) +
                         p.machine.latency.startBarrier + p.machine.latency.superlaneStagger;
  p.image.steps = {host, grid};
  return p;
}

TEST(HostSteps, RunBetweenGridStepsAndTheirErrorIsTheRunsOwn) {
  const Program p = hostThenGrid();
  for (auto simulator : {simulate, simulateSlowly})
    for (bool fails : {false, true}) {
      Host host;
      host.fails = fails;
      unsigned copied = 0;
      SimulationOptions options = handWritten();
      options.readOutputs = [&](RowAccess &rows) -> Status {
        Row row(p.machine.lanes());
        rows.read(0, W, 1, 0, row);
        copied = row[0];
        return Success{};
      };
      const auto r = simulator(p.image, p.machine, options, &host);
      ASSERT_EQ(bool(r), !fails) << r.error();
      if (fails) {
        EXPECT_EQ(r.error(), "the host has no such table");
        continue;
      }
      EXPECT_FALSE(r->violation) << verdict(*r);
      EXPECT_EQ(copied, 5u);
      ASSERT_EQ(r->steps.size(), 2u);
      EXPECT_EQ(r->steps[0].measuredCycles, 0u);
      EXPECT_EQ(r->measuredCycles, p.image.steps[1].predictedCycles);
    }
}

TEST(HostSteps, NeedARunnerUnlessOnlyCyclesAreAskedFor) {
  const Program p = hostThenGrid();
  for (auto simulator : {simulate, simulateSlowly}) {
    SimulationOptions options = handWritten();
    const auto values = simulator(p.image, p.machine, options, nullptr);
    ASSERT_FALSE(values);
    EXPECT_NE(values.error().find("step 'table' runs on the host"), std::string::npos)
        << values.error();
    options.values = false;
    const auto cycles = simulator(p.image, p.machine, options, nullptr);
    ASSERT_TRUE(cycles) << cycles.error();
    EXPECT_EQ(cycles->measuredCycles, p.image.steps[1].predictedCycles);
  }
}

TEST(Inputs, ThatCannotBeWrittenEndTheRunWithTheirErrorAndLeaveNothingBehind) {
  const int warnings = sc_core::sc_report_handler::get_count(sc_core::SC_WARNING);
  const Program p = hostThenGrid();
  Host host;
  SimulationOptions options = handWritten();
  options.writeInputs = [](RowAccess &) -> Status { return Error{"input 'x' is too short"}; };
  for (auto simulator : {simulate, simulateSlowly}) {
    const auto r = simulator(p.image, p.machine, options, &host);
    ASSERT_FALSE(r);
    EXPECT_EQ(r.error(), "input 'x' is too short");
  }
  ASSERT_TRUE(simulate(p.image, p.machine, handWritten(), &host));
  EXPECT_EQ(sc_core::sc_report_handler::get_count(sc_core::SC_WARNING), warnings)
      << "modules of the run that failed are still known to the kernel";
}

TEST(Images, OfAnotherMachineAreRefusedByName) {
  Program p = hostThenGrid();
  p.image.machineName = p.machine.name;
  ++p.image.machineHash;
  for (bool sameName : {true, false}) {
    if (!sameName)
      p.image.machineName = "elsewhere";
    for (auto simulator : {simulate, simulateSlowly}) {
      const auto r = simulator(p.image, p.machine, handWritten(), nullptr);
      ASSERT_FALSE(r);
      EXPECT_NE(r.error().find("compile it again"), std::string::npos) << r.error();
      EXPECT_NE(r.error().find("'" + p.image.machineName + "'"), std::string::npos) << r.error();
    }
  }
}

} // namespace millrace::sim::test
