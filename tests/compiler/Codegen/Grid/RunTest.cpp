// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Do small graphs compute on the grid, bit by bit, what their evaluation says, in as many cycles as predicted?
#include "tests/contract/GridRun.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"

#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::forms;

namespace {

/// Says also whether a kernel's K was split.
bool expectRight(const KernelGraph &graph, const std::vector<std::string> &set = {}) {
  const Expected<Machine> machine = loadMachine("tsp-small", set);
  EXPECT_TRUE(machine) << machine.error();
  EXPECT_EQ(graph.verify(), "");
  const auto inputs = randomInputs(graph);
  const test::GridRun run = test::runOnGrid(graph, *machine, inputs);
  EXPECT_EQ(run.error, "");
  if (!run.error.empty())
    return false;
  EXPECT_FALSE(run.simulated.violation) << run.simulated.violation->describe();
  EXPECT_EQ(run.simulated.measuredCycles, run.report.predictedCycles);
  EXPECT_EQ(test::distanceFromReference(graph, run, inputs), 0);
  bool splitsK = false;
  for (const grid::KernelReport &kernel : run.report.kernels)
    for (const Pass &pass : kernel.passes)
      splitsK |= pass.half == 1;
  return splitsK;
}

/// Two products of `taps` rows of k lanes by constant weights of n columns each.
KernelGraph twoProducts(int64_t k, int64_t taps, int64_t n, ElementType type) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {9, k}, type, 1, TensorRole::Input);
  for (const std::string name : {"first", "second"}) {
    std::vector<float> weights(size_t(n * taps * k));
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = float(int(i * (name == "first" ? 7 : 5) % 23) - 11);
    const unsigned w = addConstant(graph, "w." + name, {n, taps, k}, type, 2, weights),
                   y = addTensor(graph, name, {10 - taps, n}, ElementType::Fp32, 1, TensorRole::Output);
    KernelBuilder build(graph);
    const unsigned m = build.loop(10 - taps), column = build.loop(n), tap = build.loop(taps, LoopKind::Contracted),
                   lane = build.loop(k, LoopKind::Contracted);
    build.term({x, {window(m, 1, tap, 1, 0), at(lane)}, 0}, {w, {at(column), at(tap), at(lane)}, 0}, (10 - taps) * n * taps * k);
    build.store(type == ElementType::Int8 ? build.op(AluOp::CvtI32F32, {build.accumulator()}) : build.accumulator(),
                {y, {at(m), at(column)}, 0});
    build.finish(name);
  }
  return graph;
}

/// y[c, r, s] = x[c, r * rowStep + row, s * columnStep + column], ones where that lies outside.
KernelGraph moved(int64_t rowStep, int64_t row, int64_t columnStep, int64_t column, int64_t height = 6, int64_t width = 7) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {40, 6, 7}, ElementType::Fp16, 0, TensorRole::Input),
                 y = addTensor(graph, "y", {40, height, width}, ElementType::Fp16, 0, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned c = build.loop(40), r = build.loop(height), s = build.loop(width);
  const unsigned value = build.load({x, {at(c), at(r, rowStep, row), at(s, columnStep, column)}, encode(ElementType::Fp16, 1)});
  build.store(build.op(AluOp::AddF32, {value, build.constant(2)}), {y, {at(c), at(r), at(s)}, 0});
  build.finish("moved");
  return graph;
}

