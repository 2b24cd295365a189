// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random reads, writes, repeats, gathers and scatters of one slice and its neighbours: banks, slots
// and rows of the fast simulator against those of the slow one.
#include "tests/simulator/system/Program.h"

#include <random>

namespace millrace::sim::test {
namespace {

class RandomRows {
public:
  explicit RandomRows(unsigned seed) : random(seed), p(machine()) {
    const unsigned bank = p.machine.memory.rowsPerBank;
    maps = p.rows(W, 0, 0, addresses(8));
    p.rows(W, 1, 0, contents(8));
    // Of the slice under test: rows before, on and behind the border of its banks.
    p.rows(W, 8, bank - 4, contents(8));
    p.tensor(W, 8, bank + 40, 4);
    p.tensor(W, 20, 0, 400);
  }
  Program &make() {
    Cycle at = 40;
    for (unsigned k = 0; k < 10; ++k, at += below(12) ? 7 + Cycle(below(5)) : 1 + Cycle(below(4)))
      make(at);
    return p;
  }

private:
  unsigned below(unsigned n) { return unsigned(random() % n); }
  Machine machine() {
    const auto text = [](unsigned n) { return std::to_string(n); };
    Expected<Machine> m =
        loadMachine("tsp-small", {"latency.mem_write=" + text(below(4)), "latency.mem_gather=" + text(1 + below(3)),
                                  "latency.read_after_write=" + text(1 + below(3)), "latency.mem_read=" + text(1 + below(2))});
    EXPECT_TRUE(m) << (m ? "" : m.error());
    return *m;
  }
  std::vector<Row> contents(unsigned n) {
    std::vector<Row> rows(n, Row(p.machine.lanes()));
    for (Row &row : rows)
      for (uint8_t &byte : row)
        byte = uint8_t(random());
    return rows;
  }
  /// Maps of rows below 8, seldom one beyond.
  std::vector<Row> addresses(unsigned n) {
    std::vector<Row> rows(n, Row(p.machine.lanes()));
    for (Row &row : rows)
      for (unsigned s = 0; s < p.machine.superlanes; ++s) {
        row[s * p.machine.lanesPerSuperlane] = uint8_t(below(200) ? below(4) : 9);
        row[s * p.machine.lanesPerSuperlane + 1] = uint8_t(below(300) == 0);
      }
    return rows;
  }
  /// In the cycle `at` stream 0 or 1 at the slice holds a row of slice 0 or 1.
  Operand supply(Cycle at, unsigned slice, unsigned n) {
    const Cycle way = Cycle(p.machine.position(8)) - Cycle(p.machine.position(slice));
    p.read(at - Cycle(p.machine.latency.memRead) - way, W, slice, below(9 - n), p.stream(W, Out, slice), times(n));
    return p.on(W, Out, slice);
  }
  void take(Cycle at, unsigned n) {
    const Cycle way = Cycle(p.machine.position(20)) - Cycle(p.machine.position(8));
    p.write(at + way, W, 20, results, p.on(W, Out, 4), times(n));
    results += n;
  }
  void make(Cycle at) {
    const unsigned bank = p.machine.memory.rowsPerBank, n = 1 + below(3), row = bank - 4 + below(8 - n + 1);
    const StreamId out = p.stream(W, Out, 4);
    switch (below(5)) {
    case 0: {
      p.read(at, W, 8, row, out, times(n));
      take(at + Cycle(p.machine.latency.memRead), n);
      break;
    }
    case 1: {
      const Operand from = supply(at, 1, n);
      p.write(at, W, 8, row, from, times(n));
      break;
    }
    case 2: {
      const Operand map = supply(at, 0, n);
      Instruction &gather = p.add(at, {UnitKind::Mem, W, 8}, Opcode::Gather, times(n, 0));
      gather.a = map, gather.out[0] = out, gather.address = bank - 4, gather.tensor = p.tensorAt(W, 8, bank - 4);
      take(at + Cycle(p.machine.latency.memGather), n);
      break;
    }
    case 3: {
      const Operand map = supply(at, 0, 1), value = supply(at, 1, 1);
      Instruction &scatter = p.add(at, {UnitKind::Mem, W, 8}, Opcode::Scatter, times(1, 0));
      scatter.a = map, scatter.b = value, scatter.address = bank - 4, scatter.tensor = p.tensorAt(W, 8, bank - 4);
      break;
    }
    default: {
      p.read(at, W, 8, row, out, times(n));
      Instruction &repeat = p.add(at + 4, {UnitKind::Mem, W, 8}, Opcode::Repeat);
      repeat.n0 = uint16_t(1 + below(2)), repeat.c0 = n + below(2);
      take(at + 4 + Cycle(p.machine.latency.memRead), n);
    }
    }
  }

  std::mt19937 random;
  Program p;
  uint32_t maps = 0, results = 0;
};

TEST(RandomRows, TheFastSimulatorDoesWhatTheSlowOneDoes) {
  unsigned legal = 0;
  std::map<Invariant, unsigned> broken;
  for (unsigned seed = 0; seed < 250; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const SimulationResult r = RandomRows(seed).make().run(); // which compares the two
    legal += !r.violation;
    if (r.violation)
      ++broken[r.violation->invariant];
  }
  for (const auto &[invariant, count] : broken)
    std::printf("%s %u, ", nameOf(invariant).c_str(), count);
  std::printf("legal %u\n", legal);
  EXPECT_GE(legal, 20u) << "too many stop at a violation to compare values";
  for (Invariant invariant : {Invariant::S1, Invariant::S5, Invariant::S6, Invariant::S10})
    EXPECT_GE(broken[invariant], 1u) << nameOf(invariant);
}

} // namespace
} // namespace millrace::sim::test
