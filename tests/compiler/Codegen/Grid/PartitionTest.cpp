// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does every solver deal all work once, and does the check see what is missing or twice?
#include "Dealt.h"

#include "compiler/Codegen/Grid/Sharding.h"
#include "compiler/Codegen/Grid/Shares.h"
#include "compiler/Codegen/Grid/Storage.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/KernelBuilder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

using namespace millrace;
using test::Dealt;

namespace {

class EverySolver : public testing::TestWithParam<std::string> {};

TEST_P(EverySolver, DealsAllWorkOnce) {
  for (unsigned pes : {1u, 3u, 7u})
    for (const forms::KernelGraph &graph :
         {forms::buildPerceptron(30, 64, 4, ElementType::Fp16),
          forms::buildAttention(20, 32, 16, true), forms::buildLayerNorm(20, 100),
          forms::buildConv({.channels = 40, .height = 15, .width = 13, .filters = 50})}) {
      Dealt dealt(graph, pes);
      Expected<grid::Partition> p = grid::solve(dealt.problem(), GetParam());
      ASSERT_TRUE(p) << p.error();
      Status s = grid::verify(dealt.problem(), *p);
      EXPECT_TRUE(s) << s.error();
    }
}

TEST_P(EverySolver, DealsToNoMorePesThanMay) {
  for (const unsigned most : {1u, 2u, 5u}) {
    Dealt dealt(forms::buildPerceptron(30, 64, 10, ElementType::Fp16), 7);
    grid::PartitionProblem problem = dealt.problem();
    problem.mostPes = most;
    Expected<grid::Partition> p = grid::solve(problem, GetParam());
    ASSERT_TRUE(p) << p.error();
    Status s = grid::verify(problem, *p);
    EXPECT_TRUE(s) << s.error();
    std::vector<bool> computes(7, false);
    for (const auto &shares : p->shares)
      for (unsigned pe = 0; pe < 7; ++pe)
        if (!shares[pe].empty())
          computes[pe] = true;
    for (unsigned pe = 0; pe < 7; ++pe)
      EXPECT_EQ(computes[pe], pe < most) << pe << " of " << most;
  }
}

TEST_P(EverySolver, IsRefusedWhenAShareIsMissingOrTwice) {
  Dealt dealt(forms::buildPerceptron(30, 64, 4, ElementType::Fp16), 3);
  const Expected<grid::Partition> p = grid::solve(dealt.problem(), GetParam());
  ASSERT_TRUE(p) << p.error();
  for (unsigned k = 0; k < p->shares.size(); ++k)
    for (unsigned pe = 0; pe < 3; ++pe) {
      if (p->shares[k][pe].empty())
        continue;
      grid::Partition damaged = *p;
      damaged.shares[k][pe].back().strips -= 1;
      Status s = grid::verify(dealt.problem(), damaged);
      ASSERT_FALSE(s);
      EXPECT_NE(s.error().find("is dealt 0 times"), std::string::npos) << s.error();
      damaged = *p;
      damaged.shares[k][(pe + 1) % 3].push_back(p->shares[k][pe].front());
      s = grid::verify(dealt.problem(), damaged);
      ASSERT_FALSE(s);
      EXPECT_NE(s.error().find("is dealt 2 times"), std::string::npos) << s.error();
    }
}

INSTANTIATE_TEST_SUITE_P(Solvers, EverySolver, testing::Values("spread", "pipeline"),
                         [](const auto &info) { return info.param; });

TEST(Partition, APipelineKeepsEveryKernelOnOnePeAndUsesThemAll) {
  Dealt dealt(forms::buildPerceptron(30, 64, 6, ElementType::Fp16), 3);
  Expected<grid::Partition> p = grid::solve(dealt.problem(), "pipeline");
  ASSERT_TRUE(p) << p.error();
  std::vector<unsigned> kernels(3, 0);
  unsigned last = 0;
  for (const auto &shares : p->shares)
    for (unsigned pe = 0; pe < 3; ++pe)
      if (!shares[pe].empty()) {
        EXPECT_GE(pe, last) << "stages follow the line";
        last = pe;
        ++kernels[pe];
      }
  EXPECT_EQ(kernels[0] + kernels[1] + kernels[2], p->shares.size());
  EXPECT_GT(*std::min_element(kernels.begin(), kernels.end()), 0u);
}

TEST(Partition, AutoTurnsToThePipelineWhenSpreadWeightsDoNotFit) {
  const forms::KernelGraph graph = forms::buildPerceptron(8, 256, 8, ElementType::Fp16);
  Dealt roomy(graph, 8);
  EXPECT_EQ(grid::solve(roomy.problem(), "auto")->solver, "spread");
  Dealt tight(graph, 8, 48);
  Expected<grid::Partition> p = grid::solve(tight.problem(), "auto");
  ASSERT_TRUE(p) << p.error();
  Expected<grid::Partition> spread = grid::solve(tight.problem(), "spread");
  EXPECT_LE(*std::max_element(p->weightRows.begin(), p->weightRows.end()),
            *std::max_element(spread->weightRows.begin(), spread->weightRows.end()));
}

TEST(Partition, WeightsLieInOneHemisphereAsFarAsTheyMust) {
  // 4 layers of 3 lane tiles with 12 rows each: the second tile's rows are cut in two, so that both
  // hemispheres store its weights.
  Dealt dealt(forms::buildPerceptron(30, 96, 4, ElementType::Fp16), 1);
  size_t whole = 0;
  for (uint64_t room : {1000, 96, 95, 84, 83, 72, 0}) {
    const Expected<grid::Partition> p = grid::solve(dealt.problem(room), "spread");
    ASSERT_TRUE(p) << p.error();
    const Status s = grid::verify(dealt.problem(), *p);
    EXPECT_TRUE(s) << s.error();
    EXPECT_LE(*std::max_element(p->weightRows.begin(), p->weightRows.end()),
              std::max<uint64_t>(room, 72));
    size_t now = 0;
    for (const auto &dealtToPes : p->hemispheres)
      now += !dealtToPes.front().empty();
    EXPECT_GE(now, whole);
    if (room >= 96) {
      EXPECT_EQ(now, 0u);
      EXPECT_EQ(p->weightRows, std::vector<uint64_t>({96, 96}));
    }
    if (room <= 72) {
      EXPECT_EQ(now, 4u);
      EXPECT_EQ(p->weightRows, std::vector<uint64_t>({72, 72}));
    }
    whole = now;
  }
}

TEST(Partition, EveryCutDealsEachUnitOnceToAnyNumberOfPes) {
  Dealt dealt(forms::buildConv({.channels = 40, .height = 15, .width = 13, .filters = 150}), 1);
  const grid::Work &work = dealt.problem().works.front();
  ASSERT_GT(work.tiles.size(), 3u);
  for (grid::Cut cut : {grid::Cut::Strips, grid::Cut::Units, grid::Cut::Tiles})
    for (size_t pes = 1; pes <= 11; ++pes) {
      std::vector<unsigned> times(size_t(work.units()), 0);
      const auto shares = grid::cutWork(work, pes, cut);
      ASSERT_EQ(shares.size(), pes);
      for (const auto &its : shares) {
        size_t tiles = 0;
        for (const grid::Share &share : its) {
          tiles += &share == &its.front() || share.tile != (&share - 1)->tile;
          for (int64_t s = share.strip; s < share.strip + share.strips; ++s)
            ++times[(share.instance * work.tiles.size() + share.tile) * size_t(work.strips) +
                    size_t(s)];
        }
        if (cut == grid::Cut::Tiles) { // none that another PE could do without
          EXPECT_LE(tiles, (work.tiles.size() + pes - 1) / pes);
        }
        if (cut == grid::Cut::Strips) {
          EXPECT_EQ(tiles, work.tiles.size());
        }
      }
      EXPECT_EQ(times, std::vector<unsigned>(times.size(), 1)) << pes << " PEs";
    }
}

TEST(Partition, WeightsLieOnFewerPesAsFarAsTheyMust) {
  // One lane tile of 2,304 rows on 8 PEs, each of which takes all weights.
  const forms::KernelGraph graph =
      forms::buildConv({.channels = 40, .height = 48, .width = 48, .filters = 20});
  const auto pesOf = [](const grid::Partition &p) {
    return std::count_if(p.shares.front().begin(), p.shares.front().end(),
                         [](const std::vector<grid::Share> &its) { return !its.empty(); });
  };
  const auto solved = [&](std::vector<uint64_t> room) {
    Dealt dealt(graph, 8);
    grid::PartitionProblem problem = dealt.problem();
    problem.mostWeightRows = std::move(room);
    Expected<grid::Partition> p = grid::solve(problem, "spread");
    EXPECT_TRUE(p) << p.error();
    const Status s = grid::verify(problem, *p);
    EXPECT_TRUE(s) << s.error();
    return *p;
  };
  const grid::Partition roomy = solved({});
  const uint64_t all = roomy.weightRows.front(); // of a hemisphere
  ASSERT_GT(all, 8u);
  EXPECT_EQ(pesOf(roomy), 8);
  EXPECT_EQ(roomy.weightRows, std::vector<uint64_t>(16, all));
  // Half of it fits everywhere: no PE idles while K can be split over the hemispheres.
  const grid::Partition halves = solved(std::vector<uint64_t>(16, all / 2 + all / 8));
  EXPECT_EQ(pesOf(halves), 8);
  EXPECT_TRUE(halves.splitK.front());
  // Room on 3 PEs alone: they do it.
  std::vector<uint64_t> room(16, 0);
  std::fill(room.begin() + 4, room.begin() + 10, all);
  const grid::Partition few = solved(room);
  EXPECT_EQ(pesOf(few), 3);
  for (size_t i = 0; i < room.size(); ++i)
    EXPECT_LE(few.weightRows[i], room[i]);
}

TEST(Partition, KernelsThatCannotAllBeEverywhereTakeTurnsWithPes) {
  // 6 layers of 3 lane tiles of 12 rows, so 18 lane tiles for 16 hemispheres: two in one, or one
  // whole and one of which K is split, 4 and 8 rows.
  const forms::KernelGraph graph = forms::buildPerceptron(64, 96, 6, ElementType::Fp16);
  const auto solved = [&](std::optional<uint64_t> room) {
    Dealt dealt(graph, 8);
    Expected<grid::Partition> p = grid::solve(dealt.problem(room), "spread");
    EXPECT_TRUE(p) << p.error();
    const Status s = grid::verify(dealt.problem(), *p);
    EXPECT_TRUE(s) << s.error();
    return *p;
  };
  const auto most = [](const grid::Partition &p) {
    return *std::max_element(p.weightRows.begin(), p.weightRows.end());
  };
  uint64_t before = most(solved(std::nullopt));
  ASSERT_GT(before, 60u);
  for (uint64_t room = before; room >= 20; --room) {
    const grid::Partition p = solved(room);
    EXPECT_LE(most(p), room);
    EXPECT_LE(most(p), before);
    before = most(p);
  }
}

TEST(Partition, HemispheresChangeTilesWhereWeightsLieUnevenly) {
  // One row by weights of one tile of K: of the two tiles of columns, of 32 and of 8, a hemisphere
  // does one whole.
  forms::KernelGraph graph;
  const auto tensor = [&](const std::string &name, std::vector<int64_t> shape, ElementType type,
                          forms::TensorRole role) {
    return forms::addTensor(graph, name, std::move(shape), type, 1, role);
  };
  const unsigned x = tensor("x", {1, 16}, ElementType::Int8, forms::TensorRole::Input);
  for (const std::string name : {"a", "b", "c", "d", "e", "f"}) {
    std::vector<float> weights(size_t(40 * 16));
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = float(int(i % 100) - name[0]);
    const unsigned w = forms::addConstant(graph, "w." + name, {40, 16}, ElementType::Int8, 1,
                                          weights),
                   y = tensor(name, {1, 40}, ElementType::Int32, forms::TensorRole::Output);
    forms::KernelBuilder build(graph);
    const unsigned m = build.loop(1), n = build.loop(40),
                   k = build.loop(16, forms::LoopKind::Contracted);
    build.term({x, {forms::at(m), forms::at(k)}, 0}, {w, {forms::at(n), forms::at(k)}, 0}, 40 * 16);
    build.store(build.accumulator(), {y, {forms::at(m), forms::at(n)}, 0});
    build.finish(name);
  }
  const auto rows = [&](std::optional<uint64_t> room) {
    Dealt dealt(graph, 1, 4096, /*sharesRows=*/true);
    Expected<grid::Partition> p = grid::solve(dealt.problem(room), "spread");
    EXPECT_TRUE(p) << p.error();
    return std::array{p->weightRows[0], p->weightRows[1]};
  };
  const auto roomy = rows(std::nullopt);
  const uint64_t sum = roomy[0] + roomy[1];
  const auto even = rows(sum / 2);
  EXPECT_EQ(even[0] + even[1], sum);
  EXPECT_EQ(even[0], even[1]);
}

/// A row by a matrix of weights that no other kernel has.
void addProduct(forms::KernelGraph &graph, const std::string &name, int64_t depth, int64_t columns,
                ElementType type) {
  std::vector<float> weights(size_t(columns * depth));
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = float(1 + int(i * size_t(name[0]) % 97));
  const unsigned x = forms::addTensor(graph, "x." + name, {1, depth}, type, 1,
                                      forms::TensorRole::Input),
                 w = forms::addConstant(graph, "w." + name, {columns, depth}, type, 1, weights),
                 y = forms::addTensor(graph, name, {1, columns},
                                      type == ElementType::Int8 ? ElementType::Int32
                                                                : ElementType::Fp32,
                                      1, forms::TensorRole::Output);
  forms::KernelBuilder build(graph);
  const unsigned m = build.loop(1), n = build.loop(columns),
                 k = build.loop(depth, forms::LoopKind::Contracted);
  build.term({x, {forms::at(m), forms::at(k)}, 0}, {w, {forms::at(n), forms::at(k)}, 0},
             columns * depth);
  build.store(build.accumulator(), {y, {forms::at(m), forms::at(n)}, 0});
  build.finish(name);
}

TEST(Partition, WhatCannotBeSplitIsEvenedOutByWhatCan) {
  // On each of two PEs a tile of columns of one row. Four kernels can split K; a fifth, of as many
  // rows as each of them, cannot and lies in one hemisphere.
  forms::KernelGraph graph;
  for (const std::string name : {"a", "b", "c", "d"})
    addProduct(graph, name, 64, 64, ElementType::Int8);
  addProduct(graph, "whole", 16, 64, ElementType::Fp16);
  const auto dealtWith = [&](std::optional<uint64_t> room) {
    Dealt dealt(graph, 2, 4096);
    Expected<grid::Partition> p = grid::solve(dealt.problem(room), "spread");
    EXPECT_TRUE(p) << p.error();
    return *p;
  };
  const grid::Partition roomy = dealtWith(std::nullopt);
  EXPECT_TRUE(roomy.splitK[0]);
  EXPECT_FALSE(roomy.splitK[4]);
  const std::vector<uint64_t> &rows = roomy.weightRows;
  ASSERT_NE(rows[0], rows[1]);
  const uint64_t half = (rows[0] + rows[1]) / 2;
  EXPECT_EQ(dealtWith(half).weightRows, std::vector<uint64_t>(4, half));
}

TEST(Partition, OtherPesStoreTheOddTileOfEachKernelWhereRowsAreMissing) {
  // Five tiles of columns on four PEs: one of them stores two.
  forms::KernelGraph graph;
  for (const std::string name : {"a", "b", "c", "d"})
    addProduct(graph, name, 64, 160, ElementType::Int8);
  const auto dealtWith = [&](std::optional<uint64_t> room) {
    Dealt dealt(graph, 4, 4096);
    Expected<grid::Partition> p = grid::solve(dealt.problem(room), "spread");
    EXPECT_TRUE(p) << p.error();
    return p->weightRows;
  };
  const std::vector<uint64_t> roomy = dealtWith(std::nullopt);
  const uint64_t even = std::accumulate(roomy.begin(), roomy.end(), uint64_t(0)) / roomy.size();
  EXPECT_GT(*std::max_element(roomy.begin(), roomy.end()), even);
  EXPECT_EQ(dealtWith(even), std::vector<uint64_t>(8, even));
}

/// Rows that each hemisphere of each PE has in use at most while the kernels are stored one after
/// the other and tensors are given back after their last use.
std::vector<uint64_t> mostRowsInUse(const grid::PartitionProblem &problem, grid::Storage &storage) {
  grid::Context &c = problem.c;
  std::vector<uint64_t> most(c.allocators.size(), 0);
  const auto look = [&] {
    for (size_t i = 0; i < most.size(); ++i)
      most[i] = std::max(most[i], uint64_t(c.machine.memory.slices) * c.machine.rowsPerSlice() -
                                      c.allocators[i].freeRows(0, c.machine.memory.slices));
  };
  const auto check = [](const Status &s) { EXPECT_TRUE(s) << s.error(); };
  check(storage.plan(0, false));
  for (unsigned t = 0; t < c.graph.tensors.size(); ++t)
    if (c.tensor(t).role == forms::TensorRole::Input)
      check(storage.allocateFromHost(t));
  for (size_t k = 0; k < c.graph.kernels.size(); ++k) {
    check(storage.allocateFor(k));
    look();
    for (unsigned t = 0; t < c.graph.tensors.size(); ++t) {
      size_t last = SIZE_MAX;
      for (size_t user = 0; user < c.graph.kernels.size(); ++user)
        forms::forEachAccess(c.graph.kernels[user],
                             [&](const forms::Access &a) { last = a.tensor == t ? user : last; });
      if (last == k && c.tensor(t).role == forms::TensorRole::Intermediate)
        c.release(t);
    }
  }
  return most;
}

TEST(Partition, NoStorageHoldsFewerRowsThanAreCountedBeforehand) {
  for (unsigned pes : {1u, 3u, 8u})
    for (const forms::KernelGraph &graph :
         {forms::buildPerceptron(30, 64, 4, ElementType::Fp16),
          forms::buildAttention(20, 32, 16, true), forms::buildLayerNorm(20, 100),
          forms::buildConv({.channels = 40, .height = 15, .width = 13, .filters = 50})}) {
      Dealt dealt(graph, pes);
      const grid::PartitionProblem problem = dealt.problem();
      const Expected<grid::Partition> p = grid::solve(problem, "spread");
      ASSERT_TRUE(p) << p.error();
      grid::Storage storage(problem.c, problem.works, *p);
      std::vector<size_t> order(graph.kernels.size());
      std::iota(order.begin(), order.end(), 0);
      storage.planCopies(order, grid::CopiesFor::Speed);
      const std::vector<uint64_t> least = storage.leastValueRows();
      ASSERT_EQ(least.size(), size_t(pes) * kHemispheres);
      EXPECT_GT(*std::max_element(least.begin(), least.end()), 0u);
      const std::vector<uint64_t> most = mostRowsInUse(problem, storage);
      for (unsigned pe = 0; pe < pes; ++pe) {
        const auto weights = storage.weightRowsOn(pe);
        ASSERT_TRUE(weights) << weights.error();
        for (unsigned h = 0; h < kHemispheres; ++h) {
          const size_t i = size_t(pe) * kHemispheres + h;
          EXPECT_LE((*weights)[h], p->weightRows[i]);
          EXPECT_LE(least[i] + (*weights)[h] * problem.c.machine.mxm.columnsPerInstall, most[i])
              << pes << " PEs, hemisphere " << i;
        }
      }
    }
}

/// Rows of a tensor that a PE's hemisphere reads, and those that both read.
struct Reads {
  size_t rows[kHemispheres] = {0, 0}, both = 0;
};
Reads readsOf(const grid::TensorRows &rows, unsigned pe) {
  Reads reads;
  const auto &sides = rows.read[pe];
  for (size_t tile = 0; tile < rows.needed[pe].tiles.size(); ++tile)
    for (size_t row = 0; row < rows.needed[pe].tiles[tile].size(); ++row) {
      const bool west = sides[0].has(unsigned(tile), int64_t(row)),
                 east = sides[1].has(unsigned(tile), int64_t(row));
      EXPECT_EQ(west || east, rows.needed[pe].has(unsigned(tile), int64_t(row)));
      reads.rows[0] += west;
      reads.rows[1] += east;
      reads.both += west && east;
    }
  return reads;
}

TEST(Partition, AHemisphereReadsTheRowsThatItsWorkersTake) {
  // 30 rows of a vector through three layers: each hemisphere takes half of the rows of each.
  const forms::KernelGraph layers = forms::buildPerceptron(30, 32, 3, ElementType::Fp16);
  Dealt dealt(layers, 1);
  const Expected<grid::Partition> p = grid::solve(dealt.problem(), "spread");
  ASSERT_TRUE(p) << p.error();
  unsigned values = 0;
  for (unsigned t = 0; t < layers.tensors.size(); ++t) {
    if (layers.tensors[t].role != forms::TensorRole::Intermediate)
      continue;
    ++values;
    const Reads reads = readsOf(p->tensors[t], 0);
    EXPECT_EQ(reads.rows[0], 15u);
    EXPECT_EQ(reads.rows[1], 15u);
    EXPECT_EQ(reads.both, 0u);
  }
  EXPECT_GT(values, 0u);
  // A window of 3 x 3 over 12 x 10 pixels: of the twelve lines seven each, two by both.
  const forms::KernelGraph image =
      forms::buildConv({.channels = 16, .height = 12, .width = 10, .filters = 16});
  Dealt convolved(image, 1);
  const Expected<grid::Partition> q = grid::solve(convolved.problem(), "spread");
  ASSERT_TRUE(q) << q.error();
  const unsigned input = image.kernels.front().terms.front().a.tensor;
  const Reads reads = readsOf(q->tensors[input], 0);
  EXPECT_EQ(reads.rows[0], 70u);
  EXPECT_EQ(reads.rows[1], 70u);
  EXPECT_EQ(reads.both, 20u);
}

TEST(Partition, MoreRowsThanThereAreAreRefusedBeforeTheyAreStored) {
  const forms::KernelGraph graph = forms::buildPerceptron(30, 256, 4, ElementType::Fp16);
  const auto checked = [&](unsigned rowsPerBank) {
    Dealt dealt(graph, 2, rowsPerBank);
    const grid::PartitionProblem problem = dealt.problem();
    const Expected<grid::Partition> p = grid::solve(problem, "spread");
    EXPECT_TRUE(p) << p.error();
    grid::Storage storage(problem.c, problem.works, *p);
    storage.planCopies({0, 1, 2, 3}, grid::CopiesFor::Speed);
    const Status s = storage.checkRoom();
    EXPECT_EQ(problem.c.full, !s);
    return s ? std::string() : s.error();
  };
  EXPECT_EQ(checked(4096), "");
  EXPECT_NE(checked(16).find("weights that the west hemisphere of PE 0 installs take "),
            std::string::npos);
}

TEST(Partition, SplitsKWhereAHemisphereWouldWait) {
  struct Case {
    forms::KernelGraph graph;
    bool splits;
  };
  for (const Case &its :
       {Case{forms::buildMatmul({.m = 1, .k = 200, .n = 3}), true},
        Case{forms::buildMatmul({.m = 1, .k = 20, .n = 3}), false}, // one K tile
        // An accumulator row waits 34 cycles between two passes, as long as for 34 rows.
        Case{forms::buildMatmul({.m = 1, .k = 200, .n = 60}), true},
        Case{forms::buildMatmul({.m = 40, .k = 200, .n = 3}), true},
        Case{forms::buildMatmul({.m = 40, .k = 200, .n = 60}), false}, // 40 each
        Case{forms::buildMatmul({.m = 80, .k = 200, .n = 3}), false}}) {
    Dealt dealt(its.graph, 1);
    const Expected<grid::Partition> p = grid::solve(dealt.problem(), "spread");
    ASSERT_TRUE(p) << p.error();
    EXPECT_EQ(p->splitK.front(), its.splits);
  }
}

TEST(Partition, SplitsKOfAReductionThatIsOneWorkers) {
  // y[n] = the sum over r of what x[r] is by a matrix, of so many passes: in one piece for n lanes.
  const auto splits = [](int64_t lanes, int64_t passes) {
    forms::KernelGraph graph;
    graph.name = "sums";
    const unsigned x = addTensor(graph, "x", {50, passes, 20}, ElementType::Fp16, 2,
                                 forms::TensorRole::Input),
                   m = addSplat(graph, "m", {lanes, passes, 20}, ElementType::Fp16, 2, 0.5f),
                   y = addTensor(graph, "y", {lanes}, ElementType::Fp32, 0,
                                 forms::TensorRole::Output);
    forms::KernelBuilder build(graph);
    const unsigned n = build.loop(lanes), r = build.loop(50, forms::LoopKind::Running),
                   k = build.loop(passes, forms::LoopKind::Contracted),
                   c = build.loop(20, forms::LoopKind::Contracted);
    build.term({x, {forms::at(r), forms::at(k), forms::at(c)}},
               {m, {forms::at(n), forms::at(k), forms::at(c)}}, 0);
    build.store(build.reduce(AluOp::AddF32, build.accumulator()), {y, {forms::at(n)}});
    build.finish("sums");
    Dealt dealt(graph, 1);
    const Expected<grid::Partition> p = grid::solve(dealt.problem(), "spread");
    EXPECT_TRUE(p) << (p ? "" : p.error());
    return p && p->splitK.front();
  };
  EXPECT_TRUE(splits(10, 8));
  EXPECT_FALSE(splits(10, 1)) << "nothing to split";
  EXPECT_FALSE(splits(60, 8)) << "lanes for both hemispheres";
}

TEST(Partition, SplitsKRatherThanThatAHemisphereIdlesWhereWeightsLieOnce) {
  const forms::KernelGraph graph =
      forms::buildConv({.channels = 40, .height = 15, .width = 13, .filters = 20});
  const auto solved = [&](std::optional<uint64_t> room) {
    Dealt dealt(graph, 1);
    Expected<grid::Partition> p = grid::solve(dealt.problem(room), "spread");
    EXPECT_TRUE(p) << p.error();
    return *p;
  };
  const grid::Partition roomy = solved(1000), tight = solved(0);
  EXPECT_FALSE(roomy.splitK.front());
  EXPECT_TRUE(tight.splitK.front());
  EXPECT_EQ(roomy.weightRows[0], roomy.weightRows[1]);
  EXPECT_EQ(tight.weightRows[0] + tight.weightRows[1], roomy.weightRows[0]);
  EXPECT_LT(tight.weightRows[0], roomy.weightRows[0]);
  EXPECT_LT(tight.weightRows[1], roomy.weightRows[0]);
}

TEST(Partition, WeightsOfEqualBytesAreStoredOnceWhicheverKernelsTakeThem) {
  forms::KernelGraph graph = forms::buildPerceptron(30, 96, 4, ElementType::Fp16);
  const uint64_t all = grid::solve(Dealt(graph, 1).problem(), "spread")->weightRows[0];
  std::vector<forms::Tensor *> weights;
  for (forms::Tensor &t : graph.tensors)
    if (t.role == forms::TensorRole::Constant && t.shape.size() == 2)
      weights.push_back(&t);
  ASSERT_EQ(weights.size(), 4u);
  weights[2]->data = weights[0]->data;
  EXPECT_EQ(grid::solve(Dealt(graph, 1).problem(), "spread")->weightRows[0], all / 4 * 3);
  for (forms::Tensor *t : weights)
    t->data = weights[0]->data;
  for (uint64_t room : {1000, 0})
    EXPECT_EQ(grid::solve(Dealt(graph, 1).problem(room), "spread")->weightRows[0], all / 4);
}

/// y[b, f, x] = x[b, c, ky - 1, x] w[f, c, ky] of one image row: two of the three taps see padding.
forms::KernelGraph convolutionOfOneRow() {
  using namespace forms;
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {5, 8, 1, 13}, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned w = addSplat(graph, "w", {3, 8, 3}, ElementType::Fp16, 1, 0.5f);
  const unsigned y = addTensor(graph, "y", {5, 3, 13}, ElementType::Fp16, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned image = build.loop(5), filter = build.loop(3), column = build.loop(13);
  const unsigned channel = build.loop(8, LoopKind::Contracted);
  const unsigned tap = build.loop(3, LoopKind::Contracted);
  build.term({x, {at(image), at(channel), at(tap, 1, -1), at(column)}, 0},
             {w, {at(filter), at(channel), at(tap)}, 0}, 5 * 3 * 13 * 8);
  build.store(build.accumulator(), {y, {at(image), at(filter), at(column)}, 0});
  build.finish("convolution");
  return graph;
}

TEST(Partition, RowLoopsThatRunAsOneStillLeaveOutTapsInPadding) {
  Dealt dealt(convolutionOfOneRow(), 1);
  const grid::PartitionProblem problem = dealt.problem();
  const grid::Work &work = problem.works[0];
  ASSERT_TRUE(work.linear);
  std::vector<int64_t> rows;
  grid::forEachRead(problem.c, problem.c.graph.kernels[0], work, {0, 0, 0, work.strips},
                    [&](unsigned, unsigned, const grid::SteppedRows &read) {
                      read.forEach([&](int64_t row) { rows.push_back(row); });
                    });
  std::vector<int64_t> once(5 * 13);
  std::iota(once.begin(), once.end(), 0);
  EXPECT_EQ(rows, once);
}

TEST(Partition, RowsAreMarkedInRunsAndInSteps) {
  Dealt dealt(convolutionOfOneRow(), 1);
  const grid::Context &c = dealt.problem().c;
  const auto &layout = c.layouts[0]; // 65 rows, more than a word of bits
  grid::RowSet rows;
  EXPECT_FALSE(rows.any());
  rows.mark(layout, 0, {3, 2, 1});
  rows.mark(layout, 0, {60, 3, -13}); // 60, 47, 34
  rows.mark(layout, 0, {64, 1, 0});
  std::vector<int64_t> marked;
  for (int64_t row = 0; row < layout.rows; ++row)
    if (rows.has(0, row))
      marked.push_back(row);
  EXPECT_EQ(marked, (std::vector<int64_t>{3, 4, 34, 47, 60, 64}));
  EXPECT_TRUE((grid::SteppedRows{60, 3, -13}.isWithin(61)));
  EXPECT_FALSE((grid::SteppedRows{60, 3, -13}.isWithin(60)));
  EXPECT_FALSE((grid::SteppedRows{12, 3, -13}.isWithin(65)));
}

TEST(Partition, AnUnknownSolverIsNamedWithTheKnownOnes) {
  Dealt dealt(forms::buildLayerNorm(20, 100), 1);
  Expected<grid::Partition> p = grid::solve(dealt.problem(), "best");
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error(), "no partition solver is called 'best'; there are auto, spread, pipeline");
}

} // namespace