/// y[b, m, n] = x[m, k] (w[first + step b + n, k] + 1): weights that are made at run time, of which some columns are taken.
KernelGraph columnsOf(int64_t first, int64_t count, int64_t step = 0, int64_t parts = 1, int64_t rows = 48) {
  KernelGraph graph;
  const ElementType type = ElementType::Fp16;
  const unsigned x = addTensor(graph, "x", {9, 24}, type, 1, TensorRole::Input), w = addTensor(graph, "w", {rows, 24}, type, 1, TensorRole::Input),
                 made = addTensor(graph, "made", {rows, 24}, type, 1),
                 y = addTensor(graph, "y", {parts, 9, count}, ElementType::Fp32, 2, TensorRole::Output);
  KernelBuilder map(graph);
  const unsigned row = map.loop(rows), lane = map.loop(24);
  map.store(map.op(AluOp::AddF32, {map.load({w, {at(row), at(lane)}, 0}), map.constant(1)}), {made, {at(row), at(lane)}, 0});
  map.finish("made");
  KernelBuilder build(graph);
  const unsigned b = build.loop(parts), m = build.loop(9), n = build.loop(count), k = build.loop(24, LoopKind::Contracted);
  AffineIndex column = at(n, 1, first);
  if (step)
    column.terms.push_back({b, step});
  build.term({x, {at(m), at(k)}, 0}, {made, {column, at(k)}, 0}, parts * 9 * count * 24);
  build.store(build.accumulator(), {y, {at(b), at(m), at(n)}, 0});
  build.finish("product");
  return graph;
}

} // namespace

TEST(Run, WindowsThatLeaveTheirTensorReadThePadThere) {
  expectRight(moved(1, 0, 1, 0));
  for (int64_t shift : {-2, -1, 1, 2}) {
    expectRight(moved(1, shift, 1, 0));
    expectRight(moved(1, 0, 1, shift));
    expectRight(moved(1, shift, 1, -shift));
  }
  expectRight(moved(1, -2, 1, -2, 10, 11)); // on all four sides
  expectRight(moved(2, -1, 3, -2, 4, 4));
  expectRight(moved(1, 6, 1, 0)); // nothing inside
}

TEST(Run, RowsAreReadBackwardsToo) {
  expectRight(moved(-1, 5, 1, 0));
  expectRight(moved(-1, 6, 1, 0));
  expectRight(moved(-1, 4, 1, 0));
  expectRight(moved(1, 0, -1, 7));
  expectRight(moved(-1, 7, 1, 0, 9, 7));
  expectRight(moved(-2, 6, 1, 0, 4, 7));
}

TEST(Run, Convolutions) {
  for (int64_t pad : {0, 1, 2})
    expectRight(buildConv({.channels = 20, .height = 6, .width = 5, .filters = 24, .pad = pad}));
  expectRight(buildConv({.channels = 40, .height = 7, .width = 6, .filters = 36, .stride = 2, .residual = true}));
  expectRight(buildConv({.channels = 32, .height = 5, .width = 5, .filters = 48, .groups = 4}));
  expectRight(buildConv({.channels = 40, .height = 5, .width = 5, .filters = 40, .groups = 40}));
  expectRight(buildConv({.channels = 20, .height = 6, .width = 5, .filters = 24, .type = ElementType::Int8}));
}

TEST(Run, ProductsPoolingsAndNormalisations) {
  expectRight(buildMatmul({.m = 9, .k = 70, .n = 50}));
  expectRight(buildMatmul({.m = 33, .k = 33, .n = 33, .type = ElementType::Int8, .relu = true}));
  expectRight(buildMatmul({.m = 1, .k = 200, .n = 3}));
  expectRight(buildMaxPool(40, 7, 6, 3, 2, 1, ElementType::Fp16));
  expectRight(buildMaxPool(20, 6, 6, 2, 2, 0, ElementType::Int8));
  expectRight(buildLayerNorm(7, 50));
  for (int64_t tokens : {5, 16, 33})
    expectRight(buildAttention(tokens, 24, 16, true));
  expectRight(buildPerceptron(12, 48, 3, ElementType::Fp16));
  expectRight(buildEmbedding({.tokens = 9, .rows = 30, .width = 40, .segments = 2, .positions = true}));
}

TEST(Run, HalvesOfASplitKAreAddedInTheVxm) {
  for (const ElementType type : {ElementType::Fp16, ElementType::Int8})
    for (int64_t k : {33, 64, 65, 200})
      for (int64_t n : {3, 33, 70})
        EXPECT_TRUE(expectRight(buildMatmul({.m = 1, .k = k, .n = n, .type = type, .relu = true})) || n > 3);
  // Weights that find room only once.
  for (const auto &[type, channels, rows] : {std::tuple(ElementType::Fp16, 64, 12), std::tuple(ElementType::Int8, 128, 14)})
    for (int64_t pad : {0, 1})
      EXPECT_TRUE(expectRight(buildConv({.channels = channels, .height = 9, .width = 7, .filters = 30, .pad = pad, .type = type}), {"memory.rows_per_bank=" + std::to_string(rows)}));
}

