// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the MXM computes in batches is what every cycle by itself would give.
#include "tests/simulator/system/Program.h"

namespace millrace::sim::test {
namespace {

constexpr unsigned kLanes = 32;

Machine varied(const std::vector<std::string> &set) {
  Expected<Machine> machine = loadMachine("tsp-small", set);
  EXPECT_TRUE(machine) << (machine ? "" : machine.error());
  return *machine;
}

/// A program of one plane with all in sight: columns from slices 24 on, activations from slice 0,
/// results written by slices at the last position.
class Plane {
public:
  explicit Plane(Machine m) : p(std::move(m)) {
    product = p.machine.latency.mxmEntry + p.machine.latency.mxmMultiply;
    emit = p.machine.latency.mxmAccumulate + p.machine.latency.mxmExit;
    p.rows(W, 0, 0, {Row(kLanes, 1), Row(kLanes, 2), Row(kLanes, 5)});
    for (unsigned s = 0; s < p.machine.mxm.columnsPerInstall; ++s)
      p.rows(W, 24 + s, 0, {Row(kLanes, uint8_t(s + 1)), Row(kLanes, uint8_t(101 - s))});
    for (unsigned b = 0; b < 4; ++b)
      p.tensor(W, 40 + b, 100, 8);
  }
  /// Row `row` of the slices that hold columns goes to group `group` in cycle `at`.
  void install(Cycle at, unsigned group, unsigned row, unsigned plane = 0) {
    for (unsigned s = 0; s < p.machine.mxm.columnsPerInstall; ++s)
      p.read(at - 1 - Cycle(p.machine.lastPosition() - p.machine.position(24 + s)), W, 24 + s, row,
             p.stream(W, Out, 16 + s));
    p.install(at, W, plane, 0, group, p.on(W, Out, 16));
  }
  void activate(Cycle at, unsigned row, unsigned g0, unsigned g1) {
    p.read(at - 1 - Cycle(p.machine.lastPosition() - p.machine.position(0)), W, 0, row,
           p.stream(W, Out, 0));
    p.activate(at, W, 0, 0, p.on(W, Out, 0), ElementType::Int8, 0, kLanes, g1).g0 = uint16_t(g0);
  }
  /// The product of the activation of cycle `activated` goes to row `to` of the results.
  void result(Cycle activated, uint32_t accumulator, uint32_t to, unsigned mode = 0) {
    const Cycle at = activated + product;
    p.accumulate(at, W, 0, accumulator, uint8_t(mode | AccumulateMode::Emit), ElementType::Int8,
                 p.stream(W, In, 0));
    for (unsigned b = 0; b < 4; ++b)
      p.write(at + emit, W, 40 + b, 100 + to, p.on(W, In, b));
  }
  int32_t column(uint32_t row, unsigned c) {
    uint32_t value = 0;
    for (unsigned b = 0; b < 4; ++b)
      value |= uint32_t(p.row(W, 40 + b, 100 + row)[c]) << 8 * b;
    return int32_t(value);
  }
  Program p;
  Cycle product, emit;
};

TEST(Matrix, ColumnsThatAnActivationLeavesOutAreZeroWhateverWasThereBefore) {
  Plane x(varied({}));
  x.install(40, 0, 0), x.install(41, 1, 1);
  x.activate(60, 2, 0, 2);
  x.result(60, 0, 0);
  x.activate(400, 1, 1, 2); // takes over the memory of the first, which is over
  x.result(400, 1, 1);
  x.activate(800, 1, 0, 1);
  x.result(800, 2, 2);
  const SimulationResult r = x.p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  for (unsigned c = 0; c < 16; ++c) {
    EXPECT_EQ(x.column(0, c), 5 * 32 * int(c + 1));
    EXPECT_EQ(x.column(1, c), 0) << "column " << c << " is of group 0";
    EXPECT_EQ(x.column(1, 16 + c), 2 * 32 * int(101 - c));
    EXPECT_EQ(x.column(2, c), 2 * 32 * int(c + 1));
    EXPECT_EQ(x.column(2, 16 + c), 0) << "column " << c << " of group 1";
  }
}

TEST(Matrix, LanesBeyondTheColumnsOfAPlaneAreZero) {
  Plane x(varied({"mxm.columns=16"}));
  // Wide vectors whose memory the results take over.
  x.p.rows(W, 1, 0, {Row(kLanes, 255)});
  x.p.read(8, W, 1, 0, x.p.stream(W, In, 8));
  x.p.compute(10, 0, AluOp::Not, x.p.on(W, In, 8), {}, x.p.stream(W, Out, 4), 4);
  x.install(40, 0, 0);
  for (Cycle k = 0; k < 4; ++k) {
    x.activate(60 + 200 * k, 2, 0, 1);
    x.result(60 + 200 * k, uint32_t(k), uint32_t(k));
  }
  const SimulationResult r = x.p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  for (uint32_t k = 0; k < 4; ++k)
    for (unsigned c = 0; c < kLanes; ++c)
      EXPECT_EQ(x.column(k, c), c < 16 ? 5 * 32 * int(c + 1) : 0) << k << ", " << c;
}

TEST(Matrix, AResultTakenEarlyDoesNotComputeALaterOneWithWeightsThatAreStillToCome) {
  // 8 groups of 16 columns, products after 2 cycles, results 6 cycles after that. The second
  // activation passes group 7 in cycle 73; that is replaced in 71, when the first result is out.
  Plane x(varied({"superlanes=8", "mxm.rows=128", "mxm.columns=128", "latency.mxm_entry=1", "latency.mxm_multiply=1",
                  "latency.mxm_accumulate=1", "latency.mxm_exit=5", "latency.install_to_activate=1"}));
  for (unsigned g = 0; g < 8; ++g)
    x.install(40 + g, g, 0);
  x.activate(61, 2, 0, 8);
  x.result(61, 0, 0); // taken in 69
  x.activate(66, 1, 0, 8);
  x.result(66, 1, 1); // its Accumulate is dispatched in 68
  Instruction &shift = x.p.add(69, {UnitKind::Shifter, W, 0}, Opcode::Shift); // takes values, not a promise of them
  shift.a = x.p.on(W, In, 0), shift.out[0] = x.p.stream(W, In, 9);
  x.install(71, 7, 1);
  const SimulationResult r = x.p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  for (unsigned c = 0; c < 128; ++c) {
    EXPECT_EQ(x.column(0, c), 5 * 32 * int(c % 16 + 1));
    EXPECT_EQ(x.column(1, c), 2 * 32 * (c < 112 ? int(c % 16 + 1) : int(101 - c % 16))) << c;
  }
}

/// Sums are kept as promises until somebody takes one, or until there are 8192 of them. The last of
/// these products is known before it is added, as its weights are replaced in between.
TEST(Matrix, AProductIsKeptUntilItIsAddedHoweverManySumsNobodyTook) {
  Plane x(varied({}));
  const Loops rows{64, 64, 1, 64, 1, 0}; // 64 sums, each takes a product every 64 cycles
  x.install(40, 0, 0), x.install(41, 1, 0);
  for (Cycle at : {60, 60 + 4096}) {
    x.p.read(at - 1 - Cycle(x.p.machine.lastPosition() - x.p.machine.position(0)), W, 0, 0,
             x.p.stream(W, Out, 0), times(4096, 0));
    x.p.activate(at, W, 0, 0, x.p.on(W, Out, 0), ElementType::Int8, 0, kLanes, 2, times(4096));
    x.p.accumulate(at + x.product, W, 0, 0, at == 60 ? 0 : AccumulateMode::Add, ElementType::Int8,
                   kNoStream, rows);
  }
  const Cycle last = 60 + 2 * 4096;
  x.activate(last, 2, 0, 2);
  x.install(last + 3, 0, 1);
  x.result(last, 100, 0); // number 8193
  x.activate(last + 200, 1, 0, 2);
  x.result(last + 200, 5, 1, AccumulateMode::Add);
  const SimulationResult r = x.p.run();
  ASSERT_FALSE(r.violation) << verdict(r);
  for (unsigned c = 0; c < 32; ++c) {
    const int before = int(c % 16 + 1), after = c < 16 ? int(101 - c) : before;
    EXPECT_EQ(x.column(0, c), 5 * 32 * before) << c;
    EXPECT_EQ(x.column(1, c), 65 * 32 * before + 2 * 32 * after) << c;
  }
}

TEST(Matrix, MultipliersCountTheLanesAndGroupsThatAreUsed) {
  Plane x(varied({}));
  x.install(40, 0, 0), x.install(41, 1, 1);
  x.activate(60, 2, 0, 2);
  x.p.image.instructions[0].edit().back().k0 = 3;
  x.activate(70, 2, 1, 2);
  const SimulationResult r = x.p.run();
  EXPECT_EQ(r.total.macsInt8, uint64_t(29 * 32 + 32 * 16));
  EXPECT_EQ(r.total.macsFloat, 0u);
}

} // namespace
} // namespace millrace::sim::test
