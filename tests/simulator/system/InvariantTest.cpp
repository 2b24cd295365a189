// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each invariant by a program that keeps it and one that breaks it by the least amount, with the
// cycle worked out.
#include "tests/simulator/system/Program.h"

namespace millrace::sim::test {

static const Row kOnes(320, 1);

static void expectRight(const SimulationResult &r) { EXPECT_FALSE(r.violation) << verdict(r); }

static void expectViolation(const SimulationResult &r, Invariant invariant, Cycle cycle,
                            const Machine &m, Unit unit) {
  ASSERT_TRUE(r.violation) << "no violation, but " << nameOf(invariant) << " was expected";
  EXPECT_EQ(r.violation->invariant, invariant) << verdict(r);
  EXPECT_EQ(r.violation->cycle, cycle) << verdict(r);
  EXPECT_EQ(r.violation->queue, m.queue(unit)) << verdict(r);
  EXPECT_FALSE(r.violation->message.empty());
}

static Unit mem(unsigned slice, Hemisphere h = E) { return {UnitKind::Mem, h, slice}; }
static Unit alu(unsigned index) { return {UnitKind::Alu, W, index}; }

static Program empty() { return Program(machineNamed("tsp-v1")); }

/// A read of `slice` in cycle `t` (row 0, holding ones).
static void readOnes(Program &p, Cycle t, unsigned slice, StreamId out, Loops l = {}) {
  if (p.tensorAt(E, slice, 0) == 0xffffffff)
    p.rows(E, slice, 0, std::vector<Row>(8, kOnes));
  p.read(t, E, slice, 0, out, l);
}

TEST(S1, AQueueDispatchesOneInstructionPerCycle) {
  for (Cycle second : {100, 101}) {
    Program p = empty();
    readOnes(p, 100, 8, p.stream(E, Out, 0));
    p.tensor(E, 8, 4096, 1);
    readOnes(p, 99 + 2, 4, p.stream(E, Out, 1));
    p.write(second, E, 8, 4096, p.on(E, Out, 1)); // nothing of it matters here but S1
    SimulationResult r = p.run();
    ASSERT_TRUE(r.violation); // the written stream is empty in either case
    EXPECT_EQ(r.violation->invariant, second == 100 ? Invariant::S1 : Invariant::S4) << verdict(r);
    EXPECT_EQ(r.violation->cycle, second);
  }
}

TEST(S1, ANopHoldsItsQueue) {
  for (Cycle t : {104, 105}) {
    Program p = empty();
    p.add(100, mem(8), Opcode::Nop).n0 = 5;
    readOnes(p, t, 8, p.stream(E, Out, 0));
    t == 105 ? expectRight(p.run())
             : expectViolation(p.run(), Invariant::S1, 104, p.machine, mem(8));
  }
}

TEST(S1, ARepeatHoldsItsQueueUntilItsLastDispatch) {
  for (Cycle t : {121, 120}) {
    Program p = empty();
    readOnes(p, 90, 8, p.stream(E, Out, 0), times(2));
    Instruction &repeat = p.add(100, mem(8), Opcode::Repeat);
    repeat.n0 = 3, repeat.c0 = 10; // copies at 100, 110, 120
    readOnes(p, t + 1, 8, p.stream(E, Out, 1));
    p.image.instructions[0].edit().back().cycle = uint64_t(t);
    SimulationResult r = p.run();
    if (t == 121) // the last copy's second element still holds the port
      expectViolation(r, Invariant::S2, 121, p.machine, mem(8));
    else
      expectViolation(r, Invariant::S1, 120, p.machine, mem(8));
  }
}

TEST(S1, ProgramOrderIsTheOrderOfTheList) {
  Program p = empty();
  readOnes(p, 100, 8, p.stream(E, Out, 0));
  readOnes(p, 110, 8, p.stream(E, Out, 0));
  p.sort();
  p.image.machineHash = p.machine.hash();
  p.image.instructions[0].edit()[1].cycle = 90;
  p.image.steps.assign(1, Step());
  p.image.steps[0].pes = {{0, 2}};
  for (auto simulator : {simulate, simulateSlowly}) {
    auto r = simulator(p.image, p.machine, handWritten(), nullptr);
    ASSERT_TRUE(r);
    expectViolation(*r, Invariant::S1, 90, p.machine, mem(8));
  }
}

TEST(S2, APortRunsOneBurstAtATime) {
  for (Cycle t : {103, 104}) {
    Program p = empty();
    readOnes(p, 100, 8, p.stream(E, Out, 0), times(4));
    readOnes(p, t, 8, p.stream(E, Out, 1));
    t == 104 ? expectRight(p.run())
             : expectViolation(p.run(), Invariant::S2, 103, p.machine, mem(8));
  }
}

TEST(S2, ABurstDoesNotOverlapItself) {
  for (uint32_t c1 : {3u, 4u}) {
    Program p = empty();
    readOnes(p, 100, 8, p.stream(E, Out, 0), {4, 2, 1, c1, 1, 0});
    c1 == 4 ? expectRight(p.run())
            : expectViolation(p.run(), Invariant::S2, 100, p.machine, mem(8));
  }
}

TEST(S2, OneStreamGroupDoesNotEnterAnAluFromBothSides) {
  for (unsigned index : {0u, 1u}) {
    Program p = empty();
    readOnes(p, 100, 0, p.stream(E, In, 0));
    p.rows(W, 0, 0, {kOnes});
    p.read(100, W, 0, 0, p.stream(W, In, index));
    p.compute(102, 3, AluOp::AddI32, p.on(E, In, 0), p.on(W, In, index), kNoStream);
    index == 1 ? expectRight(p.run())
               : expectViolation(p.run(), Invariant::S2, 102, p.machine, alu(3));
  }
}

/// Slice 8 (position 3) sends to the VXM, reached in cycle 104; slice 4 (position 2) injects on the
/// same stream.
static Program crossing(Cycle second, Loops l = {}) {
  Program p = empty();
  readOnes(p, 100, 8, p.stream(E, In, 0), l);
  readOnes(p, second, 4, p.stream(E, In, 0), l);
  p.compute(104, 0, AluOp::Pass, p.on(E, In, 0), {}, kNoStream, 1, l);
  p.annotate(alu(0), 104, ProducerOf::A, p.indexOf(0, mem(8), 100), l.n0);
  return p;
}

TEST(S3, NothingIsInjectedOverAVectorThatIsStillSampled) {
  for (Cycle t : {100, 102})
    expectRight(crossing(t).run());
  // Read at 101, in the register in cycle 102, where the other vector is then.
  Program p = crossing(101);
  expectViolation(p.run(), Invariant::S3, 102, p.machine, mem(4));
}

TEST(S3, StridedBurstsMayInterleave) {
  Loops every2{4, 1, 2, 1, 1, 0};
  expectRight(crossing(100, every2).run());
  Program p = crossing(103, every2); // its first vector meets the second one
  expectViolation(p.run(), Invariant::S3, 104, p.machine, mem(4));
}

TEST(S3, ARegisterTakesOneVectorPerCycle) {
  for (Cycle t : {100, 101}) {
    Program p = empty();
    readOnes(p, 100, 8, p.stream(E, In, 0));
    readOnes(p, t, 9, p.stream(E, In, 0)); // the same position
    t == 101 ? expectRight(p.run())
             : expectViolation(p.run(), Invariant::S3, 101, p.machine, mem(9));
  }
}

TEST(S3, PastItsLastSamplerARegisterIsFree) {
  Program p = empty();
  readOnes(p, 100, 0, p.stream(E, Out, 0)); // position 1 in cycle 101
  p.tensor(E, 8, 100, 1);
  p.write(103, E, 8, 100, p.on(E, Out, 0)); // position 3
  p.annotate(mem(8), 103, ProducerOf::A, p.indexOf(0, mem(0), 100));
  readOnes(p, 103, 12, p.stream(E, Out, 0)); // position 4 in cycle 104, the same diagonal
  expectRight(p.run());
}

TEST(S4, AnOperandIsOnItsStreamInTheCycleItIsSampled) {
  for (Cycle t : {103, 104, 105}) {
    Program p = empty();
    readOnes(p, 100, 8, p.stream(E, In, 0));
    p.compute(t, 0, AluOp::Pass, p.on(E, In, 0), {}, kNoStream);
    t == 104 ? expectRight(p.run()) : expectViolation(p.run(), Invariant::S4, t, p.machine, alu(0));
  }
}

TEST(S4, AnOperandIsTheVectorThatIsMeant) {
  for (uint32_t element : {0u, 1u}) {
    Program p = empty();
    readOnes(p, 100, 8, p.stream(E, In, 0), times(3));
    p.compute(104, 0, AluOp::Pass, p.on(E, In, 0), {}, kNoStream, 1, times(2));
    p.annotate(alu(0), 104, ProducerOf::A, p.indexOf(0, mem(8), 100), 2, kAllBytes, element);
    element == 0 ? expectRight(p.run())
                 : expectViolation(p.run(), Invariant::S4, 104, p.machine, alu(0));
  }
}

TEST(S4, AChainedOperandLeavesItsAluInThatCycle) {
  for (Cycle t : {106, 107, 108}) {
    Program p = empty();
    readOnes(p, 100, 8, p.stream(E, In, 0));
    p.compute(104, 0, AluOp::Pass, p.on(E, In, 0), {}, kNoStream);
    p.compute(t, 1, AluOp::Pass, Program::alu(0), {}, kNoStream);
    t == 107 ? expectRight(p.run()) : expectViolation(p.run(), Invariant::S4, t, p.machine, alu(1));
  }
}

TEST(S4, AnnotationsAreWholeWhereTheyAreRequired) {
  Program p = empty();
  readOnes(p, 100, 8, p.stream(E, In, 0));
  SimulationOptions options;
  expectViolation(p.run(options), Invariant::S4, 100, p.machine, mem(8));
  p.annotate(mem(8), 100, ProducerOf::Memory, kInitialContents);
  expectRight(p.run(options));
  p.image.producers[0].edit()[0].of = ProducerOf::B; // damaged: a Read has no operand b
  expectViolation(p.run(options), Invariant::S4, 100, p.machine, mem(8));
}

TEST(S4, NoTwoEntriesOfALongAnnotationSpeakOfOneElement) {
  const unsigned n = 48;
  for (bool twice : {false, true}) {
    Program p = empty();
    readOnes(p, 100, 8, p.stream(E, In, 0), times(n, 0));
    p.compute(104, 0, AluOp::Pass, p.on(E, In, 0), {}, kNoStream, 1, times(n));
    // One entry per element, the last element first.
    const uint32_t read = p.indexOf(0, mem(8), 100);
    p.annotate(alu(0), 104, ProducerOf::A, read, 1, kAllBytes, n - 1);
    Instruction &i = p.image.instructions[0].edit()[p.indexOf(0, alu(0), 104)];
    std::vector<Producer> &table = p.image.producers[0].edit();
    for (unsigned k = 0; k < n; ++k) {
      Producer entry = table[i.producers];
      entry.from0 = uint16_t(n - 1 - k), entry.first = n - 1 - k;
      k ? table.push_back(entry) : void(table[i.producers] = entry);
    }
    i.producerCount = uint16_t(n);
    if (twice) // the first element a second time, the second never
      table[n - 2].from0 = 0, table[n - 2].first = 0;
    twice ? expectViolation(p.run(), Invariant::S4, 104, p.machine, alu(0)) : expectRight(p.run());
  }
}

TEST(S4, AnAccumulateTakesTheProductOfOneCycle) {
  for (Cycle d : {20, 21, 22}) {
    Program p = empty();
    p.add(50, {UnitKind::MxmInstall, E, 0}, Opcode::Clear);
    readOnes(p, 100, 43, p.stream(E, Out, 0));
    p.activate(101, E, 0, 0, p.on(E, Out, 0), ElementType::Int8, 0, 320, 20);
    p.accumulate(101 + d, E, 0, 0, 0, ElementType::Int8, kNoStream);
    d == 21 ? expectRight(p.run())
            : expectViolation(p.run(), Invariant::S4, 101 + d, p.machine,
                              {UnitKind::MxmAccumulate, E, 0});
  }
}

TEST(S5, ABankServesOneAccessPerCycle) {
  for (uint32_t row : {7u, 4096u}) {
    Program p = empty();
    readOnes(p, 100, 8, p.stream(E, Out, 0));
    p.tensor(E, 12, row, 1);
    p.write(102, E, 12, row, p.on(E, Out, 0)); // bank slot 104
    p.rows(E, 12, 0, {kOnes});
    p.read(104, E, 12, 0, p.stream(E, Out, 1));
    row == 4096 ? expectRight(p.run())
                : expectViolation(p.run(), Invariant::S5, 104, p.machine, mem(12));
  }
}

TEST(S5, ABankServesOneAccessPerCycleWhereWritesTakeNoTimeEither) {
  for (uint32_t row : {7u, 4096u}) {
    Program p = empty();
    p.machine.latency.memWrite = 0;
    p.rows(E, 12, 0, {kOnes, kOnes});
    readOnes(p, 100, 8, p.stream(E, Out, 0));
    p.tensor(E, 12, row, 1);
    p.read(101, E, 12, 0, p.stream(E, Out, 1), times(2)); // slots 101 and 102
    p.write(102, E, 12, row, p.on(E, Out, 0));
    row == 4096 ? expectRight(p.run())
                : expectViolation(p.run(), Invariant::S5, 102, p.machine, mem(12));
  }
}

TEST(S6, ARowIsReadAfterItsWriteSlot) {
  for (Cycle t : {105, 106}) {
    Program p(machineNamed("tsp-v1"));
    p.machine.latency.readAfterWrite = 2;
    readOnes(p, 100, 8, p.stream(E, Out, 0));
    p.tensor(E, 12, 0, 1);
    p.write(102, E, 12, 0, p.on(E, Out, 0)); // bank slot 104
    p.read(t, E, 12, 0, p.stream(E, Out, 1));
    t == 106 ? expectRight(p.run())
             : expectViolation(p.run(), Invariant::S6, t, p.machine, mem(12));
  }
}

TEST(S6, ARowIsReadBeforeItIsOverwritten) {
  for (Cycle t : {103, 106}) {
    Program p = empty();
    readOnes(p, 100, 8, p.stream(E, Out, 0));
    p.rows(E, 12, 0, {kOnes});
    p.write(102, E, 12, 0, p.on(E, Out, 0)); // bank slot 104
    p.read(t, E, 12, 0, p.stream(E, Out, 1));
    p.annotate(mem(12), t, ProducerOf::Memory, kInitialContents);
    p.image.producers[0].edit()[0].block = 1;
    t == 103 ? expectRight(p.run())
             : expectViolation(p.run(), Invariant::S6, 106, p.machine, mem(12));
  }
}

TEST(S6, ARowThatNobodyWroteIsNotRead) {
  Program p = empty();
  p.tensor(E, 8, 0, 1);
  p.read(100, E, 8, 0, p.stream(E, Out, 0));
  expectViolation(p.run(), Invariant::S6, 100, p.machine, mem(8));
}

/// Two activations from cycle 200 on; column groups 0 to 19 of buffer 0 are installed from 150 and
/// again from `again`.
static Program reinstalled(Cycle again) {
  Program p = empty();
  for (unsigned s = 0; s < 16; ++s) {
    p.rows(E, 24 + s, 0, std::vector<Row>(20, kOnes));
    const Cycle late = p.machine.position(24 + s) - 7;
    for (Cycle install : {Cycle(150), again})
      p.read(install - 5 + late, E, 24 + s, 0, p.stream(E, Out, s), times(20));
  }
  for (Cycle install : {Cycle(150), again})
    p.install(install, E, 0, 0, 0, p.on(E, Out, 0), times(20));
  readOnes(p, 199, 43, p.stream(E, Out, 16), times(2));
  p.activate(200, E, 0, 0, p.on(E, Out, 16), ElementType::Int8, 0, 320, 20, times(2));
  p.accumulate(221, E, 0, 0, 0, ElementType::Int8, kNoStream, times(2));
  return p;
}

TEST(S7, WeightsAreReplacedOnlyBehindTheLastActivation) {
  // The last activation, of cycle 201, uses group c in cycle 201 + c.
  expectRight(reinstalled(202).run());
  Program p = reinstalled(201);
  expectViolation(p.run(), Invariant::S7, 201, p.machine, {UnitKind::MxmActivate, E, 0});
}

TEST(S7, ColumnsThatWereNeverInstalledAreNotUsed) {
  for (bool cleared : {false, true}) {
    Program p = empty();
    if (cleared)
      p.add(197, {UnitKind::MxmInstall, E, 0}, Opcode::Clear);
    readOnes(p, 199, 43, p.stream(E, Out, 16));
    p.activate(200, E, 0, 0, p.on(E, Out, 16), ElementType::Int8, 0, 320, 20);
    cleared
        ? expectRight(p.run())
        : expectViolation(p.run(), Invariant::S7, 200, p.machine, {UnitKind::MxmActivate, E, 0});
  }
}

TEST(S7, TheBufferIsTheOneThatIsMeant) {
  for (uint32_t named : {0u, 1u}) {
    Program p = empty();
    p.add(100, {UnitKind::MxmInstall, E, 0}, Opcode::Clear);
    p.add(110, {UnitKind::MxmInstall, E, 0}, Opcode::Clear);
    readOnes(p, 199, 43, p.stream(E, Out, 16));
    p.activate(200, E, 0, 0, p.on(E, Out, 16), ElementType::Int8, 0, 320, 20);
    Unit unit{UnitKind::MxmActivate, E, 0};
    p.annotate(unit, 200, ProducerOf::A, p.indexOf(0, mem(43), 199));
    p.annotate(unit, 200, ProducerOf::Weights,
               p.indexOf(0, {UnitKind::MxmInstall, E, 0}, named ? 110 : 100), 20, kAllBytes, 0, 0);
    named ? expectRight(p.run()) : expectViolation(p.run(), Invariant::S7, 200, p.machine, unit);
  }
}

TEST(S4, ASumIsAddedOnlyToARowThatWasWritten) {
  for (uint8_t first : {uint8_t(0), AccumulateMode::Add}) {
    Program p = empty();
    p.add(50, {UnitKind::MxmInstall, E, 0}, Opcode::Clear);
    readOnes(p, 99, 43, p.stream(E, Out, 0));
    p.activate(100, E, 0, 0, p.on(E, Out, 0), ElementType::Int8, 0, 320, 20);
    p.accumulate(121, E, 0, 5, first, ElementType::Int8, kNoStream);
    first == 0
        ? expectRight(p.run())
        : expectViolation(p.run(), Invariant::S4, 121, p.machine, {UnitKind::MxmAccumulate, E, 0});
  }
}

TEST(S8, AnAccumulatorRowRestsBetweenTwoPasses) {
  for (Cycle d : {33, 34}) {
    Program p = empty();
    p.add(50, {UnitKind::MxmInstall, E, 0}, Opcode::Clear);
    for (Cycle t : {Cycle(100), 100 + d}) {
      readOnes(p, t - 1, 43, p.stream(E, Out, 0));
      p.activate(t, E, 0, 0, p.on(E, Out, 0), ElementType::Int8, 0, 320, 20);
      p.accumulate(t + 21, E, 0, 5, t == 100 ? 0 : AccumulateMode::Add, ElementType::Int8,
                   kNoStream);
    }
    d == 34 ? expectRight(p.run())
            : expectViolation(p.run(), Invariant::S8, 121 + 33, p.machine,
                              {UnitKind::MxmAccumulate, E, 0});
  }
}

TEST(S8, ARunningAccumulatorIsReadyAfterTheOperation) {
  for (uint32_t apart : {2u, 3u}) {
    Program p = empty();
    readOnes(p, 100, 0, p.stream(E, In, 0), {1, 4, 1, apart, 0, 1});
    p.compute(102, 0, AluOp::AddI32, p.on(E, In, 0), {}, p.stream(E, Out, 0), 4,
              {1, 4, 1, apart, 0, 0})
        .flags = AluFlag::Running;
    apart == 3 ? expectRight(p.run())
               : expectViolation(p.run(), Invariant::S8, 104, p.machine, alu(0));
  }
}

TEST(S10, RowsLieInsideTheirTensorWhileItLives) {
  for (unsigned count : {8u, 9u}) {
    Program p = empty();
    p.rows(E, 8, 0, std::vector<Row>(8, kOnes));
    p.rows(E, 8, 8, {kOnes});
    p.read(100, E, 8, 0, p.stream(E, Out, 0), times(count));
    count == 8 ? expectRight(p.run())
               : expectViolation(p.run(), Invariant::S10, 108, p.machine, mem(8));
  }
  for (uint64_t to : {103u, 102u}) {
    Program p = empty();
    readOnes(p, 100, 8, p.stream(E, Out, 0), times(4));
    p.image.tensors[0].step1 = 0, p.image.tensors[0].to = to;
    to == 103 ? expectRight(p.run())
              : expectViolation(p.run(), Invariant::S10, 103, p.machine, mem(8));
  }
}

TEST(S10, NoRowBelongsToTwoLiveTensors) {
  for (uint64_t from : {50u, 51u}) {
    Program p = empty();
    p.tensor(E, 8, 0, 4);
    p.tensor(E, 8, 3, 4);
    p.image.tensors[0].step1 = 0, p.image.tensors[0].to = 50;
    p.image.tensors[1].from = from;
    readOnes(p, 100, 4, p.stream(E, Out, 0));
    from == 51 ? expectRight(p.run())
               : expectViolation(p.run(), Invariant::S10, 50, p.machine, mem(8));
  }
}

TEST(S10, AGatherStaysInsideItsTensor) {
  for (uint8_t index : {7, 8}) {
    Program p = empty();
    Row map(320);
    map[16] = index;
    p.rows(E, 40, 0, {map});
    readOnes(p, 100, 43, p.stream(E, In, 5)); // only to load its 8 rows
    p.read(120, E, 40, 0, p.stream(E, Out, 0));
    Instruction &g = p.add(121, mem(43), Opcode::Gather);
    g.a = p.on(E, Out, 0), g.out[0] = p.stream(E, Out, 1), g.tensor = p.tensorAt(E, 43, 0);
    index == 7 ? expectRight(p.run())
               : expectViolation(p.run(), Invariant::S10, 121, p.machine, mem(43));
  }
}

TEST(S10, AScatterStaysInsideItsTensor) {
  for (uint8_t index : {7, 8}) {
    Program p = empty();
    Row map(320);
    map[16] = index;
    p.rows(E, 4, 0, {map});
    const uint32_t table = p.rows(E, 8, 0, std::vector<Row>(8, kOnes));
    readOnes(p, 100, 5, p.stream(E, Out, 1));
    p.read(100, E, 4, 0, p.stream(E, Out, 0));
    Instruction &s = p.add(102, mem(8), Opcode::Scatter);
    s.a = p.on(E, Out, 0), s.b = p.on(E, Out, 1), s.tensor = table;
    index == 7 ? expectRight(p.run())
               : expectViolation(p.run(), Invariant::S10, 104, p.machine, mem(8));
  }
}

TEST(S11, TheHeadersCountIsWhatIsMeasured) {
  Program p = empty();
  readOnes(p, 100, 8, p.stream(E, Out, 0));
  p.tensor(E, 12, 0, 1);
  p.write(102, E, 12, 0, p.on(E, Out, 0));
  const uint64_t count = 1 + 104 + 35 + 20; // last bank slot, barrier, stagger
  EXPECT_EQ(p.run(handWritten(), count).measuredCycles, count);
  for (uint64_t predicted : {count, count - 1, count + 1}) {
    SimulationResult r = p.run(handWritten(), predicted);
    EXPECT_EQ(bool(r.violation), predicted != count);
    if (r.violation) {
      EXPECT_EQ(r.violation->invariant, Invariant::S11) << verdict(r);
    }
  }
}

TEST(S11, AProgramThatRunsFarBeyondItsCountIsStopped) {
  // 60000 reads, a million cycles apart; or one that is dispatched after as long.
  for (bool late : {false, true}) {
    Program p = empty();
    readOnes(p, late ? Cycle(1) << 34 : 100, 8, p.stream(E, Out, 0),
             {uint16_t(late ? 1 : 60000), 1, 1000000, 1, 0, 0});
    p.image.machineHash = p.machine.hash();
    p.image.steps.assign(1, Step());
    p.image.steps[0].pes = {{0, 1}};
    p.image.steps[0].predictedCycles = 1000;
    for (auto simulator : {simulate, simulateSlowly}) {
      SimulationOptions options = handWritten();
      options.values = false;
      const auto r = simulator(p.image, p.machine, options, nullptr);
      ASSERT_TRUE(r) << r.error();
      ASSERT_TRUE(r->violation);
      EXPECT_EQ(r->violation->invariant, Invariant::S11) << verdict(*r);
      EXPECT_LT(r->violation->cycle, late ? (Cycle(1) << 34) + 1 : 20000000);
    }
  }
}

} // namespace millrace::sim::test