TEST(Run, ColumnsMadeAtRunTimeBeginWithinAGroupToo) {
  for (int64_t first = 0; first <= 32; ++first)
    expectRight(columnsOf(first, 16));
  for (int64_t first : {0, 1, 8, 13, 16})
    expectRight(columnsOf(first, 32));
  for (int64_t step : {1, 7, 8, 16})
    expectRight(columnsOf(0, 16, step, 3));
  for (int64_t rows = 33; rows < 48; ++rows)
    expectRight(columnsOf(rows - 32, 32, 0, 1, rows));
  expectRight(columnsOf(3, 20, 4, 5)); // not of whole groups
}

TEST(Run, OnSeveralPes) {
  const std::vector<std::string> two = {"fabric.topology=ring",         "fabric.rows=1",         "fabric.columns=2", "c2c.ports=2",
                                        "fabric.link.latency=20 cycles", "fabric.link.slot=6 cycles"};
  expectRight(buildMatmul({.m = 40, .k = 70, .n = 50}), two);
  expectRight(buildConv({.channels = 20, .height = 6, .width = 5, .filters = 24}), two);
  expectRight(buildAttention(20, 24, 16, false), two);
}

/// A chain of layers whose strips depend on each other, and what does not depend: the same values whoever comes first.
TEST(Run, KernelsScheduledTogetherComputeWhatTheyComputeOneByOne) {
  const Expected<Machine> machine = loadMachine("tsp-small");
  ASSERT_TRUE(machine);
  bool differs = false; // some schedule from that of kernels one by one
  for (const KernelGraph &graph :
       {buildPerceptron(150, 60, 4, ElementType::Fp16), buildAttention(60, 64, 32, true), buildLayerNorm(50, 70), twoProducts(40, 2, 33, ElementType::Fp16)}) {
    const auto inputs = randomInputs(graph);
    uint64_t alone = 0;
    for (const unsigned together : {1u, 2u, 3u, 12u}) {
      SCOPED_TRACE(std::to_string(together) + " kernels together");
      grid::CompileOptions options;
      options.tactic.flight = together;
      const test::GridRun run = test::runOnGrid(graph, *machine, inputs, true, options);
      ASSERT_EQ(run.error, "");
      EXPECT_FALSE(run.simulated.violation) << run.simulated.violation->describe();
      EXPECT_EQ(run.simulated.measuredCycles, run.report.predictedCycles);
      EXPECT_EQ(test::distanceFromReference(graph, run, inputs), 0);
      ASSERT_EQ(run.report.kernels.size(), graph.kernels.size());
      if (together == 1)
        alone = run.report.predictedCycles;
      differs |= run.report.predictedCycles != alone;
    }
  }
  EXPECT_TRUE(differs);
}

