// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random installs, clears, activations and sums on random planes: the batches of the fast simulator
// against the cycles of the slow one, in values, counts and first violations.
#include "tests/simulator/system/Program.h"

#include <random>

namespace millrace::sim::test {
namespace {

class RandomPlanes {
public:
  explicit RandomPlanes(unsigned seed) : random(seed), p(machine()) {
    const Machine &m = p.machine;
    product = m.latency.mxmEntry + m.latency.mxmMultiply;
    emit = m.latency.mxmAccumulate + m.latency.mxmExit;
    groups = m.mxm.columns / m.mxm.columnsPerInstall;
    for (unsigned s = 0; s < 18; ++s)
      p.rows(W, 4 + s, 0, contents(8));
    for (unsigned b = 0; b < 4; ++b)
      p.tensor(W, 40 + b, 0, 200);
  }
  /// Rounds long enough apart that the results of each come out by themselves.
  Program &make() {
    for (unsigned round = 0; round < 6; ++round, start += 200 + emit + product)
      makeRound();
    return p;
  }

private:
  unsigned below(unsigned n) { return unsigned(random() % n); }
  unsigned oneOf(std::initializer_list<unsigned> from) { return from.begin()[below(unsigned(from.size()))]; }

  Machine machine() {
    const auto text = [](unsigned n) { return std::to_string(n); };
    const unsigned superlanes = oneOf({2, 4, 8});
    Expected<Machine> m = loadMachine(
        "tsp-small", {"superlanes=" + text(superlanes), "mxm.rows=" + text(16 * superlanes),
                      "mxm.columns=" + text(16 * (1 + below(superlanes))), "latency.mxm_entry=" + text(oneOf({0, 2, 8})), "latency.mxm_multiply=" + text(oneOf({1, 3, 13})),
                      "latency.mxm_accumulate=" + text(oneOf({1, 4})), "latency.mxm_exit=" + text(superlanes + oneOf({0, 6})),
                      "latency.install_to_activate=" + text(below(4)), "latency.accumulate_interval=" + text(oneOf({1, 5})),
                      "mxm.buffers=2"});
    EXPECT_TRUE(m) << (m ? "" : m.error());
    return *m;
  }
  std::vector<Row> contents(unsigned n) {
    std::vector<Row> rows(n, Row(p.machine.lanes()));
    for (Row &row : rows)
      for (uint8_t &byte : row)
        byte = below(5) ? uint8_t(random()) : 0;
    return rows;
  }
  Cycle reach(unsigned slice) const { return 1 + Cycle(p.machine.lastPosition() - p.machine.position(slice)); }

  void fill(Cycle at, unsigned plane, unsigned buffer, unsigned first, unsigned count) {
    if (below(8) == 0) {
      p.add(at, {UnitKind::MxmInstall, W, plane}, Opcode::Clear).buffer = uint8_t(buffer);
      return;
    }
    for (unsigned s = 0; s < p.machine.mxm.columnsPerInstall; ++s)
      p.read(at - reach(4 + s), W, 4 + s, below(9 - std::min(count, 8u)), p.stream(W, Out, 16 + s),
             times(std::min(count, 8u)));
    p.install(at, W, plane, buffer, first, p.on(W, Out, 16), times(std::min(count, 8u)));
  }
  void makeRound() {
    const bool pair = below(2);
    const unsigned buffer = below(2), bytes = pair ? 2 : 1;
    for (unsigned plane = 0; plane < bytes; ++plane)
      for (unsigned g = 0; g < groups; g += 8)
        fill(start + 30 * Cycle(plane) + Cycle(g), plane, buffer, g, groups - g);
    const Cycle at = start + 80;
    const unsigned n = 1 + below(4), k0 = below(8), g0 = below(groups), g1 = g0 + 1 + below(groups - g0);
    for (unsigned b = 0; b < bytes; ++b)
      p.read(at - reach(20 + b), W, 20 + b, below(4), p.stream(W, Out, b), times(n));
    const ElementType format = pair ? ElementType::Fp16 : ElementType::Int8;
    p.activate(at, W, 0, buffer, p.on(W, Out, 0), format, k0, k0 + 1 + below(16), g1, times(n)).g0 = uint16_t(g0);
    if (below(3)) // replaces a group before, while or after the activations pass it
      fill(at + Cycle(below(groups + n + 2)), pair ? below(2) : 0, buffer, below(groups), 1);
    const uint8_t mode = uint8_t(AccumulateMode::Emit | (used && below(2) ? unsigned(AccumulateMode::Add) : 0u));
    p.accumulate(at + product, W, 0, 0, mode, format, p.stream(W, In, 0), times(n));
    for (unsigned b = 0; b < 4; ++b)
      p.write(at + product + emit, W, 40 + b, results, p.on(W, In, b), times(n));
    results += n;
    used = false;
    if (below(4) == 0) { // again, added to the row that stands there
      used = n == 4;
    }
  }

  std::mt19937 random;
  Program p;
  Cycle product = 0, emit = 0, start = 60;
  unsigned groups = 0;
  uint32_t results = 0;
  bool used = false;
};

TEST(RandomMatrix, BatchesGiveWhatCyclesGive) {
  unsigned legal = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomPlanes planes(seed);
    Program &program = planes.make();
    const SimulationResult r = program.run(); // which compares the two
    legal += !r.violation;
    SimulationOptions options = handWritten();
    options.batch = 1 + seed % 6;
    EXPECT_EQ(differenceOn(program.image, program.machine, options), "") << options.batch;
  }
  EXPECT_GE(legal, 40u) << "too many stop at a violation to compare values";
}

} // namespace
} // namespace millrace::sim::test
