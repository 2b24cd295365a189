// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Heads that are normalised and turned by their positions before they meet: do they stay side by
// side, and values as they were?
#include "tests/compiler/Forms/Rewritings/Heads.h"
#include "tests/compiler/Forms/Rewritings/Outputs.h"

#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/ForwardCopies.h"
#include "compiler/Forms/Rewritings/KeepHeads.h"
#include "compiler/Forms/Rewritings/PackHeads.h"

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace millrace;
using namespace millrace::forms;

namespace {

/// [tokens, heads * lanes] of x by constant weights.
unsigned project(KernelGraph &graph, const std::string &name, unsigned x, const HeadShape &s) {
  const int64_t width = graph.tensors[x].shape[1], wide = s.heads * s.lanes;
  const unsigned w = addConstant(graph, name + ".w", {width, wide}, ElementType::Fp16, 0,
                                 sixteenths(width * wide, int(name.size()))),
                 y = addTensor(graph, name, {s.tokens, wide}, ElementType::Fp16, 1);
  KernelBuilder build(graph);
  const unsigned t = build.loop(s.tokens), d = build.loop(wide),
                 c = build.loop(width, LoopKind::Contracted);
  build.term({x, {at(t), at(c)}, 0}, {w, {at(c), at(d)}, 0}, s.tokens * wide * width);
  build.store(build.accumulator(), {y, {at(t), at(d)}});
  build.finish(name);
  return y;
}

unsigned identity(KernelGraph &graph, int64_t lanes) {
  std::vector<float> ones(size_t(lanes * lanes), 0.0f);
  for (int64_t i = 0; i < lanes; ++i)
    ones[size_t(i * lanes + i)] = 1;
  return addConstant(graph, "select", {lanes, lanes}, ElementType::Fp16, 1, ones);
}

/// [heads, tokens, lanes] of [tokens, heads * lanes], by a product with an identity.
unsigned setApart(KernelGraph &graph, unsigned x, const HeadShape &s) {
  const std::string name = graph.tensors[x].name + ".lanes";
  const unsigned select = identity(graph, s.lanes),
                 y = addTensor(graph, name, {s.heads, s.tokens, s.lanes}, ElementType::Fp16, 2);
  KernelBuilder build(graph);
  const unsigned h = build.loop(s.heads), t = build.loop(s.tokens), d = build.loop(s.lanes),
                 c = build.loop(s.lanes, LoopKind::Contracted);
  build.term({x, {at(t), {0, {{h, s.lanes}, {c, 1}}}}, 0}, {select, {at(d), at(c)}, 0}, 0);
  build.store(build.accumulator(), {y, {at(h), at(t), at(d)}});
  build.finish(name);
  return y;
}

/// Less the mean over the lanes of a head, by weights that all heads share; [tokens, heads, lanes].
unsigned centre(KernelGraph &graph, unsigned x, const HeadShape &s) {
  const std::string name = graph.tensors[x].name + ".centred";
  const unsigned ones = addSplat(graph, "ones", {s.lanes, s.lanes}, ElementType::Fp16, 1, 1.0f),
                 weight = addConstant(graph, name + ".weight", {s.lanes}, ElementType::Fp32, 0,
                                      sixteenths(s.lanes, 5)),
                 y = addTensor(graph, name, {s.tokens, s.heads, s.lanes}, ElementType::Fp16, 2);
  KernelBuilder build(graph);
  const unsigned t = build.loop(s.tokens), h = build.loop(s.heads), d = build.loop(s.lanes),
                 c = build.loop(s.lanes, LoopKind::Contracted);
  build.term({x, {at(h), at(t), at(c)}, 0}, {ones, {at(d), at(c)}, 0}, 0);
  const unsigned mean =
      build.op(AluOp::MulF32, {build.accumulator(), build.constant(1 / float(s.lanes))});
  const unsigned rest = build.op(AluOp::SubF32, {build.load({x, {at(h), at(t), at(d)}, 0}), mean});
  build.store(build.op(AluOp::MulF32, {rest, build.load({weight, {at(d)}, 0})}),
              {y, {at(t), at(h), at(d)}});
  build.finish(name);
  return y;
}

/// Turned by a constant matrix, the same for all heads, and scaled by position.
/// `matrices`: of which it takes number `which`.
unsigned turn(KernelGraph &graph, unsigned x, const HeadShape &s, unsigned sines, unsigned matrices,
              int64_t which, unsigned to) {
  KernelBuilder build(graph);
  const unsigned h = build.loop(s.heads), t = build.loop(s.tokens), d = build.loop(s.lanes),
                 c = build.loop(s.lanes, LoopKind::Contracted);
  build.term({x, {at(t), at(h), at(c)}, 0}, {matrices, {fixed(which), at(c), at(d)}, 0}, 0);
  const unsigned turned = build.op(
      AluOp::MulF32, {build.accumulator(), build.load({sines, {fixed(0), at(t), at(d)}, 0})});
  build.store(build.op(AluOp::AddF32, {turned, build.load({x, {at(t), at(h), at(d)}, 0})}),
              {to, {at(h), at(t), at(d)}});
  build.finish(graph.tensors[to].name);
  return to;
}

/// Scores of keys by query and head, and the same with queries along lanes as the output "scores".
void score(KernelGraph &graph, unsigned q, unsigned k, const HeadShape &s) {
  const std::vector<int64_t> shape{s.heads, s.tokens, s.tokens};
  const unsigned by = addTensor(graph, "scores.by", shape, ElementType::Fp16, 2),
                 out = addTensor(graph, "scores", shape, ElementType::Fp32, 2, TensorRole::Output);
  {
    KernelBuilder build(graph);
    const unsigned h = build.loop(s.heads), i = build.loop(s.tokens), j = build.loop(s.tokens),
                   c = build.loop(s.lanes, LoopKind::Contracted);
    build.term({q, {at(h), at(i), at(c)}, 0}, {k, {at(h), at(j), at(c)}, 0},
               s.heads * s.tokens * s.tokens * s.lanes);
    build.store(build.accumulator(), {by, {at(h), at(i), at(j)}});
    build.finish("scores.by");
  }
  KernelBuilder build(graph);
  const unsigned h = build.loop(s.heads), j = build.loop(s.tokens), i = build.loop(s.tokens),
                 c = build.loop(s.tokens, LoopKind::Contracted);
  build.term({identity(graph, s.tokens), {at(j), at(c)}, 0}, {by, {at(h), at(i), at(c)}, 0}, 0);
  build.store(build.accumulator(), {out, {at(h), at(j), at(i)}});
  build.finish("scores");
}

/// Half of each head, `times` one after the other.
unsigned repeat(KernelGraph &graph, unsigned x, const HeadShape &s, int64_t times) {
  const unsigned y =
      addTensor(graph, "repeated", {s.heads * times, s.tokens, s.lanes}, ElementType::Fp16, 2);
  KernelBuilder build(graph);
  const unsigned h = build.loop(s.heads), n = build.loop(times), t = build.loop(s.tokens),
                 d = build.loop(s.lanes);
  const unsigned value = build.load({x, {at(h), at(t), at(d)}, 0});
  build.store(build.op(AluOp::MulF32, {value, build.constant(0.5f)}),
              {y, {{0, {{h, times}, {n, 1}}}, at(t), at(d)}});
  build.finish("repeated");
  return y;
}

/// Queries and keys, of which `times` heads of queries share each; the keys are an output as well.
KernelGraph buildAttention(const HeadShape &s, int64_t times = 1) {
  KernelGraph graph;
  graph.name = "attention";
  const HeadShape shared{s.heads / times, s.tokens, s.lanes};
  const unsigned x = addTensor(graph, "x", {s.tokens, 24}, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned sines = addTensor(graph, "sines", {1, s.tokens, s.lanes}, ElementType::Fp16, 2);
  { // made at run time, and once more for all heads of a vector
    const unsigned angles = addConstant(graph, "angles", {s.tokens, s.lanes}, ElementType::Fp16, 1,
                                        sixteenths(s.tokens * s.lanes, 9));
    KernelBuilder build(graph);
    const unsigned t = build.loop(s.tokens), d = build.loop(s.lanes);
    build.store(build.load({angles, {at(t), at(d)}, 0}), {sines, {fixed(0), at(t), at(d)}});
    build.finish("sines");
  }
  const unsigned q = addTensor(graph, "q", {s.heads, s.tokens, s.lanes}, ElementType::Fp16, 2),
                 k = addTensor(graph, "k", {shared.heads, s.tokens, s.lanes}, ElementType::Fp16, 2,
                               TensorRole::Output);
  const unsigned matrices = addConstant(graph, "turns", {2, s.lanes, s.lanes}, ElementType::Fp16, 1,
                                        sixteenths(2 * s.lanes * s.lanes, 2));
  turn(graph, centre(graph, setApart(graph, project(graph, "queries", x, s), s), s), s, sines,
       matrices, 0, q);
  turn(graph, centre(graph, setApart(graph, project(graph, "keys", x, shared), shared), shared),
       shared, sines, matrices, 1, k);
  score(graph, q, times > 1 ? repeat(graph, k, shared, times) : k, s);
  return graph;
}

/// Outputs, with no sign of zeros: a product with an identity loses it.
std::map<std::string, TensorBytes> valuesOf(const KernelGraph &graph,
                                            const std::map<unsigned, TensorBytes> &inputs) {
  std::map<std::string, TensorBytes> values = outputsOf(graph, inputs);
  TensorBytes &keys = values.at("k");
  for (size_t i = 0; i < keys.size(); i += 2)
    if (keys[i] == 0 && keys[i + 1] == 0x80)
      keys[i + 1] = 0;
  return values;
}

const Tensor *find(const KernelGraph &graph, const std::string &name) {
  const auto at = std::ranges::find(graph.tensors, name, &Tensor::name);
  return at == graph.tensors.end() ? nullptr : &*at;
}

TEST(KeepHeads, LetsThemStaySideBySideThroughNormsAndRotations) {
  const Machine machine = *loadMachine("tsp-v1");
  struct Case {
    HeadShape shape;
    int64_t group;
    unsigned packed; ///< products whose scores lie side by side, too
  };
  for (const auto &[s, group, packed] :
       {Case{{4, 48, 32}, 4, 1}, Case{{3, 64, 96}, 3, 0}, Case{{12, 40, 64}, 4, 1},
        Case{{7, 64, 64}, 1, 0}, Case{{10, 33, 24}, 10, 1}}) {
    KernelGraph graph = buildAttention(s);
    const auto inputs = randomInputs(graph);
    const auto values = valuesOf(graph, inputs);
    const int64_t macs = graph.macs();
    const KernelGraph before = graph;
    EXPECT_EQ(keepHeads(graph, machine), group > 1 ? 6u : 0u) << s.heads << " of " << s.lanes;
    if (group == 1) { // no number of heads that divides seven has room
      EXPECT_EQ(graph, before);
      continue;
    }
    EXPECT_TRUE(valuesOf(graph, inputs) == values) << s.heads << " of " << s.lanes;
    EXPECT_EQ(graph.macs(), macs);
    EXPECT_EQ(find(graph, "queries.lanes.centred")->shape,
              (std::vector<int64_t>{s.tokens, s.heads / group, group * s.lanes}));
    ASSERT_TRUE(find(graph, "k.heads")) << "an output is had apart as well";
    EXPECT_EQ(find(graph, "k")->shape, (std::vector<int64_t>{s.heads, s.tokens, s.lanes}));
    EXPECT_EQ(keepHeads(graph, machine), 0u);
    EXPECT_EQ(packHeads(graph, machine), packed) << s.heads << " of " << s.lanes;
    EXPECT_TRUE(valuesOf(graph, inputs) == values);
    if (group == s.heads) {
      EXPECT_EQ(forwardCopies(graph), 2u) << "what was set apart is read where it lay";
      EXPECT_TRUE(valuesOf(graph, inputs) == values);
    }
  }
}

TEST(KeepHeads, BringsKeysThatSeveralHeadsShareBesideEachOther) {
  const Machine machine = *loadMachine("tsp-v1");
  struct Case {
    HeadShape shape;
    int64_t times, group;
  };
  for (const auto &[s, times, group] :
       {Case{{4, 64, 32}, 2, 4}, Case{{8, 64, 64}, 4, 4}, Case{{8, 64, 64}, 2, 4},
        Case{{16, 48, 64}, 8, 4}, Case{{12, 48, 32}, 3, 6}}) {
    KernelGraph graph = buildAttention(s, times);
    const auto inputs = randomInputs(graph);
    const auto values = valuesOf(graph, inputs);
    EXPECT_GT(keepHeads(graph, machine), 0u);
    EXPECT_TRUE(valuesOf(graph, inputs) == values) << s.heads << " of " << s.lanes << ", " << times;
    EXPECT_EQ(find(graph, "repeated")->shape,
              (std::vector<int64_t>{s.heads / group, s.tokens, group * s.lanes}));
    packHeads(graph, machine);
    EXPECT_TRUE(valuesOf(graph, inputs) == values) << s.heads << " of " << s.lanes << ", " << times;
  }
}

TEST(KeepHeads, SumsOverHeadsAndTheirLanesInOneLoop) {
  const Machine machine = *loadMachine("tsp-v1");
  const HeadShape s{4, 48, 32};
  KernelGraph graph;
  graph.name = "norm";
  const unsigned x = addTensor(graph, "x", {s.tokens, 24}, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned y = centre(graph, setApart(graph, project(graph, "wide", x, s), s), s);
  const unsigned w = addConstant(graph, "w", {s.heads * s.lanes, 40}, ElementType::Fp16, 0,
                                 sixteenths(s.heads * s.lanes * 40, 4)),
                 out = addTensor(graph, "k", {s.tokens, 40}, ElementType::Fp32, 1,
                                 TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned t = build.loop(s.tokens), n = build.loop(40),
                 h = build.loop(s.heads, LoopKind::Contracted),
                 c = build.loop(s.lanes, LoopKind::Contracted);
  build.term({y, {at(t), at(h), at(c)}, 0}, {w, {{0, {{h, s.lanes}, {c, 1}}}, at(n)}, 0},
             s.tokens * s.heads * s.lanes * 40);
  build.store(build.accumulator(), {out, {at(t), at(n)}});
  build.finish("out");
  const auto inputs = randomInputs(graph);
  const auto values = outputsOf(graph, inputs);
  EXPECT_EQ(keepHeads(graph, machine), 2u);
  EXPECT_EQ(outputsOf(graph, inputs), values);
  const auto sum = std::ranges::find(graph.kernels, "out", &Kernel::name);
  ASSERT_NE(sum, graph.kernels.end());
  EXPECT_EQ(std::ranges::count(sum->loops, Loop{s.heads * s.lanes, LoopKind::Contracted}), 1);
}

TEST(KeepHeads, LeavesWhatDoesNotPayOrMayBeInfinite) {
  const Machine machine = *loadMachine("tsp-v1");
  KernelGraph graph = buildAttention({4, 2, 32}); // wider blocks take longer to install
  const KernelGraph few = graph;
  EXPECT_EQ(keepHeads(graph, machine), 0u);
  EXPECT_EQ(graph, few);
  graph = buildAttention({4, 48, 32});
  for (Tensor &tensor : graph.tensors)
    tensor.unbounded = tensor.name == "queries.lanes" || tensor.name == "keys.lanes";
  const KernelGraph unbounded = graph;
  EXPECT_EQ(keepHeads(graph, machine), 0u);
  EXPECT_EQ(graph, unbounded);
}

} // namespace