/// Weight tiles of few lanes beside each other: bit by bit the same values, from fewer rows, as far as there are shifters.
TEST(Run, WeightsThatShareRowsMultiplyTheirOwnLanes) {
  struct Product {
    int64_t k, taps, n;
    bool isNarrow; // some tile leaves lanes to another
  };
  for (const ElementType type : {ElementType::Fp16, ElementType::Int8})
    for (const Product &p : {Product{40, 1, 70, true}, {7, 1, 20, true}, {12, 3, 33, true}, {64, 2, 40, false}, {5, 3, 100, true}})
      for (const char *shifters : {"sxm.shifters=2", "sxm.shifters=0"}) {
        SCOPED_TRACE(std::to_string(p.k) + " x " + std::to_string(p.taps) + " x " + std::to_string(p.n) + " " + shifters);
        const Expected<Machine> machine = loadMachine("tsp-small", {shifters});
        ASSERT_TRUE(machine) << machine.error();
        const KernelGraph graph = twoProducts(p.k, p.taps, p.n, type);
        const auto inputs = randomInputs(graph);
        const auto run = [&](bool shares) {
          grid::CompileOptions options;
          options.sharesRows = shares;
          test::GridRun its = test::runOnGrid(graph, *machine, inputs, true, options);
          EXPECT_EQ(its.error, "");
          EXPECT_EQ(its.simulated.measuredCycles, its.report.predictedCycles);
          EXPECT_EQ(test::distanceFromReference(graph, its, inputs), 0);
          return its;
        };
        const test::GridRun apart = run(false), beside = run(true);
        EXPECT_EQ(beside.outputs, apart.outputs);
        const auto rows = [&](bool shares) {
          grid::CompileOptions options;
          options.sharesRows = shares;
          grid::CompileReport report;
          const Expected<Image> image = grid::compile(graph, *machine, options, report);
          uint64_t sum = 0, shifts = 0;
          for (const Block &b : image ? image->blocks : std::vector<Block>())
            sum += b.rows;
          for (const Instruction &i : image ? image->instructions[0] : std::vector<Instruction>())
            shifts += i.opcode == Opcode::Shift;
          return std::pair(sum, shifts);
        };
        const auto [few, shifts] = rows(true);
        const auto [many, none] = rows(false);
        EXPECT_EQ(none, 0u);
        if (p.isNarrow && shifters == std::string("sxm.shifters=2")) {
          EXPECT_GT(shifts, 0u);
          EXPECT_LT(few, many);
        } else {
          EXPECT_EQ(shifts, 0u);
          EXPECT_EQ(few, many);
        }
      }
}

/// y[r, s] for odd and even r, s by a kernel each, from x[r / 2, s / 2]; z reads them as parts of one product, with what lies
/// outside by `shift`; the same y, added to x, by phase as well.
static KernelGraph interleaved(int64_t height, int64_t width, int64_t shift) {
  KernelGraph graph;
  const ElementType type = ElementType::Fp16;
  const int64_t rows = (height + 1) / 2, columns = (width + 1) / 2;
  const unsigned x = addTensor(graph, "x", {rows, columns, 24}, type, 2, TensorRole::Input),
                 y = addTensor(graph, "y", {height, width, 24}, type, 2),
                 z = addTensor(graph, "z", {rows, columns, 20}, ElementType::Fp32, 2, TensorRole::Output);
  std::vector<float> weights(size_t(20 * 4 * 24));
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = float(int(i * 7 % 11) - 5) / 8;
  const unsigned w = addConstant(graph, "w", {20, 2, 2, 24}, type, 3, weights);
  for (int64_t t : {0, 1})
    for (int64_t u : {0, 1}) {
      KernelBuilder build(graph);
      const unsigned r = build.loop((height + 1 - t) / 2), s = build.loop((width + 1 - u) / 2), c = build.loop(24);
      const unsigned value = build.load({x, {at(r), at(s), at(c)}, 0});
      build.store(build.op(AluOp::AddF32, {value, build.constant(float(2 * t + u))}),
                  {y, {at(r, 2, t), at(s, 2, u), at(c)}, 0});
      build.finish("phase");
    }
  KernelBuilder build(graph);
  const unsigned r = build.loop(rows), s = build.loop(columns), n = build.loop(20), t = build.loop(2, LoopKind::Contracted),
                 u = build.loop(2, LoopKind::Contracted), c = build.loop(24, LoopKind::Contracted);
  build.term({y, {window(r, 2, t, 1, shift), window(s, 2, u, 1, 0), at(c)}, 0}, {w, {at(n), at(t), at(u), at(c)}, 0},
             rows * columns * 20 * 4 * 24);
  build.store(build.accumulator(), {z, {at(r), at(s), at(n)}, 0});
  build.finish("product");
  return graph;
}

TEST(Run, RowsThatLieByPhaseHoldWhatTheyShould) {
  for (const auto &[height, width] : {std::pair<int64_t, int64_t>{8, 12}, {7, 9}, {16, 2}, {2, 5}})
    for (int64_t shift : {0, -2, 2, 1, -1}) // odd ones cross a step: rows in their order
      expectRight(interleaved(height, width, shift));
}
