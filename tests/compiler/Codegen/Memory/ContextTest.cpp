// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where copies and constants lie, which rows the host fills, and from when on rows are free again.
#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Codegen/Memory/Context.h"
#include "compiler/Codegen/Memory/Copies.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"
#include "tests/arch/program/Placements.h"

#include <gmock/gmock.h>
#include <random>
#include <set>

using namespace millrace;
using namespace millrace::forms;

namespace {

/// A graph of one tensor and the context of a machine for it.
struct OneTensor {
  Machine machine;
  KernelGraph graph;
  std::unique_ptr<schedule::Program> program;
  std::unique_ptr<grid::Context> c;

  explicit OneTensor(std::vector<int64_t> shape, const std::vector<std::string> &set = {}, TensorRole role = TensorRole::Intermediate)
      : machine(*loadMachine("tsp-small", set)) {
    addTensor(graph, "t", std::move(shape), ElementType::Int8, 1, role);
    addTensor(graph, "u", {2, 32}, ElementType::Int8, 1);
    program = std::make_unique<schedule::Program>(machine);
    c = std::make_unique<grid::Context>(machine, graph, *program);
  }
};

/// y[m, n] = x[m, k] w[n, k] of two inputs.
KernelGraph productOfInputs(int64_t columns) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {6, 24}, ElementType::Fp16, 1, TensorRole::Input),
                 w = addTensor(graph, "w", {columns, 24}, ElementType::Fp16, 1, TensorRole::Input),
                 y = addTensor(graph, "y", {6, columns}, ElementType::Fp16, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned m = build.loop(6), n = build.loop(columns), k = build.loop(24, LoopKind::Contracted);
  build.term({x, {at(m), at(k)}, 0}, {w, {at(n), at(k)}, 0}, 6 * columns * 24);
  build.store(build.accumulator(), {y, {at(m), at(n)}, 0});
  build.finish("product");
  return graph;
}

} // namespace

TEST(Release, RowsAreFreeAfterTheLastUseOfTheTensor) {
  OneTensor one({2, 32}, {"memory.rows_per_bank=16"});
  ASSERT_TRUE(one.c->addRowCopy(0, 0, Hemisphere::West, grid::allRows(one.c->layouts[0])));
  const unsigned slice = one.program->regions[0].slice;
  for (uint32_t r = 0; r < one.program->regions.size(); ++r)
    one.program->noteAccess(r, 10, 500);
  one.c->release(0);
  // Whatever takes those rows next waits for that use.
  unsigned rows = 0;
  Cycle latest = INT64_MIN;
  while (true) {
    const auto taken = one.c->allocator(0, Hemisphere::West).takeApart(1, 1, slice, slice + 1, {}, false);
    if (taken.empty())
      break;
    ++rows;
    latest = std::max(latest, taken[0].notBefore);
  }
  EXPECT_EQ(rows, one.machine.rowsPerSlice());
  EXPECT_EQ(latest, 500);
}

TEST(RowCopies, HalvesOfAnOwnersRowsLieInDifferentBanksOfOneSlice) {
  OneTensor one({96, 32});
  const grid::RowRuns runs{{{0, 64, 0}, {64, 20, 1}, {84, 12, 1}}};
  for (const bool alternates : {false, true}) {
    one.c->layouts[0].copies.clear();
    grid::Context c(one.machine, one.graph, *one.program, {.alternates = alternates});
    ASSERT_TRUE(c.addRowCopy(0, 0, Hemisphere::West, runs));
    const std::vector<grid::Segment> &segments = c.layouts[0].copies[0].tiles[0];
    std::vector<int64_t> rows;
    std::vector<unsigned> slices, banks;
    for (const grid::Segment &segment : segments) {
      rows.push_back(segment.rows);
      slices.push_back(segment.slices[0]);
      banks.push_back(segment.addresses[0] / one.machine.memory.rowsPerBank);
    }
    if (!alternates) {
      EXPECT_THAT(rows, testing::ElementsAre(64, 20, 12));
      continue;
    }
    ASSERT_THAT(rows, testing::ElementsAre(32, 32, 20, 12)); // short runs stay whole
    EXPECT_EQ(slices[0], slices[1]);
    EXPECT_NE(banks[0], banks[1]);
    EXPECT_NE(slices[0], slices[2]) << "written by another worker at the same time";
  }
}

