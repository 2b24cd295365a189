// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Maps that read several rows of one tensor: which copies of it each hemisphere has, that both
// hemispheres' rows are done at once where they find ALUs, and where the copies lie.
#include "tests/contract/GridRun.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Codegen/Memory/Copies.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

using namespace millrace;
using namespace millrace::forms;

namespace {

Machine machineOf(const std::string &name, const std::vector<std::string> &set = {}) {
  Expected<Machine> machine = loadMachine(name, set);
  EXPECT_TRUE(machine) << (machine ? "" : machine.error());
  return *machine;
}

/// A neighbour, so many lines and pixels away.
struct Tap {
  int64_t line = 0, pixel = 0;
};
/// As many below each other as are asked for, the one in the middle at the point itself.
std::vector<Tap> column(int64_t taps) {
  std::vector<Tap> all;
  for (int64_t t = 0; t < taps; ++t)
    all.push_back({t - taps / 2, 0});
  return all;
}

/// z = 1.1 x, y = the sum of its taps times a constant each: z[lines, pixels, lanes].
KernelGraph windowOf(const std::vector<Tap> &taps, int64_t lines, int64_t pixels, int64_t lanes,
                     ElementType type = ElementType::Fp32) {
  KernelGraph graph;
  graph.name = "window";
  const std::vector<int64_t> shape{lines, pixels, lanes};
  const unsigned x = addTensor(graph, "x", shape, ElementType::Fp16, 2, TensorRole::Input);
  const unsigned z = addTensor(graph, "z", shape, type, 2);
  const unsigned y = addTensor(graph, "y", shape, ElementType::Fp32, 2, TensorRole::Output);
  {
    KernelBuilder build(graph);
    const std::vector<AffineIndex> point{at(build.loop(lines)), at(build.loop(pixels)),
                                         at(build.loop(lanes))};
    build.store(build.op(AluOp::MulF32, {build.load({x, point, 0}), build.constant(1.1f)}),
                {z, point, 0});
    build.finish("f");
  }
  KernelBuilder build(graph);
  const unsigned h = build.loop(lines), v = build.loop(pixels), c = build.loop(lanes);
  std::optional<unsigned> sum;
  for (const Tap &tap : taps) {
    AffineIndex line = at(h), pixel = at(v);
    line.offset = tap.line;
    pixel.offset = tap.pixel;
    const unsigned product =
        build.op(AluOp::MulF32, {build.load({z, {line, pixel, at(c)}, 0}),
                                 build.constant(0.3f + 0.1f * float(tap.line - tap.pixel))});
    sum = sum ? build.op(AluOp::AddF32, {*sum, product}) : product;
  }
  build.store(*sum, {y, {at(h), at(v), at(c)}, 0});
  build.finish("window");
  return graph;
}

std::pair<unsigned, unsigned> copiesOf(const KernelGraph &graph, const std::string &name,
                                       const Machine &machine,
                                       grid::CopiesFor what = grid::CopiesFor::Speed) {
  const std::vector<grid::Copies> all = grid::copiesOf(graph, machine, what);
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (graph.tensors[t].name == name)
      return {all[t].rows[0], all[t].rows[1]};
  ADD_FAILURE() << name;
  return {0, 0};
}

TEST(Windows, EachHemisphereHasACopyForEachReadWhereBothFindAlus) {
  using Pair = std::pair<unsigned, unsigned>;
  const Machine tsp = machineOf("tsp-v1"); // 16 ALUs
  EXPECT_EQ(copiesOf(windowOf(column(4), 8, 8, 16), "z", tsp), (Pair{4, 4})) << "7 operations";
  EXPECT_EQ(copiesOf(windowOf(column(5), 8, 8, 16), "z", tsp), (Pair{3, 2})) << "9 operations";
  EXPECT_EQ(copiesOf(windowOf(column(4), 8, 8, 16), "z", tsp, grid::CopiesFor::Reads),
            (Pair{2, 2}));
  EXPECT_EQ(copiesOf(windowOf(column(4), 8, 8, 16), "z", machineOf("tsp-v1", {"vxm.alus=13"})),
            (Pair{2, 2}));
  const Machine more = machineOf("tsp-v1", {"vxm.alus=24"});
  EXPECT_EQ(copiesOf(windowOf(column(5), 8, 8, 16), "z", more), (Pair{3, 2}))
      << "20 bytes, twice, leave too few of 44 slices";
  EXPECT_EQ(copiesOf(windowOf(column(4), 8, 8, 16, ElementType::Fp16), "z", more), (Pair{4, 4}));
}

TEST(Windows, LanesOfOtherTilesTakeTheSameCopy) {
  // y[h, n] = z[h, n] + z[h, n + 320]: of two tiles a row.
  KernelGraph graph;
  const unsigned z = addTensor(graph, "z", {8, 640}, ElementType::Fp32, 1);
  const unsigned y = addTensor(graph, "y", {8, 320}, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned h = build.loop(8), n = build.loop(320);
  AffineIndex next = at(n);
  next.offset = 320;
  build.store(build.op(AluOp::AddF32,
                       {build.load({z, {at(h), at(n)}, 0}), build.load({z, {at(h), next}, 0})}),
              {y, {at(h), at(n)}, 0});
  build.finish("add");
  EXPECT_EQ(copiesOf(graph, "z", machineOf("tsp-v1")), (std::pair<unsigned, unsigned>{1, 1}));
}

TEST(Windows, WhatAProductSweepsIsNotCopiedForThem) {
  // Each copy more is written while other kernels sweep.
  KernelGraph graph = windowOf(column(3), 8, 8, 16, ElementType::Fp16);
  const Machine tsp = machineOf("tsp-v1");
  EXPECT_EQ(copiesOf(graph, "z", tsp), (std::pair<unsigned, unsigned>{3, 3}));
  const unsigned z = 1;
  ASSERT_EQ(graph.tensors[z].name, "z");
  const unsigned w = addSplat(graph, "w", {16, 16}, ElementType::Fp16, 1, 1);
  const unsigned p = addTensor(graph, "p", {8, 8, 16}, ElementType::Fp16, 2, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned h = build.loop(8), v = build.loop(8), n = build.loop(16),
                 k = build.loop(16, LoopKind::Contracted);
  build.term({z, {at(h), at(v), at(k)}, 0}, {w, {at(n), at(k)}, 0}, 0);
  build.store(build.accumulator(), {p, {at(h), at(v), at(n)}, 0});
  build.finish("product");
  EXPECT_EQ(copiesOf(graph, "z", tsp), (std::pair<unsigned, unsigned>{2, 1}));
}

TEST(Windows, WhatIsSweptAndReadMeanwhileHasACopyForEither) {
  // The mean of a row is subtracted from it.
  const KernelGraph graph = buildLayerNorm(20, 100);
  KernelGraph made = graph;
  for (Tensor &t : made.tensors)
    if (t.name == "x")
      t.role = TensorRole::Intermediate;
  const Machine tsp = machineOf("tsp-v1");
  const auto [west, east] = copiesOf(made, "x", tsp);
  const auto [sweptWest, sweptEast] = copiesOf(graph, "x", tsp); // the host's lies whole
  EXPECT_EQ(west, sweptWest + 1);
  EXPECT_EQ(east, sweptEast + 1);
}

/// Cycles from a kernel's first burst to its last.
int64_t cyclesOf(const test::GridRun &run, const std::string &name) {
  for (const grid::KernelReport &kernel : run.report.kernels)
    if (kernel.name == name)
      return kernel.lastCycle - kernel.firstCycle;
  ADD_FAILURE() << name;
  return 0;
}

test::GridRun runRight(const KernelGraph &graph, const Machine &machine) {
  EXPECT_EQ(graph.verify(), "");
  const auto inputs = randomInputs(graph);
  test::GridRun run = test::runOnGrid(graph, machine, inputs);
  EXPECT_EQ(run.error, "");
  if (run.error.empty()) {
    EXPECT_FALSE(run.simulated.violation) << run.simulated.violation->describe();
    EXPECT_EQ(run.simulated.measuredCycles, run.report.predictedCycles);
    EXPECT_EQ(test::distanceFromReference(graph, run, inputs), 0);
  }
  return run;
}

TEST(Windows, TwoRowsACycleWhereBothHemispheresFindAlus) {
  const Machine tsp = machineOf("tsp-v1");
  const int64_t rows = 56 * 28;
  EXPECT_LT(cyclesOf(runRight(windowOf(column(4), 56, 28, 16), tsp), "window"), rows * 3 / 4);
  EXPECT_GE(cyclesOf(runRight(windowOf(column(5), 56, 28, 16), tsp), "window"), rows);
}

TEST(Windows, PartsOfManyRowsAreShortEnoughForTwoRowsACycle) {
  const Machine tsp = machineOf("tsp-v1");
  std::vector<Tap> taps;
  for (int64_t tap = 0; tap < 25; ++tap)
    taps.push_back({tap / 5 - 2, tap % 5 - 2});
  KernelGraph many = windowOf(taps, 56, 28, 16), few = windowOf(taps, 8, 8, 16);
  const unsigned all = tsp.vxm.alus;
  EXPECT_EQ(splitEpilogues(few, all, tsp), 4u) << "five parts of five taps";
  EXPECT_EQ(splitEpilogues(many, all, tsp), 6u) << "seven of four, the last of one";
  for (const Kernel &part : many.kernels)
    EXPECT_TRUE(twoRowsFit(part, many, tsp));
  KernelGraph same = windowOf(taps, 56, 28, 16);
  EXPECT_EQ(splitEpilogues(same, 24, machineOf("tsp-v1", {"vxm.alus=24"})), 6u)
      << "five taps would find ALUs, and no slices";
  const test::GridRun run = runRight(many, tsp);
  int64_t first = INT64_MAX, last = 0; // of all parts
  for (const grid::KernelReport &kernel : run.report.kernels)
    if (kernel.name.starts_with("window")) {
      first = std::min(first, int64_t(kernel.firstCycle));
      last = std::max(last, int64_t(kernel.lastCycle));
    }
  EXPECT_LT(last - first, 5 * 56 * 28) << "five parts of a row a cycle";
  runRight(few, tsp);
}

TEST(Windows, CopiesTakeNoMoreSlicesThanTheirBytes) {
  // Four copies of fp32 take 16 slices, those of rows that the other hemisphere writes among them.
  grid::CompileReport report;
  const Expected<Image> image =
      grid::compile(windowOf(column(4), 28, 28, 16), machineOf("tsp-v1"), {}, report);
  ASSERT_TRUE(image) << image.error();
  std::set<unsigned> slices[kHemispheres];
  uint64_t rows = 0;
  for (const Region &region : image->tensors)
    if (image->strings[region.name] == "z") {
      slices[size_t(region.hemisphere)].insert(region.slice);
      rows += region.rows;
    }
  EXPECT_EQ(slices[0].size(), 16u);
  EXPECT_EQ(slices[1].size(), 16u);
  // Of 28 lines 14 and those beyond them: one below the western half, two above the eastern one.
  EXPECT_EQ(rows, uint64_t(4 * 4 * (14 + 1 + 14 + 2) * 28));
}

TEST(Windows, AnyTapsAreRight) {
  const Machine machines[] = {machineOf("tsp-v1"), machineOf("tsp-small"),
                              machineOf("tsp-v1", {"vxm.alus=12", "memory.slices=28"})};
  for (unsigned seed = 0; seed < 24; ++seed) {
    std::mt19937 draw(seed);
    const auto upTo = [&](unsigned most) { return int64_t(draw() % (most + 1)); };
    std::vector<Tap> taps(size_t(2 + upTo(3)));
    for (Tap &tap : taps)
      tap = {upTo(6) - 3, upTo(4) - 2};
    SCOPED_TRACE(seed);
    runRight(windowOf(taps, 6 + upTo(20), 6 + upTo(12), 8 + upTo(20),
                      seed % 3 ? ElementType::Fp32 : ElementType::Fp16),
             machines[seed % 3]);
  }
}

} // namespace
