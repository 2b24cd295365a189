// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions in groups: are zeros beside the groups left out, and do runs of whole groups save
// the vectors that they are made for, with the same values?
#include "compiler/Layouts/Assign.h"

#include "tests/compiler/Codegen/Grid/TestMachine.h"
#include "tests/compiler/Layouts/Compared.h"

#include <algorithm>

using namespace millrace;
using namespace millrace::forms;
using namespace millrace::layouts;

namespace {

/// A convolution of `outside` channels, one of `groups` groups of `each` channels, and one back.
KernelGraph grouped(ElementType type, int64_t groups, int64_t each, int64_t made, int64_t size,
                    int64_t outside = 20) {
  KernelGraph graph;
  graph.name = "grouped";
  const unsigned x = addTensor(graph, "x", {1, outside, size, size}, type, 1, TensorRole::Input),
                 a = addTensor(graph, "a", {1, groups * each, size, size}, type, 1),
                 b = addTensor(graph, "b", {1, groups * made, size, size}, type, 1),
                 y = addTensor(graph, "y", {1, outside, size, size}, type, 1, TensorRole::Output),
                 w = addConstant(graph, "w", {groups, made, each, 3, 3}, type, 2,
                                 randomValues(size_t(groups * made * each * 9), 1, 0.6f));
  convolve(graph, type, x, a, 1, 1, 2);
  KernelBuilder build(graph);
  const unsigned g = build.loop(groups), f = build.loop(made), r = build.loop(size),
                 s = build.loop(size), c = build.loop(each, LoopKind::Contracted),
                 ky = build.loop(3, LoopKind::Contracted), kx = build.loop(3, LoopKind::Contracted);
  build.term(
      {a, {fixed(0), {0, {{g, each}, {c, 1}}}, {-1, {{r, 1}, {ky, 1}}}, {-1, {{s, 1}, {kx, 1}}}}},
      {w, {at(g), at(f), at(c), at(ky), at(kx)}}, groups * each * made * 9 * size * size);
  build.store(build.accumulator(), {b, {fixed(0), {0, {{g, made}, {f, 1}}}, at(r), at(s)}});
  build.finish("groups");
  convolve(graph, type, b, y, 1, 1, 3);
  return graph;
}

TEST(Runs, HoldWholeGroupsSoThatNoneTakesTwoParts) {
  // 14 groups of 24 channels: six in each 160 lanes that a pass takes. Result lanes 0 to 319 meet
  // two parts and the others one; without gaps, three and two. Of the 7 x 7 windows of 3 x 3 taps
  // those within the image are swept, but the first and the last sweep of a vector of results take
  // all: of one vector of b there is one such tap.
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = grouped(ElementType::Fp16, 14, 24, 24, 7, 200);
  KernelGraph packed = plain;
  const auto lines = assignLayouts(packed, machine, "exact");
  ASSERT_TRUE(lines) << lines.error();
  EXPECT_EQ(std::ranges::count_if(*lines,
                                  [](const std::string &line) {
                                    return line.find("runs of 144 lanes every 160") !=
                                           std::string::npos;
                                  }),
            2);
  expectClose(plain, packed, "runs");
  KernelGraph close = plain;
  ASSERT_TRUE(assignLayouts(close, machine, "plain"));
  const int64_t taps = 19 * 19, beyond = 7 * 7 - 6 * 6;
  EXPECT_EQ(compiled(close, machine).vectors - compiled(packed, machine).vectors,
            taps * (5 - 3) - 2 * beyond);
}

class AnyRuns : public testing::TestWithParam<unsigned> {};

TEST_P(AnyRuns, KeepTheValues) {
  const unsigned seed = GetParam();
  const int64_t each = 3 + seed % 11, made = seed % 4 ? each : 2 + seed % 5;
  const ElementType type = seed % 2 ? ElementType::Fp16 : ElementType::Bf16;
  const KernelGraph plain = grouped(type, 4 + int64_t(seed % 17), each, made, 3);
  KernelGraph other = plain;
  const auto lines = assignLayouts(other, test::testMachine(seed % 3 ? 4 : 2), "random", seed + 1);
  ASSERT_TRUE(lines) << lines.error();
  EXPECT_EQ(other.verify(), "");
  EXPECT_EQ(other.macs(), plain.macs());
  EXPECT_LE(distance(plain, other), type == ElementType::Fp16 ? 2e-3 : 1.5e-2);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyRuns, testing::Range(0u, 40u));

TEST(Materialize, GroupsAreBandsWhoseZerosAreNotSwept) {
  // 400 channels in groups of 8: columns of one tile meet at most two of a tensor's.
  KernelGraph graph;
  graph.name = "groups";
  const int64_t groups = 50, each = 8;
  const ElementType type = ElementType::Fp16;
  const unsigned x = addTensor(graph, "x", {1, groups * each, 4, 5}, type, 1, TensorRole::Input);
  const unsigned y = addTensor(graph, "y", {1, groups * each, 4, 5}, type, 1, TensorRole::Output);
  const unsigned w = addConstant(graph, "w", {groups, each, each}, type, 2,
                                 randomValues(size_t(groups * each * each), 1, 0.6f));
  KernelBuilder build(graph);
  const unsigned g = build.loop(groups), f = build.loop(each), r = build.loop(4), s = build.loop(5),
                 c = build.loop(each, LoopKind::Contracted);
  const AffineIndex result{0, {{g, each}, {f, 1}}}, lanes{0, {{g, each}, {c, 1}}};
  build.term({x, {fixed(0), lanes, at(r), at(s)}}, {w, {at(g), at(f), at(c)}},
             groups * each * each * 20);
  build.store(build.accumulator(), {y, {fixed(0), result, at(r), at(s)}});
  build.finish("groups");
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = graph;
  const auto lines = assignLayouts(graph, machine, "exact");
  ASSERT_TRUE(lines) << lines.error();
  EXPECT_EQ(graph.kernels[0].terms[0].w.index.size(), 2u); // lanes of the result, lanes of x
  expectClose(plain, graph, "groups");
  // Result lanes 0 to 319 meet both halves of the first vector of x, the others the second.
  EXPECT_EQ(compiled(graph, machine).vectors, 20 * (2 + 1));
}

} // namespace