TEST(RowCopies, SegmentsOfAnOwnersRowsGoRoundThroughSlicesAndBanks) {
  OneTensor one({160, 32});
  grid::Context c(one.machine, one.graph, *one.program, {.alternates = true, .segments = 5});
  ASSERT_TRUE(c.addRowCopy(0, 0, Hemisphere::West, grid::RowRuns{{{0, 160, 0}}}));
  const std::vector<grid::Segment> &segments = c.layouts[0].copies[0].tiles[0];
  ASSERT_EQ(segments.size(), 5u);
  const auto bankOf = [&](size_t s) { return segments[s].addresses[0] / one.machine.memory.rowsPerBank; };
  for (size_t s = 0; s < 5; ++s) {
    EXPECT_EQ(segments[s].rows, 32);
    if (s > 0) {
      EXPECT_NE(segments[s].slices, segments[s - 1].slices) << s;
    }
    if (s > 1) { // one of each pair is written while the one before it is read
      EXPECT_EQ(segments[s].slices, segments[s - 2].slices) << s;
      EXPECT_NE(bankOf(s), bankOf(s - 2)) << s;
    }
  }
}

TEST(RowCopies, SegmentsOfATensorThatAPieceReadsTwiceAreHalves) {
  OneTensor one({160, 32});
  KernelBuilder build(one.graph);
  const unsigned m = build.loop(2), n = build.loop(32);
  const unsigned sum = build.op(AluOp::AddI32, {build.operand({0, {at(m), at(n)}, 0}), build.operand({0, {at(m, 1, 1), at(n)}, 0})});
  build.store(sum, {1, {at(m), at(n)}, 0});
  build.finish("neighbours");
  grid::Context c(one.machine, one.graph, *one.program, {.alternates = true, .segments = 5});
  ASSERT_TRUE(c.addRowCopy(0, 0, Hemisphere::West, grid::RowRuns{{{0, 160, 0}}}));
  EXPECT_EQ(c.layouts[0].copies[0].tiles[0].size(), 2u);
}

TEST(HostRows, TheHostNamesTheRowsOfColumnsThatItWritesAndNoOthers) {
  for (int64_t columns : {5, 16, 17, 31, 32, 40}) {
    grid::CompileReport report;
    const Machine machine = *loadMachine("tsp-small");
    const Expected<Image> image = grid::compile(productOfInputs(columns), machine, {}, report);
    ASSERT_TRUE(image) << image.error();
    using Place = std::tuple<unsigned, unsigned, unsigned, uint32_t>;
    std::set<Place> named, written;
    for (const Block &block : image->blocks)
      for (uint32_t row = 0; row < block.rows && block.bytes == 0 && image->strings[image->tensors[block.tensor].name] == "w"; ++row)
        named.insert({block.pe, unsigned(block.hemisphere), block.slice, block.row + row});
    for (const Binding &binding : image->bindings)
      for (const Placement &p : binding.placements)
        if (binding.name == "w")
          test::forEachElement(binding, p, [&](int64_t, uint32_t row, size_t) {
            for (uint16_t slice : p.slices)
              written.insert({p.pe, unsigned(p.hemisphere), slice, row});
          });
    EXPECT_FALSE(named.empty());
    EXPECT_EQ(named, written) << columns;
  }
}

TEST(Columns, APaddedCopyHasZeroRowsUpToAWholeGroupAndAGroupMore) {
  OneTensor one({20, 32});
  ASSERT_TRUE(one.c->addColumnCopy(0, 0, Hemisphere::West, grid::ColumnPadding::Zeros));
  one.c->data.add(1, [](uint8_t *next) { *next = 7; }); // whatever comes next is no zero
  const std::vector<uint8_t> data = one.c->data.write();
  EXPECT_EQ(one.c->blocks.size(), 3u * 16 - 20);
  std::set<std::pair<unsigned, unsigned>> rows;
  for (const Block &b : one.c->blocks) {
    EXPECT_EQ(b.rows, 1u);
    EXPECT_EQ(b.bytes, 1u);
    ASSERT_LT(b.offset, data.size());
    EXPECT_EQ(data[b.offset], 0);
    EXPECT_TRUE(rows.insert({b.slice, b.row}).second);
  }
  EXPECT_EQ(one.c->layouts[0].copies[0].columnTiles[0].rows, 20);
  OneTensor plain({32, 32});
  ASSERT_TRUE(plain.c->addColumnCopy(0, 0, Hemisphere::West, grid::ColumnPadding::None));
  EXPECT_TRUE(plain.c->blocks.empty());
  EXPECT_TRUE(plain.c->data.write().empty());
}

