// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each unit computes, held against arch/isa/semantics, one vector at a time.
#include "tests/simulator/Formats.h"
#include "tests/simulator/system/Program.h"

#include "arch/isa/semantics/Alu.h"
#include "arch/isa/semantics/Convert.h"
#include "arch/isa/semantics/ExactSum.h"

#include <bit>
#include <random>

namespace millrace::sim::test {

namespace {
constexpr unsigned kLanes = 32; // tsp-small

class Draw {
public:
  explicit Draw(unsigned seed) : random(seed) {}
  Row bytes(unsigned n = kLanes) {
    Row row(n);
    for (uint8_t &b : row)
      b = uint8_t(random());
    return row;
  }
  std::vector<Row> rows(unsigned n) {
    std::vector<Row> result;
    for (unsigned k = 0; k < n; ++k)
      result.push_back(bytes());
    return result;
  }
  /// Values of moderate size, low and high bytes apart.
  void floats(ElementType format, std::vector<Row> &low, std::vector<Row> &high, unsigned n) {
    std::normal_distribution<float> normal;
    low.assign(n, Row(kLanes)), high.assign(n, Row(kLanes));
    for (unsigned k = 0; k < n; ++k)
      for (unsigned l = 0; l < kLanes; ++l) {
        const uint16_t bits = narrow(format, normal(random));
        low[k][l] = uint8_t(bits), high[k][l] = uint8_t(bits >> 8);
      }
  }

private:
  std::mt19937 random;
};

Program small() { return Program(machineNamed("tsp-small")); }
} // namespace

/// Reads `rows` of a slice so that they can be sampled at position 0 from cycle `at` on.
static void feed(Program &p, Cycle at, Hemisphere h, unsigned slice, StreamId stream, unsigned n) {
  p.read(at - 1 - p.machine.position(slice), h, slice, 0, stream, times(n));
}

/// The same towards the MXM and the SXM, at the last position.
static void feedOut(Program &p, Cycle at, Hemisphere h, unsigned slice, StreamId stream,
                    unsigned n) {
  p.read(at - 1 - (p.machine.lastPosition() - p.machine.position(slice)), h, slice, 0, stream,
         times(n));
}

/// Writes `n` vectors that leave position 0 outward from cycle `at` on to rows 100 and following.
static void drain(Program &p, Cycle at, Hemisphere h, unsigned slice, Operand from, unsigned n) {
  p.tensor(h, slice, 100, n);
  p.write(at + p.machine.position(slice), h, slice, 100, from, times(n));
}

TEST(VectorUnit, EveryOperationIsTheOneOfTheSemantics) {
  for (const AluOpInfo &op : aluOpTable) {
    Program p = small();
    Draw draw(unsigned(op.op));
    std::vector<std::vector<Row>> in;
    for (unsigned s = 0; s < 12; ++s) {
      in.push_back(draw.rows(1));
      p.rows(W, s, 0, in.back());
      feed(p, 100, W, s, p.stream(W, In, s), 1);
    }
    Instruction &i =
        p.compute(100, 2, op.op, p.on(W, In, 0, 4), op.operands > 1 ? p.on(W, In, 4, 4) : Operand{},
                  p.stream(E, Out, 4), 4);
    if (op.operands > 2)
      i.c = p.on(W, In, 8, 4);
    for (unsigned b = 0; b < 4; ++b)
      drain(p, 107, E, b, p.on(E, Out, 4 + b), 1);
    SimulationResult r = p.run();
    ASSERT_FALSE(r.violation) << op.mnemonic << ": " << verdict(r);
    for (unsigned l = 0; l < kLanes; ++l) {
      auto word = [&](unsigned s) {
        return in[s][0][l] | in[s + 1][0][l] << 8 | in[s + 2][0][l] << 16 |
               uint32_t(in[s + 3][0][l]) << 24;
      };
      uint32_t expected = semantics::applyAlu(op.op, word(0), word(4), word(8)), got = 0;
      for (unsigned b = 0; b < 4; ++b)
        got |= uint32_t(p.row(E, b, 100)[l]) << 8 * b;
      EXPECT_EQ(got, expected) << op.mnemonic << " lane " << l;
    }
  }
}

TEST(VectorUnit, ALatchServesTheDispatchesAfterIt) {
  for (Cycle early : {0, 1}) {
    Program p = small();
    p.rows(W, 0, 0, {Row(kLanes, 5)});
    p.rows(W, 1, 0, {Row(kLanes, 9), Row(kLanes, 10)});
    feed(p, 100, W, 0, p.stream(W, In, 0), 1);
    feed(p, 101 - early, W, 1, p.stream(W, In, 1), 2);
    Instruction &latch = p.add(100, {UnitKind::Alu, W, 0}, Opcode::Latch);
    latch.a = p.on(W, In, 0);
    p.compute(101 - early, 0, AluOp::AddI32, p.on(W, In, 1), Program::latch(), p.stream(W, Out, 0),
              1, times(2));
    drain(p, 108 - early, W, 2, p.on(W, Out, 0), 2);
    SimulationResult r = p.run();
    if (early) {
      ASSERT_TRUE(r.violation);
      EXPECT_EQ(r.violation->invariant, Invariant::S1); // both in one cycle of the queue
      continue;
    }
    ASSERT_FALSE(r.violation) << verdict(r);
    EXPECT_EQ(p.row(W, 2, 100), Row(kLanes, 14));
    EXPECT_EQ(p.row(W, 2, 101), Row(kLanes, 15));
  }
}

TEST(VectorUnit, ARunningBurstReducesAndEmitsItsLastRow) {
  Program p = small();
  std::vector<Row> in;
  for (unsigned k = 0; k < 6; ++k)
    in.push_back(Row(kLanes, uint8_t(k + 1)));
  p.rows(W, 0, 0, in); // accumulator 0 takes rows 0, 2, 4; accumulator 1 rows 1, 3, 5
  const Cycle at = 100;
  p.read(at - 2, W, 0, 0, p.stream(W, In, 0), {2, 3, 1, 3, 1, 2});
  p.compute(at, 0, AluOp::AddI32, p.on(W, In, 0), {}, p.stream(W, Out, 0), 1, {2, 3, 1, 3, 0, 0})
      .flags = AluFlag::Running;
  p.compute(at + 6 + 3, 1, AluOp::MulI32, Program::alu(0), Program::immediate(),
            p.stream(E, Out, 0), 1, times(2))
      .immediate = 10;
  drain(p, at + 6 + 7, W, 4, p.on(W, Out, 0), 2);
  drain(p, at + 9 + 7, E, 4, p.on(E, Out, 0), 2);
  SimulationResult r = p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  EXPECT_EQ(p.row(W, 4, 100), Row(kLanes, 1 + 3 + 5));
  EXPECT_EQ(p.row(W, 4, 101), Row(kLanes, 2 + 4 + 6));
  EXPECT_EQ(p.row(E, 4, 100), Row(kLanes, 90));
}

/// An SG16 read from 16 slices of the east, and rows of all of them.
static std::vector<std::vector<Row>> sixteen(Program &p, Draw &draw, unsigned firstSlice,
                                             unsigned n) {
  std::vector<std::vector<Row>> columns;
  for (unsigned s = 0; s < 16; ++s) {
    columns.push_back(draw.rows(n));
    p.rows(E, firstSlice + s, 0, columns.back());
  }
  return columns;
}

static void installAll(Program &p, Cycle at, unsigned plane, unsigned buffer, unsigned firstSlice,
                       unsigned firstStream) {
  for (unsigned s = 0; s < 16; ++s)
    feedOut(p, at, E, firstSlice + s, p.stream(E, Out, firstStream + s), 2);
  p.install(at, E, plane, buffer, 0, p.on(E, Out, firstStream), times(2));
}

/// The result of accumulator row emitted as int32 or fp32, written to slices 0 to 3 of the west.
static void emitTo(Program &p, Cycle accumulate, unsigned n, uint32_t row) {
  const Cycle vxm = accumulate + p.machine.latency.mxmAccumulate + p.machine.latency.mxmExit +
                    p.machine.lastPosition();
  p.compute(vxm, 0, AluOp::Pass, p.on(E, In, 0, 4), {}, p.stream(W, Out, 0), 4, times(n));
  for (unsigned b = 0; b < 4; ++b) {
    p.tensor(W, b, row, n);
    p.write(vxm + 7 + p.machine.position(b), W, b, row, p.on(W, Out, b), times(n));
  }
}

static uint32_t word(Program &p, uint32_t row, unsigned lane) {
  uint32_t value = 0;
  for (unsigned b = 0; b < 4; ++b)
    value |= uint32_t(p.row(W, b, row)[lane]) << 8 * b;
  return value;
}

TEST(MatrixUnit, Int8ProductsAddOverPasses) {
  Program p = small();
  Draw draw(1);
  const unsigned n = 40;
  auto first = sixteen(p, draw, 4, 2), second = sixteen(p, draw, 20, 2);
  installAll(p, 100, 0, 0, 4, 0);
  installAll(p, 100 + n, 0, 1, 20, 0);
  std::vector<Row> x = draw.rows(n), y = draw.rows(n);
  p.rows(E, 1, 0, x), p.rows(E, 2, 0, y);
  const Cycle a = 103, b = a + n, out = p.machine.latency.mxmEntry + p.machine.latency.mxmMultiply;
  feedOut(p, a, E, 1, p.stream(E, Out, 20), n);
  p.activate(a, E, 0, 0, p.on(E, Out, 20), ElementType::Int8, 0, 32, 2, times(n));
  feedOut(p, b, E, 2, p.stream(E, Out, 21), n); // lanes 5 to 20 only
  p.activate(b, E, 0, 1, p.on(E, Out, 21), ElementType::Int8, 5, 21, 2, times(n));
  p.accumulate(a + out, E, 0, 0, 0, ElementType::Int8, kNoStream, times(n));
  p.accumulate(b + out, E, 0, 0, AccumulateMode::Add | AccumulateMode::Emit, ElementType::Int8,
               p.stream(E, In, 0), times(n));
  emitTo(p, b + out, n, 100);
  SimulationResult r = p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  for (unsigned m = 0; m < n; ++m)
    for (unsigned c = 0; c < 32; ++c) {
      int32_t sum = 0;
      for (unsigned k = 0; k < 32; ++k)
        sum += int8_t(x[m][k]) * int8_t(first[c % 16][c / 16][k]);
      for (unsigned k = 5; k < 21; ++k)
        sum += int8_t(y[m][k]) * int8_t(second[c % 16][c / 16][k]);
      EXPECT_EQ(int32_t(word(p, 100 + m, c)), sum) << m << ", " << c;
    }
  EXPECT_EQ(r.total.macsInt8, uint64_t(n) * 32 * (32 + 16));
}

TEST(MatrixUnit, WeightsReplacedBeforeResultsAreSampledDoNotChangeThem) {
  // The same buffer is installed again one cycle behind the last activation, long before the first
  // result.
  Program p = small();
  Draw draw(2);
  const unsigned n = 5;
  auto first = sixteen(p, draw, 4, 2), second = sixteen(p, draw, 20, 2);
  installAll(p, 100, 0, 0, 4, 0);
  std::vector<Row> x = draw.rows(2 * n);
  p.rows(E, 1, 0, x);
  const Cycle a = 103, again = a + n, b = again + 3;
  installAll(p, again, 0, 0, 20, 0);
  const Cycle out = p.machine.latency.mxmEntry + p.machine.latency.mxmMultiply;
  p.read(a - 1 - (p.machine.lastPosition() - 1), E, 1, 0, p.stream(E, Out, 20),
         {uint16_t(n), 2, 1, uint32_t(b - a), 1, int32_t(n)});
  p.activate(a, E, 0, 0, p.on(E, Out, 20), ElementType::Int8, 0, 32, 2, times(n));
  p.activate(b, E, 0, 0, p.on(E, Out, 20), ElementType::Int8, 0, 32, 2, times(n));
  p.accumulate(a + out, E, 0, 0, AccumulateMode::Emit, ElementType::Int8, p.stream(E, In, 0),
               times(n));
  p.accumulate(b + out, E, 0, n, AccumulateMode::Emit, ElementType::Int8, p.stream(E, In, 0),
               times(n));
  emitTo(p, a + out, n, 100);
  // The second emission enters the VXM b - a cycles after the first.
  p.image.instructions[0].edit().reserve(64);
  const Cycle vxm = b + out + 38 + p.machine.lastPosition();
  p.compute(vxm, 1, AluOp::Pass, p.on(E, In, 0, 4), {}, p.stream(W, Out, 8), 4, times(n));
  for (unsigned k = 0; k < 4; ++k) {
    p.tensor(W, 4 + k, 100, n);
    p.write(vxm + 7 + p.machine.position(4 + k), W, 4 + k, 100, p.on(W, Out, 8 + k), times(n));
  }
  SimulationResult r = p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  for (unsigned m = 0; m < n; ++m)
    for (unsigned c = 0; c < 32; ++c) {
      int32_t old = 0, fresh = 0, got = 0;
      for (unsigned k = 0; k < 32; ++k) {
        old += int8_t(x[m][k]) * int8_t(first[c % 16][c / 16][k]);
        fresh += int8_t(x[n + m][k]) * int8_t(second[c % 16][c / 16][k]);
      }
      EXPECT_EQ(int32_t(word(p, 100 + m, c)), old) << m << ", " << c;
      for (unsigned k = 0; k < 4; ++k)
        got |= int32_t(uint32_t(p.row(W, 4 + k, 100 + m)[c]) << 8 * k);
      EXPECT_EQ(got, fresh) << m << ", " << c;
    }
}

TEST(MatrixUnit, AnActivationMeetsWhatStandsInAGroupWhenItPassesIt) {
  // Right behind the activation group 0 is replaced, and a cycle later group 12, which the
  // activation has yet to reach: what was computed ahead for it does not count.
  Program p(machineNamed("tsp-v1"));
  Draw draw(7);
  const unsigned groups = p.machine.mxm.columns / 16, late = 12;
  auto old = sixteen(p, draw, 4, groups), fresh = sixteen(p, draw, 20, 2);
  const Cycle first = 200, a = first + groups + 3, again = a + 1;
  for (unsigned s = 0; s < 16; ++s) {
    feedOut(p, first, E, 4 + s, p.stream(E, Out, s), groups);
    feedOut(p, again, E, 20 + s, p.stream(E, Out, s), 2);
  }
  p.install(first, E, 0, 0, 0, p.on(E, Out, 0), times(groups));
  p.install(again, E, 0, 0, 0, p.on(E, Out, 0), times(2, late));
  const std::vector<Row> x = draw.rows(1);
  p.rows(E, 1, 0, x);
  feedOut(p, a, E, 1, p.stream(E, Out, 20), 1);
  p.activate(a, E, 0, 0, p.on(E, Out, 20), ElementType::Int8, 0, kLanes, groups);
  const Cycle out = a + p.machine.latency.mxmEntry + p.machine.latency.mxmMultiply;
  p.accumulate(out, E, 0, 0, AccumulateMode::Emit, ElementType::Int8, p.stream(E, In, 0));
  emitTo(p, out, 1, 100);
  SimulationResult r = p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  for (unsigned c = 0; c < groups * 16; ++c) {
    const Row &column = c / 16 == late ? fresh[c % 16][1] : old[c % 16][c / 16];
    int32_t sum = 0;
    for (unsigned k = 0; k < kLanes; ++k)
      sum += int8_t(x[0][k]) * int8_t(column[k]);
    EXPECT_EQ(int32_t(word(p, 100, c)), sum) << c;
  }
}

TEST(MatrixUnit, FloatsRoundEachSumOnceAndThoseOfTwoBytesUseAPairOfPlanes) {
  for (ElementType format :
       {ElementType::Fp16, ElementType::Bf16, ElementType::E4M3, ElementType::E5M2}) {
    const bool pair = byteWidth(format) == 2;
    Program p = small();
    if (!p.machine.mxm.format(format))
      p.machine.mxm.formats.push_back({format, 1, kLanes});
    Draw draw(3);
    const unsigned n = 7;
    std::vector<Row> low[16], high[16], x[2];
    for (unsigned s = 0; s < 16; ++s) {
      draw.floats(format, low[s], high[s], 2);
      p.rows(E, 4 + s, 0, low[s]), p.rows(E, 20 + s, 0, high[s]);
    }
    installAll(p, 100, 0, 1, 4, 0);
    if (pair)
      installAll(p, 110, 1, 1, 20, 16);
    draw.floats(format, x[0], x[1], n);
    p.rows(E, 1, 0, x[0]), p.rows(E, 2, 0, x[1]);
    const Cycle a = 140, out = p.machine.latency.mxmEntry + p.machine.latency.mxmMultiply;
    feedOut(p, a, E, 1, p.stream(E, Out, 2), n), feedOut(p, a, E, 2, p.stream(E, Out, 3), n);
    p.activate(a, E, 0, 1, p.on(E, Out, 2, pair ? 2 : 1), format, 16, 32, 2, times(n));
    p.accumulate(a + out, E, 0, 3, AccumulateMode::Emit, format, p.stream(E, In, 0), times(n));
    emitTo(p, a + out, n, 100);
    SimulationResult r = p.run();
    ASSERT_FALSE(r.violation) << verdict(r);
    for (unsigned m = 0; m < n; ++m)
      for (unsigned c = 0; c < 32; ++c) {
        semantics::ExactSum sum;
        for (unsigned k = 16; k < 32; ++k)
          sum.addProduct(
              widen(format, uint16_t(x[0][m][k] | x[1][m][k] << 8)),
              widen(format, uint16_t(low[c % 16][c / 16][k] | high[c % 16][c / 16][k] << 8)));
        EXPECT_EQ(word(p, 100 + m, c), std::bit_cast<uint32_t>(sum.rounded())) << m << ", " << c;
      }
  }
}

TEST(MatrixUnit, ALongBurstWhoseFirstResultsNobodyTakesKeepsItsLast) {
  Program p = small();
  Draw draw(4);
  const unsigned n = 20000, taken = 3;
  auto weights = sixteen(p, draw, 4, 2);
  installAll(p, 100, 0, 0, 4, 0);
  const std::vector<Row> x = draw.rows(5);
  p.rows(E, 1, 0, x);
  const Cycle a = 103, last = n - taken;
  const Cycle out = p.machine.latency.mxmEntry + p.machine.latency.mxmMultiply;
  // The five rows over and over.
  p.read(a - 1 - (p.machine.lastPosition() - 1), E, 1, 0, p.stream(E, Out, 20),
         {5, uint16_t(n / 5), 1, 5, 1, 0});
  p.activate(a, E, 0, 0, p.on(E, Out, 20), ElementType::Int8, 0, 32, 2, times(n));
  p.accumulate(a + last + out, E, 0, 0, AccumulateMode::Emit, ElementType::Int8, p.stream(E, In, 0),
               times(taken));
  emitTo(p, a + last + out, taken, 100);
  const SimulationResult r = p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  for (unsigned m = 0; m < taken; ++m)
    for (unsigned c = 0; c < 32; ++c) {
      int32_t sum = 0;
      for (unsigned k = 0; k < 32; ++k)
        sum += int8_t(x[(size_t(last) + m) % 5][k]) * int8_t(weights[c % 16][c / 16][k]);
      EXPECT_EQ(int32_t(word(p, 100 + m, c)), sum) << m << ", " << c;
    }
}

TEST(MatrixUnit, APairHoldsBothActivatePorts) {
  Program p = small();
  p.add(50, {UnitKind::MxmInstall, E, 0}, Opcode::Clear);
  p.add(50, {UnitKind::MxmInstall, E, 1}, Opcode::Clear);
  p.rows(E, 1, 0, {Row(kLanes, 1)}), p.rows(E, 2, 0, {Row(kLanes, 1)});
  feedOut(p, 100, E, 1, p.stream(E, Out, 0), 1), feedOut(p, 100, E, 2, p.stream(E, Out, 1), 1);
  p.activate(100, E, 0, 0, p.on(E, Out, 0, 2), ElementType::Fp16, 0, 16, 2);
  p.activate(100, E, 1, 0, p.on(E, Out, 0), ElementType::Int8, 0, 32, 2);
  SimulationResult r = p.run();
  ASSERT_TRUE(r.violation);
  EXPECT_EQ(r.violation->invariant, Invariant::S2) << verdict(r);
}

/// One row through an SXM unit, written to slice 1 of the east.
static Row switched(Opcode opcode, UnitKind kind, const Row &a, const Row &b,
                    std::vector<uint16_t> map, int32_t immediate, unsigned k0 = 0,
                    unsigned k1 = 0) {
  Program p = small();
  p.rows(E, 0, 0, {a}), p.rows(E, 2, 0, {b});
  feedOut(p, 100, E, 0, p.stream(E, Out, 0), 1), feedOut(p, 100, E, 2, p.stream(E, Out, 1), 1);
  if (!map.empty()) {
    p.image.laneMaps = {std::move(map)};
    p.add(60, {kind, E, 0}, Opcode::Config);
  }
  Instruction &i = p.add(100, {kind, E, 0}, opcode);
  i.a = p.on(E, Out, 0), i.out[0] = p.stream(E, In, 9), i.immediate = uint32_t(immediate);
  i.k0 = uint16_t(k0), i.k1 = uint16_t(k1);
  if (opcode == Opcode::Select)
    i.b = p.on(E, Out, 1);
  const LatencySpec &l = p.machine.latency;
  const unsigned latency = l.sxmEntry + (kind == UnitKind::Permutor      ? l.permutor
                                         : kind == UnitKind::Distributor ? l.distributor
                                                                         : l.shifter);
  p.tensor(E, 1, 100, 1);
  p.write(100 + latency + p.machine.lastPosition() - 1, E, 1, 100, p.on(E, In, 9));
  SimulationResult r = p.run();
  EXPECT_FALSE(r.violation) << verdict(r);
  return p.row(E, 1, 100);
}

TEST(SwitchUnit, MovesLanesByItsFormulas) {
  Draw draw(4);
  const Row a = draw.bytes(), b = draw.bytes();
  std::vector<uint16_t> permutation(kLanes), spread(kLanes), choice(kLanes);
  for (unsigned l = 0; l < kLanes; ++l)
    permutation[l] = uint16_t(l * 7 % kLanes), spread[l] = l % 3 ? uint16_t(l * 5 % 16) : 0xffff,
    choice[l] = l % 2;
  const Row permuted = switched(Opcode::Permute, UnitKind::Permutor, a, b, permutation, 0);
  const Row distributed = switched(Opcode::Distribute, UnitKind::Distributor, a, b, spread, 0);
  const Row selected = switched(Opcode::Select, UnitKind::Selector, a, b, choice, 0);
  const Row up = switched(Opcode::Shift, UnitKind::Shifter, a, b, {}, 3),
            down = switched(Opcode::Shift, UnitKind::Shifter, a, b, {}, -30);
  const Row rotated = switched(Opcode::Rotate, UnitKind::Rotator, a, b, {}, 3, 4, 14);
  for (unsigned l = 0; l < kLanes; ++l) {
    EXPECT_EQ(permuted[l], a[permutation[l]]);
    EXPECT_EQ(distributed[l], l % 3 ? a[l / 16 * 16 + spread[l]] : 0);
    EXPECT_EQ(selected[l], choice[l] ? a[l] : b[l]);
    EXPECT_EQ(up[l], l >= 3 ? a[l - 3] : 0);
    EXPECT_EQ(down[l], l + 30 < kLanes ? a[l + 30] : 0);
    EXPECT_EQ(rotated[l], l < 4 || l >= 14 ? a[l] : a[4 + (l - 4 + 7) % 10]);
  }
}

/// A square is 16 x 16; what a superlane has beyond it is filled with 0 (R11).
TEST(SwitchUnit, ATransposerGivesZeroBeyondTheSquareOfASuperlane) {
  Machine machine = machineNamed("tsp-small");
  machine.superlanes = 1, machine.lanesPerSuperlane = kLanes;
  Program p(machine);
  constexpr unsigned kSquare = 16, kTimes = 40; // enough for memory of vectors to be used again
  Draw draw(12);
  std::vector<std::vector<Row>> inputs;
  for (unsigned s = 0; s < kSquare; ++s) {
    inputs.push_back(draw.rows(kTimes));
    p.rows(E, s, 0, inputs[s]);
    feedOut(p, 100, E, s, p.stream(E, Out, s), kTimes);
  }
  Instruction &i = p.add(100, {UnitKind::Transposer, E, 0}, Opcode::Transpose, times(kTimes));
  i.a = p.on(E, Out, 0), i.out[0] = p.stream(E, In, 0);
  const LatencySpec &l = machine.latency;
  const Cycle there = 100 + l.sxmEntry + l.transposer + l.transposerExit;
  p.tensor(E, 43, 100, kTimes);
  p.write(there, E, 43, 100, p.on(E, In, 3), times(kTimes));
  SimulationResult r = p.run();
  EXPECT_FALSE(r.violation) << verdict(r);
  for (unsigned k = 0; k < kTimes; ++k)
    for (unsigned lane = 0; lane < kLanes; ++lane)
      ASSERT_EQ(p.row(E, 43, 100 + k)[lane], lane < kSquare ? inputs[lane][k][3] : 0)
          << "lane " << lane << " of vector " << k;
}

TEST(MemorySlice, ScatterWritesWhatItsMapNamesAndGatherReadsIt) {
  Program p = small(); // two superlanes
  Draw draw(5);
  Row map(kLanes), data = draw.bytes();
  map[0] = 2, map[16] = 1;
  p.rows(E, 0, 0, {map}), p.rows(E, 1, 0, {data});
  const uint32_t table = p.rows(E, 8, 0, std::vector<Row>(4, Row(kLanes, 7)));
  const unsigned at = p.machine.position(8);
  p.read(100 - at, E, 0, 0, p.stream(E, Out, 0)), p.read(100 - at, E, 1, 0, p.stream(E, Out, 1));
  Instruction &s = p.add(100 - at + 1 + at - 1, {UnitKind::Mem, E, 8}, Opcode::Scatter);
  s.a = p.on(E, Out, 0), s.b = p.on(E, Out, 1), s.tensor = table;
  p.read(120 - at, E, 0, 0, p.stream(E, Out, 0));
  Instruction &g = p.add(120, {UnitKind::Mem, E, 8}, Opcode::Gather);
  g.a = p.on(E, Out, 0), g.out[0] = p.stream(E, Out, 2), g.tensor = table;
  p.tensor(E, 11, 0, 1); // the same position
  p.write(121, E, 11, 0, p.on(E, Out, 2));
  SimulationResult r = p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  for (unsigned l = 0; l < kLanes; ++l) {
    EXPECT_EQ(p.row(E, 8, 2)[l], l < 16 ? data[l] : 7);
    EXPECT_EQ(p.row(E, 8, 1)[l], l < 16 ? 7 : data[l]);
    EXPECT_EQ(p.row(E, 11, 0)[l], data[l]);
  }
}

TEST(MemorySlice, RepeatReadsTheSameRowsAgain) {
  Program p = small();
  Draw draw(6);
  auto in = draw.rows(2);
  p.rows(E, 0, 0, in);
  p.read(100, E, 0, 0, p.stream(E, Out, 0), times(2));
  Instruction &repeat = p.add(110, {UnitKind::Mem, E, 0}, Opcode::Repeat);
  repeat.n0 = 2, repeat.c0 = 5;
  p.tensor(E, 1, 0, 6);
  p.write(101, E, 1, 0, p.on(E, Out, 0), times(2));
  p.write(111, E, 1, 2, p.on(E, Out, 0), {2, 2, 1, 5, 1, 2});
  SimulationResult r = p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  for (uint32_t k = 0; k < 6; ++k)
    EXPECT_EQ(p.row(E, 1, k), in[k % 2]) << k;
}

} // namespace millrace::sim::test
