// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// "Checks by composition" of docs/spec/machine.md: distances that public programs for the chip
// state, measured here as the one cycle in which a hand-written program is right: a cycle earlier
// or later it is wrong.
#include "tests/simulator/system/Program.h"

namespace millrace::sim::test {

static const Row kOnes(320, 1);

/// The program is right with `distance`, and with no distance next to it.
template <class F> static void onlyRightAt(Cycle distance, F program) {
  for (Cycle d : {distance - 1, distance, distance + 1}) {
    Program p = program(d);
    SimulationResult r = p.run();
    EXPECT_EQ(!r.violation, d == distance) << "distance " << d << ": " << verdict(r);
  }
}

/// read -> alu chain -> write of one row of group g; `slot` is the distance from the read's slot to
/// the write's.
static Program chain(unsigned group, unsigned operations, Cycle slot) {
  Program p(machineNamed("tsp-v1"));
  const unsigned slice = 4 * group;
  p.rows(E, slice, 0, {kOnes});
  p.tensor(E, slice, 4096, 1);
  p.read(100, E, slice, 0, p.stream(E, In, 0));
  const Cycle entry = 100 + 1 + group + 1;
  for (unsigned k = 0; k < operations; ++k)
    p.compute(entry + 3 * k, k, AluOp::AddI32, k ? Program::alu(k - 1) : p.on(E, In, 0),
              Program::immediate(), k + 1 == operations ? p.stream(E, Out, 0) : kNoStream)
        .immediate = 1;
  p.write(100 + slot - 2, E, slice, 4096, p.on(E, Out, 0));
  return p;
}

TEST(Composition, ReadOneOperationWriteBackTakes12Plus2gCycles) {
  for (unsigned g : {0u, 1u, 5u, 10u})
    onlyRightAt(12 + 2 * g, [&](Cycle d) { return chain(g, 1, d); });
}

TEST(Composition, FourChainedOperationsToTheDependentReadTake24Cycles) {
  for (Cycle d : {23, 24}) {
    Program p = chain(1, 4, 14 + 9);
    p.read(100 + d, E, 4, 4096, p.stream(E, Out, 9));
    SimulationResult r = p.run();
    EXPECT_EQ(!r.violation, d == 24) << verdict(r);
    if (r.violation) {
      EXPECT_EQ(r.violation->invariant, Invariant::S5)
          << verdict(r); // the write still holds the bank
    } else {
      EXPECT_EQ(p.row(E, 4, 4096)[7], 5);
    }
  }
}

/// Carry pass: `operations` before the write of 10 rows in group 1, then read again, to the ADD's
/// result at its exit.
static Cycle carryPass(unsigned operations) {
  Program p(machineNamed("tsp-v1"));
  p.rows(E, 4, 0, std::vector<Row>(10, kOnes));
  p.tensor(E, 5, 0, 10);
  const Cycle start = 200; // dispatch of the first ALU operation
  p.read(start - 3, E, 4, 0, p.stream(E, In, 0), times(10));
  for (unsigned k = 0; k < operations; ++k)
    p.compute(start + 3 * k, k, AluOp::And, k ? Program::alu(k - 1) : p.on(E, In, 0),
              Program::immediate(), k + 1 == operations ? p.stream(E, Out, 0) : kNoStream, 1,
              times(10))
        .immediate = 0xff;
  const Cycle result = start + 4 + 3 * operations; // on position 0
  p.write(result + 2, E, 5, 0, p.on(E, Out, 0), times(10));
  const Cycle lastSlot = result + 2 + 2 + 9, read = lastSlot + 1;
  p.read(read, E, 5, 0, p.stream(E, In, 1), times(10));
  const Cycle add = read + 1 + 2;
  p.compute(add, 8, AluOp::AddI32, p.on(E, In, 1), Program::immediate(), p.stream(E, Out, 5), 1,
            times(10))
      .immediate = 1;
  SimulationResult r = p.run();
  EXPECT_FALSE(r.violation) << verdict(r);
  // A violation appears when the dependent read starts one cycle earlier: 27 is the least distance.
  // From the start of AND at the array (entry passed) to the ADD's result.
  return add + 4 + 3 - (start + 4);
}

TEST(Composition, ACarryPassOfTenRowsTakes27Cycles) {
  EXPECT_EQ(carryPass(1), 27);
  EXPECT_EQ(carryPass(2), 30);
}

/// Row 0 of 16 slices of group 10 through a transposer, then `after`.
static Program transposed(Cycle distributor, std::vector<Row> rows) {
  Program p(machineNamed("tsp-v1"));
  for (unsigned s = 0; s < 16; ++s) {
    p.rows(E, 28 + s, 0, {rows[s]});
    p.read(100 + Cycle(s / 4) - 0, E, 28 + s, 0,
           p.stream(E, Out, s)); // group 7 + s / 4: farther groups later
  }
  const Cycle at = 100 + 1 + 3; // position 8 + s / 4 to 11, read s / 4 cycles later
  Instruction &t = p.add(at, {UnitKind::Transposer, E, 0}, Opcode::Transpose);
  t.a = p.on(E, Out, 0), t.out[0] = p.stream(E, In, 0);
  p.image.laneMaps = {std::vector<uint16_t>(320)};
  for (unsigned l = 0; l < 320; ++l)
    p.image.laneMaps[0][l] = l % 16;
  p.add(90, {UnitKind::Distributor, E, 0}, Opcode::Config).address = 0;
  Instruction &d = p.add(at + distributor, {UnitKind::Distributor, E, 0}, Opcode::Distribute);
  d.a = p.on(E, In, 3), d.out[0] = p.stream(E, In, 20);
  p.tensor(E, 43, 100, 1);
  p.write(at + 9 + 6, E, 43, 100, p.on(E, In, 20)); // position 11 is also that of slice 43
  return p;
}

TEST(Composition, TransposerThenDistributorTakes15Cycles) {
  std::vector<Row> rows(16, Row(320));
  for (unsigned s = 0; s < 16; ++s)
    for (unsigned l = 0; l < 320; ++l)
      rows[s][l] = uint8_t(7 * s + l % 16);
  onlyRightAt(9, [&](Cycle d) { return transposed(d, rows); });
  Program p = transposed(9, rows);
  EXPECT_FALSE(p.run().violation);
  for (unsigned l = 0; l < 320; ++l) // lane l of output stream 3 is lane 3 of input stream l
    EXPECT_EQ(p.row(E, 43, 100)[l], uint8_t(7 * (l % 16) + 3));
}

TEST(Composition, GatherInTheLastGroupThenDistributorTakes7Cycles) {
  onlyRightAt(1, [&](Cycle d) {
    Program p(machineNamed("tsp-v1"));
    Row map(320);
    for (unsigned s = 0; s < 20; ++s)
      map[16 * s] = uint8_t(s % 2);
    p.rows(E, 40, 0, {map});
    p.rows(E, 43, 0, {Row(320, 3), Row(320, 4)});
    p.read(100, E, 40, 0, p.stream(E, Out, 0));
    Instruction &g = p.add(101, {UnitKind::Mem, E, 43}, Opcode::Gather);
    g.a = p.on(E, Out, 0), g.out[0] = p.stream(E, Out, 1), g.tensor = 1;
    p.image.laneMaps = {std::vector<uint16_t>(320, 0)};
    p.add(90, {UnitKind::Distributor, E, 0}, Opcode::Config).address = 0;
    Instruction &i = p.add(101 + d, {UnitKind::Distributor, E, 0}, Opcode::Distribute);
    i.a = p.on(E, Out, 1), i.out[0] = p.stream(E, In, 2);
    p.tensor(E, 42, 0, 1);
    p.write(101 + 1 + 6, E, 42, 0, p.on(E, In, 2));
    return p;
  });
}

TEST(Composition, TransposerVxmTransposerPathTakes50Cycles) {
  onlyRightAt(9 + 11 + 4 + 9 + 11, [&](Cycle d) {
    Program p = transposed(9, std::vector<Row>(16, kOnes));
    const Cycle at = 104, vxm = at + 9 + 11; // transposer, hemisphere
    for (unsigned k = 0; k < 3; ++k)
      p.compute(vxm + 3 * k, k, AluOp::AddI32, k ? Program::alu(k - 1) : p.on(E, In, 5),
                Program::immediate(), k == 2 ? p.stream(E, Out, 17) : kNoStream)
          .immediate = 1;
    p.add(91, {UnitKind::Distributor, E, 1}, Opcode::Config).address = 0;
    Instruction &i = p.add(at + d, {UnitKind::Distributor, E, 1}, Opcode::Distribute);
    i.a = p.on(E, Out, 17), i.out[0] = p.stream(E, In, 30);
    p.tensor(E, 42, 200, 1);
    p.write(at + 50, E, 42, 200, p.on(E, In, 30));
    return p;
  });
}

/// Weights from slices of one group-aligned SG16, one activation row, its product written back.
struct Multiply {
  Cycle firstWeight =
      100; ///< dispatch of the first weight read, of the slices farthest from the MXM
  unsigned firstSlice = 25; ///< of 16 consecutive ones
  Cycle activateAfter = 3;  ///< the Install's first column group
  Cycle product = 21, result = 34 + 4, vxm = 11;
};

static Program multiply(const Multiply &m, Cycle *vxmAt = nullptr) {
  Program p(machineNamed("tsp-v1"));
  const unsigned first = p.machine.position(m.firstSlice);
  for (unsigned s = 0; s < 16; ++s) {
    const unsigned slice = m.firstSlice + s;
    p.rows(E, slice, 0, std::vector<Row>(20, kOnes));
    p.read(m.firstWeight + p.machine.position(slice) - first, E, slice, 0, p.stream(E, Out, s),
           times(20));
  }
  const Cycle install = m.firstWeight + 1 + 11 - first;
  p.install(install, E, 0, 0, 0, p.on(E, Out, 0), times(20));
  const Cycle activate = install + m.activateAfter;
  p.rows(E, 43, 0, {kOnes});
  p.read(activate - 1, E, 43, 0, p.stream(E, Out, 16));
  p.activate(activate, E, 0, 0, p.on(E, Out, 16), ElementType::Int8, 0, 320, 20);
  p.accumulate(activate + m.product, E, 0, 0, AccumulateMode::Emit, ElementType::Int8,
               p.stream(E, In, 0));
  const Cycle vxm = activate + 21 + m.result + m.vxm;
  p.compute(vxm, 0, AluOp::AddI32, p.on(E, In, 0, 4), Program::immediate(), p.stream(E, Out, 20), 4)
      .immediate = 0;
  for (unsigned b = 0; b < 4; ++b) {
    p.tensor(E, b, 0, 1);
    p.write(vxm + 7 + 1, E, b, 0, p.on(E, Out, 20 + b));
  }
  if (vxmAt)
    *vxmAt = vxm;
  return p;
}

TEST(Composition, AnMxmResultReachesTheVxmOperation19CyclesAfterTheArray) {
  // exit 4, hemisphere 11, entry 4; the array's result is at activate + 8 + 47.
  onlyRightAt(4 + 11, [](Cycle d) {
    Multiply m;
    m.vxm = 11 + d - 15;
    return multiply(m);
  });
  Program p = multiply({});
  EXPECT_FALSE(p.run().violation);
  EXPECT_EQ(p.row(E, 0, 0)[319], 320 % 256);
  EXPECT_EQ(p.row(E, 1, 0)[0], 320 / 256);
}

TEST(Composition, WeightsFromSlice25ReachTheArrayIn13CyclesAndActivationsFromSlice43In9) {
  Program p(machineNamed("tsp-v1"));
  const unsigned entry = p.machine.latency.mxmEntry;
  for (auto [slice, cycles] : {std::pair(25u, 13u), {43u, 9u}})
    onlyRightAt(Cycle(cycles - entry), [slice = slice](Cycle d) {
      Program q(machineNamed("tsp-v1"));
      q.rows(E, slice, 0, {kOnes});
      q.read(100, E, slice, 0, q.stream(E, Out, 0));
      // The permutor samples where the MXM does.
      q.image.laneMaps = {std::vector<uint16_t>(320)};
      q.add(90, {UnitKind::Distributor, E, 0}, Opcode::Config).address = 0;
      Instruction &i = q.add(100 + d, {UnitKind::Distributor, E, 0}, Opcode::Distribute);
      i.a = q.on(E, Out, 0), i.out[0] = q.stream(E, In, 0);
      return q;
    });
}

TEST(Composition, FromInstallAtTheArrayToTheProductAtTheVxmOperationIs69Cycles) {
  Cycle vxm = 0;
  Program p = multiply({}, &vxm);
  SimulationResult r = p.run();
  EXPECT_FALSE(r.violation) << verdict(r);
  const Cycle install = 100 + 1 + 4, atArray = install + 8;
  const Cycle measured = vxm + 4 - atArray;
  RecordProperty("installToProduct", int(measured));
  EXPECT_EQ(measured, 69); // public schedules need at most 72
  // An activation one cycle closer to the install breaks S7.
  Multiply close;
  close.activateAfter = 2;
  Program q = multiply(close);
  SimulationResult early = q.run();
  ASSERT_TRUE(early.violation);
  EXPECT_EQ(early.violation->invariant, Invariant::S7) << verdict(early);
  EXPECT_EQ(early.violation->cycle, install + 2);
}

TEST(Composition, FourPlanesAreInstalledWithin36Cycles) {
  // 16 streams a plane from slices 12 to 43 of both hemispheres; the farthest group is 3: 1 + 7 + 8
  // + 20.
  Program p(machineNamed("tsp-v1"));
  const Cycle start = 100;
  for (Hemisphere h : {W, E})
    for (unsigned plane = 0; plane < 2; ++plane) {
      for (unsigned s = 0; s < 16; ++s) {
        const unsigned slice = 12 + 16 * plane + s;
        p.rows(h, slice, 0, std::vector<Row>(20, kOnes));
        p.read(start + p.machine.position(slice) - 4, h, slice, 0, p.stream(h, Out, 16 * plane + s),
               times(20));
      }
      p.install(start + 1 + 7, h, plane, 0, 0, p.on(h, Out, 16 * plane), times(20));
    }
  SimulationResult r = p.run();
  EXPECT_FALSE(r.violation) << verdict(r);
  const Cycle lastInstalled = start + 8 + 19 + 8;
  EXPECT_EQ(lastInstalled - start + 1, 36);
}

TEST(Composition, ADependentStepTakes89Plus3qCyclesFromAnyGroup) {
  for (unsigned g : {0u, 3u, 10u}) {
    for (unsigned q : {1u, 4u}) {
      for (Cycle late : {0, -1}) {
        Program p(machineNamed("tsp-v1"));
        const unsigned slice = 4 * g;
        for (unsigned s = 0; s < 16; ++s)
          p.rows(W, s, 0, {kOnes});
        p.add(50, {UnitKind::MxmInstall, E, 0}, Opcode::Clear);
        p.rows(E, slice, 0, {kOnes});
        p.tensor(E, slice, 4096, 1);
        const Cycle t = 200;
        p.read(t, E, slice, 0, p.stream(E, Out, 16));
        const Cycle activate = t + 1 + 10 - g;
        p.activate(activate, E, 0, 0, p.on(E, Out, 16), ElementType::Int8, 0, 320, 20);
        p.accumulate(activate + 21, E, 0, 0, AccumulateMode::Emit, ElementType::Int8,
                     p.stream(E, In, 0));
        const Cycle vxm =
            t + 75 + 10 - g - 4; // 75 + h counts to the operation; dispatch is 4 before
        for (unsigned k = 0; k < q; ++k)
          p.compute(vxm + 3 * k, k, AluOp::AddI32, k ? Program::alu(k - 1) : p.on(E, In, 0, 4),
                    Program::immediate(), k + 1 == q ? p.stream(E, Out, 0) : kNoStream)
              .immediate = 1;
        p.write(vxm + 4 + 3 * q + g + 1, E, slice, 4096, p.on(E, Out, 0));
        p.read(t + 89 + 3 * q + late, E, slice, 4096, p.stream(E, Out, 17));
        SimulationResult r = p.run();
        EXPECT_EQ(!r.violation, late == 0)
            << "group " << g << ", " << q << " operations: " << verdict(r);
      }
    }
  }
}

} // namespace millrace::sim::test