TEST(Weights, FillOneSetOfSlicesAfterTheOther) {
  OneTensor one({2, 32});
  one.c->weightSlices = 32;
  const auto writer = [] { return [](uint8_t *) { FAIL() << "before the program is known"; }; };
  std::vector<unsigned> sets;
  for (const char *key : {"a", "b", "c", "d", "e"}) { // each fills half a bank of the two
    const Expected<grid::WeightTile> tile =
        one.c->weightTile(key, "w", {}, {.groups = one.machine.memory.rowsPerBank / 2, .planes = 1, .k1 = 32, .step = 32}, writer);
    ASSERT_TRUE(tile) << tile.error();
    for (unsigned slice : tile->slices)
      EXPECT_EQ(slice / 16, tile->slices[0] / 16) << key;
    sets.push_back(tile->slices[0] / 16);
  }
  EXPECT_THAT(sets, testing::ElementsAre(0, 0, 0, 0, 1));
}

/// What is installed one after the other leaves slices to what is read and written meanwhile, and
/// nothing runs full before the rest.
TEST(Weights, OfNeighboursLieTogetherUpToAnEighthOfASlice) {
  for (const bool spreads : {false, true}) {
    SCOPED_TRACE(spreads);
    KernelGraph graph = productOfInputs(16);
    const Machine machine = *loadMachine("tsp-v1");
    schedule::Program program(machine);
    grid::Context c(machine, graph, program, {.spreads = spreads});
    c.weightSlices = machine.memory.slices - 1; // no whole sets
    const unsigned eighth = machine.rowsPerSlice() / 8, width = machine.mxm.columnsPerInstall;
    const auto writer = [] { return [](uint8_t *) {}; };
    unsigned number = 0;
    const auto slicesOf = [&](size_t kernel, unsigned rows, unsigned plane = 0) {
      const Expected<grid::WeightTile> tile =
          c.weightTile("w" + std::to_string(number++), "w", {kernel, {0, Hemisphere::West, plane}}, {.groups = rows, .planes = 1, .k1 = 32, .step = 32}, writer);
      EXPECT_TRUE(tile) << tile.error();
      return std::set<unsigned>(tile->slices.begin(), tile->slices.end());
    };
    const std::set<unsigned> first = slicesOf(1, eighth / 2);
    EXPECT_EQ(first.size(), width);
    std::set<unsigned> both = slicesOf(2, eighth / 2); // the next kernel, while there is room
    both.merge(slicesOf(2, eighth / 2));               // a kernel stays together
    EXPECT_EQ(both == first, !spreads);
    EXPECT_NE(slicesOf(2, eighth / 2, 1), first); // another plane installs at the same time
    const std::set<unsigned> next = slicesOf(0, 8);
    EXPECT_NE(next, first);

    // Kernel 0 reads x while its weights are installed, from the emptiest slices.
    for (unsigned slice = 0; slice < machine.memory.slices; ++slice)
      for (unsigned bank = 0; bank < machine.memory.banks && !next.contains(slice); ++bank) {
        ASSERT_FALSE(c.allocator(0, Hemisphere::West).takeApart(1, eighth, slice, slice + 1).empty());
      }
    ASSERT_TRUE(c.addRowCopy(0, 0, Hemisphere::West, grid::allRows(c.layouts[0])));
    for (const grid::Segment &s : c.rowCopy(0, 0, Hemisphere::West)->tiles[0])
      for (const unsigned slice : s.slices)
        EXPECT_EQ(next.contains(slice), spreads) << slice;
  }
}

TEST(Weights, OfFewLanesLieBesideEachOther) {
  OneTensor one({2, 32});
  const grid::WeightShape shape{.groups = 1, .planes = 2, .k0 = 16, .k1 = 22, .step = 16}; // lanes 16 to 21 of what a pass takes
  std::set<std::tuple<unsigned, unsigned, unsigned>> taken;                                // slice, row, lane
  std::set<unsigned> addresses;
  for (unsigned number = 1; number <= 10; ++number) {
    const auto writer = [&] {
      return [number](uint8_t *bytes) {
        for (size_t i = 0; i < 16u * 2 * 1 * 22; ++i)
          bytes[i] = uint8_t(i % 22 < 16 ? 0 : number);
      };
    };
    const auto store = [&] { return one.c->weightTileBeside("w" + std::to_string(number), "w", {}, shape, writer); };
    const Expected<grid::WeightTile> tile = store(), again = store();
    ASSERT_TRUE(tile) << tile.error();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->addresses, tile->addresses);
    EXPECT_EQ(again->shift, tile->shift);
    EXPECT_EQ(tile->groups, 1u);
    EXPECT_EQ(tile->pitch, 2u); // 32 columns, two groups of 16
    const unsigned first = unsigned(16 + tile->shift);
    const std::vector<uint8_t> data = one.c->data.write();
    EXPECT_EQ(first / 16, (first + 5) / 16) << "lies across two passes";
    for (unsigned s = 0; s < 16; ++s)
      for (unsigned plane = 0; plane < 2; ++plane) {
        const unsigned row = tile->addresses[s] + plane * tile->pitch;
        addresses.insert(tile->addresses[0]);
        for (const Block &b : one.c->blocks)
          if (b.slice == tile->slices[s] && b.row <= row && row < b.row + b.rows)
            for (unsigned lane = first; lane < first + 6; ++lane) {
              EXPECT_TRUE(taken.insert({tile->slices[s], row, lane}).second);
              EXPECT_EQ(data[b.offset + size_t(row - b.row) * b.bytes + lane], number);
            }
      }
  }
  EXPECT_EQ(taken.size(), 10u * 16 * 2 * 6);
  EXPECT_EQ(one.c->blocks.size(), 2u * 16); // 4 beside each other in 2 groups, then new rows
  EXPECT_EQ(addresses.size(), 3u);          // both groups of the first rows, one of the new ones
}

/// Tiles of any lanes fill the same rows, none across two passes and none on another.
TEST(Weights, OfDifferentLanesFillTheSameRows) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    OneTensor one({2, 32});
    std::mt19937 draw(seed);
    std::set<std::tuple<unsigned, unsigned, unsigned>> taken; // slice, row, lane
    uint64_t cells = 0;
    for (unsigned number = 0; number < 60; ++number) {
      const unsigned width = 1 + draw() % 8, k0 = draw() % 2 * 16, groups = 1 + draw() % 2;
      const grid::WeightShape shape{.groups = groups, .planes = 2, .k0 = k0, .k1 = k0 + width, .step = 16};
      const auto writer = [] { return [](uint8_t *) {}; };
      const Expected<grid::WeightTile> tile =
          one.c->weightTileBeside("w" + std::to_string(number), "w", {}, shape, writer);
      ASSERT_TRUE(tile) << tile.error();
      const unsigned lane = unsigned(int(k0) + tile->shift);
      EXPECT_EQ(lane / 16, (lane + width - 1) / 16) << "lies across two passes";
      cells += uint64_t(width) * groups;
      for (unsigned plane = 0; plane < 2; ++plane)
        for (unsigned group = 0; group < groups; ++group)
          for (unsigned l = lane; l < lane + width; ++l)
            EXPECT_TRUE(taken.insert({tile->slices[0], tile->addresses[0] + plane * tile->pitch + group, l}).second);
    }
    const uint64_t sets = one.c->blocks.size() / 16;
    EXPECT_LT(sets * 32 * 2, cells * 5 / 4) << seed << ": more than a fifth is wasted";
  }
}

TEST(Copies, OneOfWhatMapsAloneReadWhereMemoryIsShort) {
  KernelGraph graph = productOfInputs(16); // sweeps x
  const unsigned y = 2;
  std::vector<unsigned> biases;
  for (const char *name : {"a", "b"}) {
    const unsigned bias = addSplat(graph, name, {6, 16}, ElementType::Fp32, 1, 0.5f),
                   out = addTensor(graph, "out", {6, 16}, ElementType::Fp32, 1, TensorRole::Output);
    KernelBuilder build(graph);
    const unsigned m = build.loop(6), n = build.loop(16);
    const Access at0{bias, {at(m), at(n)}, 0};
    build.store(build.op(AluOp::AddF32, {build.load({y, {at(m), at(n)}, 0}), build.load(at0)}), {out, {at(m), at(n)}, 0});
    build.finish("map");
    biases.push_back(bias);
  }
  const Machine machine = *loadMachine("tsp-small");
  const auto all = grid::copiesOf(graph, machine), few = grid::copiesOf(graph, machine, grid::CopiesFor::Least);
  unsigned perHemisphere[kHemispheres] = {0, 0};
  for (unsigned t : {biases[0], biases[1], y}) {
    EXPECT_EQ(all[t].rows[0], 1u);
    EXPECT_EQ(all[t].rows[1], 1u);
    EXPECT_EQ(few[t].rows[0] + few[t].rows[1], 1u) << graph.tensors[t].name;
    perHemisphere[few[t].rows[1]] += 1;
  }
  EXPECT_GT(perHemisphere[0], 0u) << "both hemispheres have some";
  EXPECT_GT(perHemisphere[1], 0u);
  EXPECT_EQ(few[0].rows[0], all[0].rows[0]) << "either hemisphere sweeps x";
  EXPECT_EQ(few[0].rows[1], all[0].rows[1]);
}
