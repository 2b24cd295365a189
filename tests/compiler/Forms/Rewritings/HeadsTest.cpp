// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Heads of an attention side by side in vectors: do values stay, and do fewer vectors come out?
#include "tests/compiler/Forms/Rewritings/Heads.h"
#include "tests/compiler/Forms/Rewritings/Outputs.h"

#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/CutSelections.h"
#include "compiler/Forms/Rewritings/JoinLanes.h"
#include "compiler/Forms/Rewritings/MergeHeads.h"
#include "compiler/Forms/Rewritings/PackHeads.h"
#include "compiler/Forms/Rewritings/SpaceHeads.h"

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

using namespace millrace;
using namespace millrace::forms;

namespace {

using Shape = HeadShape;

/// Queries or keys, [heads, tokens, lanes], of x[tokens, width] by constant weights.
unsigned project(KernelGraph &graph, const std::string &name, unsigned x, const Shape &s,
                 unsigned seed) {
  const int64_t width = graph.tensors[x].shape[1];
  const unsigned w = addConstant(graph, name + ".w", {width, s.heads * s.lanes}, ElementType::Fp16,
                                 0, sixteenths(width * s.heads * s.lanes, int(seed))),
                 y = addTensor(graph, name, {s.heads, s.tokens, s.lanes}, ElementType::Fp16, 2);
  KernelBuilder build(graph);
  const unsigned h = build.loop(s.heads), t = build.loop(s.tokens), d = build.loop(s.lanes),
                 c = build.loop(width, LoopKind::Contracted);
  build.term({x, {at(t), at(c)}, 0}, {w, {at(c), {0, {{h, s.lanes}, {d, 1}}}}, 0},
             s.heads * s.tokens * s.lanes * width);
  build.store(build.accumulator(), {y, {at(h), at(t), at(d)}});
  build.finish(name);
  return y;
}

unsigned scale(KernelGraph &graph, unsigned x) {
  const Tensor from = graph.tensors[x];
  const unsigned y = addTensor(graph, from.name + ".scaled", from.shape, from.type, from.laneDim);
  KernelBuilder build(graph);
  Access access{x, {}, 0};
  for (int64_t extent : from.shape)
    access.index.push_back(at(build.loop(extent)));
  const unsigned value = build.op(AluOp::MulF32, {build.load(access), build.constant(0.5f)});
  access.tensor = y;
  build.store(value, access);
  build.finish(from.name + ".scaled");
  return y;
}

/// A row of a mask for every key, the same in all lanes: made by a product, as forming does.
unsigned maskRows(KernelGraph &graph, int64_t tokens) {
  const unsigned m = addTensor(graph, "m", {tokens, 8}, ElementType::Fp16, 1, TensorRole::Input),
                 ones = addConstant(graph, "ones", {tokens, 8}, ElementType::Fp16, 1,
                                    std::vector<float>(size_t(tokens * 8), 1.0f)),
                 rows = addTensor(graph, "m.rows", {tokens, tokens}, ElementType::Fp32, 1);
  KernelBuilder build(graph);
  const unsigned k = build.loop(tokens), q = build.loop(tokens),
                 c = build.loop(8, LoopKind::Contracted);
  build.term({m, {at(k), at(c)}, 0}, {ones, {at(q), at(c)}, 0}, 0);
  build.store(build.accumulator(), {rows, {at(k), at(q)}});
  build.finish("m.rows");
  return rows;
}

/// Scores of queries along lanes, with a bias by head and a mask, less their maximum over keys;
/// then with keys along lanes, as the output `name`.
void attend(KernelGraph &graph, const std::string &name, unsigned q, unsigned k, unsigned mask,
            const Shape &s) {
  const std::vector<int64_t> shape{s.heads, s.tokens, s.tokens};
  const unsigned scores = addTensor(graph, name + ".scores", shape, ElementType::Fp32, 2),
                 most = addTensor(graph, name + ".most", {s.heads, s.tokens}, ElementType::Fp16, 1),
                 less = addTensor(graph, name + ".less", shape, ElementType::Fp16, 2),
                 out = addTensor(graph, name, shape, ElementType::Fp32, 2, TensorRole::Output);
  const unsigned bias =
      addConstant(graph, name + ".bias", {s.tokens, s.tokens, s.heads}, ElementType::Fp32, 0,
                  sixteenths(s.tokens * s.tokens * s.heads, 3));
  {
    KernelBuilder build(graph);
    const unsigned h = build.loop(s.heads), i = build.loop(s.tokens), j = build.loop(s.tokens),
                   c = build.loop(s.lanes, LoopKind::Contracted);
    build.term({k, {at(h), at(j), at(c)}, 0}, {q, {at(h), at(i), at(c)}, 0},
               s.heads * s.tokens * s.tokens * s.lanes);
    const unsigned sum = build.op(
        AluOp::AddF32, {build.accumulator(), build.load({bias, {at(i), at(j), at(h)}, 0})});
    build.store(build.op(AluOp::AddF32, {sum, build.load({mask, {at(j), at(i)}, 0})}),
                {scores, {at(h), at(j), at(i)}});
    build.finish(name + ".scores");
  }
  {
    KernelBuilder build(graph);
    const unsigned h = build.loop(s.heads), i = build.loop(s.tokens),
                   j = build.loop(s.tokens, LoopKind::Running);
    build.store(build.reduce(AluOp::MaxF32, build.load({scores, {at(h), at(j), at(i)}, 0})),
                {most, {at(h), at(i)}});
    build.finish(name + ".most");
  }
  {
    KernelBuilder build(graph);
    const unsigned h = build.loop(s.heads), j = build.loop(s.tokens), i = build.loop(s.tokens);
    build.store(build.op(AluOp::SubF32, {build.load({scores, {at(h), at(j), at(i)}, 0}),
                                         build.load({most, {at(h), at(i)}, 0})}),
                {less, {at(h), at(j), at(i)}});
    build.finish(name + ".less");
  }
  std::vector<float> identity(size_t(s.tokens * s.tokens), 0.0f);
  for (int64_t i = 0; i < s.tokens; ++i)
    identity[size_t(i * s.tokens + i)] = 1;
  const unsigned select =
      addConstant(graph, name + ".select", {s.tokens, s.tokens}, ElementType::Fp16, 1, identity);
  KernelBuilder build(graph);
  const unsigned h = build.loop(s.heads), i = build.loop(s.tokens), j = build.loop(s.tokens),
                 c = build.loop(s.tokens, LoopKind::Contracted);
  build.term({select, {at(i), at(c)}, 0}, {less, {at(h), at(j), at(c)}, 0}, 0);
  build.store(build.accumulator(), {out, {at(h), at(i), at(j)}});
  build.finish(name);
}

/// Two attentions under one mask.
KernelGraph buildAttentions(const Shape &s) {
  KernelGraph graph;
  graph.name = "attentions";
  const unsigned x = addTensor(graph, "x", {s.tokens, 24}, ElementType::Fp16, 1, TensorRole::Input);
  const unsigned mask = maskRows(graph, s.tokens);
  for (const char *name : {"first", "second"}) {
    const unsigned q = scale(graph, project(graph, std::string(name) + ".q", x, s, 1)),
                   k = project(graph, std::string(name) + ".k", x, s, 2);
    attend(graph, name, q, k, mask, s);
  }
  return graph;
}

const Tensor &named(const KernelGraph &graph, const std::string &name) {
  for (const Tensor &tensor : graph.tensors)
    if (tensor.name == name)
      return tensor;
  throw std::runtime_error("no tensor " + name);
}

TEST(MergeHeads, LetsHeadsOfQueriesAndKeysLieInOneRow) {
  const Machine machine = *loadMachine("tsp-v1");
  for (const Shape &s : {Shape{3, 7, 32}, Shape{4, 5, 24}, Shape{12, 3, 64}}) {
    KernelGraph graph = buildAttentions(s);
    const auto inputs = randomInputs(graph);
    const auto before = outputsOf(graph, inputs);
    const int64_t macs = graph.macs();
    EXPECT_EQ(mergeHeads(graph, machine), 6u) << "q, q scaled and k, twice";
    for (const char *name : {"first.q", "first.q.scaled", "second.k"})
      EXPECT_EQ(named(graph, name).shape, (std::vector<int64_t>{s.tokens, s.heads * s.lanes}));
    EXPECT_EQ(graph.macs(), macs);
    EXPECT_EQ(outputsOf(graph, inputs), before);
  }
}

/// Turns [heads, rows, lanes] to have its rows along the lanes, as the output `name`.
void turn(KernelGraph &graph, const std::string &name, unsigned x) {
  const std::vector<int64_t> from = graph.tensors[x].shape;
  std::vector<float> identity(size_t(from[2] * from[2]), 0.0f);
  for (int64_t i = 0; i < from[2]; ++i)
    identity[size_t(i * from[2] + i)] = 1;
  const unsigned select = addConstant(graph, "select", {from[2], from[2]}, ElementType::Fp16, 1,
                                      identity),
                 out = addTensor(graph, name, from, ElementType::Fp16, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned h = build.loop(from[0]), t = build.loop(from[1]), d = build.loop(from[2]),
                 c = build.loop(from[2], LoopKind::Contracted);
  build.term({select, {at(d), at(c)}, 0}, {x, {at(h), at(t), at(c)}, 0}, 0);
  build.store(build.accumulator(), {out, {at(h), at(t), at(d)}});
  build.finish(name);
}

TEST(MergeHeads, LetsHeadsOfWhatIsTurnedLieInOneRow) {
  const Machine machine = *loadMachine("tsp-v1");
  const Shape s{6, 32, 32};
  KernelGraph graph;
  graph.name = "turned";
  const unsigned x = addTensor(graph, "x", {s.tokens, 24}, ElementType::Fp16, 1, TensorRole::Input);
  turn(graph, "values", project(graph, "v", x, s, 1));
  // Of run-time weights, each head is columns of its own, which a selection of all cannot meet.
  const unsigned m = project(graph, "m", x, {s.heads, s.lanes, 24}, 2),
                 sums =
                     addTensor(graph, "sums", {s.heads, s.tokens, s.lanes}, ElementType::Fp16, 2);
  KernelBuilder build(graph);
  const unsigned h = build.loop(s.heads), t = build.loop(s.tokens), d = build.loop(s.lanes),
                 c = build.loop(24, LoopKind::Contracted);
  build.term({x, {at(t), at(c)}, 0}, {m, {at(h), at(d), at(c)}, 0}, 0);
  build.store(build.accumulator(), {sums, {at(h), at(t), at(d)}});
  build.finish("sums");
  turn(graph, "other", sums);
  const auto inputs = randomInputs(graph);
  const auto before = outputsOf(graph, inputs);
  EXPECT_EQ(mergeHeads(graph, machine), 1u);
  EXPECT_EQ(named(graph, "v").shape, (std::vector<int64_t>{s.tokens, s.heads * s.lanes}));
  EXPECT_EQ(named(graph, "sums").shape, (std::vector<int64_t>{s.heads, s.tokens, s.lanes}));
  EXPECT_EQ(outputsOf(graph, inputs), before);
}

TEST(PackHeads, ComputesScoresOfSeveralHeadsInOneVector) {
  const Machine machine = *loadMachine("tsp-v1");
  struct Case {
    Shape shape;
    int64_t group;
    std::vector<size_t> together; ///< heads masked by one kernel: their columns are in other slices
  };
  for (const auto &[s, group, together] :
       {Case{{3, 49, 32}, 3, {3}}, Case{{12, 50, 16}, 6, {4, 2}}, Case{{4, 128, 64}, 2, {1, 1}},
        Case{{6, 49, 32}, 3, {3}}, Case{{5, 17, 24}, 5, {4, 1}}}) {
    KernelGraph graph = buildAttentions(s);
    const auto inputs = randomInputs(graph);
    const auto before = outputsOf(graph, inputs);
    const int64_t macs = graph.macs();
    mergeHeads(graph, machine);
    EXPECT_EQ(packHeads(graph, machine), 2u);
    std::vector<size_t> masking;
    for (const auto &[isHost, k] : graph.order)
      if (const std::string &name = graph.kernels[k].name;
          name.starts_with("first") && name.ends_with(".masked"))
        masking.push_back(graph.kernels[k].results.size());
    EXPECT_EQ(masking, together) << s.heads << " heads of " << s.tokens;
    for (const char *name : {"first.scores", "second.most"})
      EXPECT_EQ(named(graph, name).shape.back(), group * s.tokens) << name;
    EXPECT_EQ(named(graph, "first").shape, (std::vector<int64_t>{s.heads, s.tokens, s.tokens}));
    EXPECT_EQ(std::count_if(graph.tensors.begin(), graph.tensors.end(),
                            [](const Tensor &t) { return t.name == "m.rows"; }),
              2)
        << "the mask is made once more, for both";
    EXPECT_EQ(graph.macs(), macs);
    EXPECT_EQ(outputsOf(graph, inputs), before) << s.heads << " heads of " << s.tokens;
    EXPECT_EQ(packHeads(graph, machine), 0u);
  }
}

TEST(PackHeads, LeavesWhatFillsVectorsOrLiesApart) {
  const Machine machine = *loadMachine("tsp-v1");
  KernelGraph graph = buildAttentions({4, 161, 64}); // two heads' columns are more than a vector
  mergeHeads(graph, machine);
  const KernelGraph wide = graph;
  EXPECT_EQ(packHeads(graph, machine), 0u);
  EXPECT_EQ(graph, wide);
  graph = buildAttentions({3, 49, 32}); // heads in rows of their own
  const KernelGraph apart = graph;
  EXPECT_EQ(packHeads(graph, machine), 0u);
  EXPECT_EQ(graph, apart);
  mergeHeads(graph, machine);
  for (Tensor &tensor : graph.tensors) // an infinite key of one head meets zeros of the others
    tensor.unbounded = tensor.name.ends_with(".k");
  const KernelGraph unbounded = graph;
  EXPECT_EQ(packHeads(graph, machine), 0u);
  EXPECT_EQ(graph, unbounded);
}

/// Parts of vectors that rows go through for all heads, as the lanes of what they stream lie.
int64_t partsOf(const KernelGraph &graph, const Kernel &kernel, int64_t part) {
  const Term &term = kernel.terms.front();
  const AffineIndex &index = term.a.index[graph.tensors[term.a.tensor].laneDim];
  const unsigned lane = *unitLoop(kernel, index, LoopKind::Contracted);
  std::vector<unsigned> others;
  for (unsigned l = 0; l < kernel.loops.size(); ++l)
    if (l != lane && coefficient(index, l))
      others.push_back(l);
  int64_t parts = 0;
  forEachPoint(kernel, others, [&](const std::vector<int64_t> &point) {
    int64_t from = index.offset;
    for (unsigned l : others)
      from += coefficient(index, l) * point[l];
    parts += (from + kernel.loops[lane].extent - 1) / part - from / part + 1;
    return true;
  });
  return parts;
}

const Kernel &kernelNamed(const KernelGraph &graph, const std::string &name) {
  for (const Kernel &kernel : graph.kernels)
    if (kernel.name == name)
      return kernel;
  throw std::runtime_error("no kernel " + name);
}

TEST(SpaceHeads, BeginsHeadsWhereAPartOfAVectorDoes) {
  const Machine machine = *loadMachine("tsp-v1"); // a pass takes 160 lanes in fp16
  struct Case {
    Shape shape;
    int64_t before, after; ///< parts for all heads, or pairs of them
    int64_t lanes;
  };
  for (const auto &[s, before, after, lanes] :
       {Case{{4, 128, 64}, 3, 2, 288}, Case{{12, 128, 64}, 9, 6, 928},
        Case{{4, 170, 64}, 5, 4, 288}, Case{{6, 170, 48}, 7, 6, 304}}) {
    KernelGraph graph = buildAttentions(s);
    const auto inputs = randomInputs(graph);
    const auto values = outputsOf(graph, inputs);
    const int64_t macs = graph.macs();
    joinLanes(graph, machine);
    mergeHeads(graph, machine);
    joinLanes(graph, machine);
    packHeads(graph, machine);
    EXPECT_EQ(partsOf(graph, kernelNamed(graph, "first.scores"), 160), before);
    EXPECT_EQ(spaceHeads(graph, machine), 2u) << s.heads << " heads of " << s.lanes << " lanes";
    EXPECT_EQ(graph.verify(), "");
    EXPECT_EQ(partsOf(graph, kernelNamed(graph, "first.scores"), 160), after);
    for (const char *name : {"first.q", "first.q.scaled", "second.k"})
      EXPECT_EQ(named(graph, name).shape.back(), lanes) << name;
    EXPECT_EQ(graph.macs(), macs);
    EXPECT_EQ(outputsOf(graph, inputs), values);
    EXPECT_EQ(spaceHeads(graph, machine), 0u);
  }
}

TEST(SpaceHeads, LeavesWhatFitsAndWhatTheHostReads) {
  const Machine machine = *loadMachine("tsp-v1");
  for (const Shape &s : {Shape{4, 170, 80}, Shape{5, 170, 32}, Shape{5, 170, 64}}) {
    KernelGraph graph = buildAttentions(s); // the last would take two vectors for one
    mergeHeads(graph, machine);
    const KernelGraph before = graph;
    EXPECT_EQ(spaceHeads(graph, machine), 0u) << s.lanes;
    EXPECT_EQ(graph, before);
  }
  KernelGraph graph = buildAttentions({4, 170, 64});
  mergeHeads(graph, machine);
  for (Tensor &tensor : graph.tensors)
    if (tensor.name == "first.k" || tensor.name == "second.k")
      tensor.role = TensorRole::Output;
  EXPECT_EQ(spaceHeads(graph, machine), 0u);
}

TEST(CutSelections, PicksLanesOfTwoPartsInAKernelForEach) {
  const Machine machine = *loadMachine("tsp-v1");
  KernelGraph graph = buildAttentions({4, 128, 64}); // lanes 128 to 255 of a pair lie in two parts
  const auto inputs = randomInputs(graph);
  const auto values = outputsOf(graph, inputs);
  mergeHeads(graph, machine);
  packHeads(graph, machine);
  const size_t kernels = graph.kernels.size();
  EXPECT_EQ(cutSelections(graph, machine), 2u);
  EXPECT_EQ(graph.verify(), "");
  EXPECT_EQ(graph.kernels.size(), kernels + 4) << "the first head, and the second in two pieces";
  std::vector<int64_t> rows;
  for (const Kernel &kernel : graph.kernels)
    if (kernel.name == "first")
      for (const Loop &loop : kernel.loops)
        if (loop.kind == LoopKind::Contracted)
          rows.push_back(loop.extent);
  EXPECT_EQ(rows, (std::vector<int64_t>{128, 32, 96}));
  EXPECT_EQ(outputsOf(graph, inputs), values);
  EXPECT_EQ(cutSelections(graph, machine), 0u);
}

TEST(CutSelections, LeavesWhatIsNoSelection) {
  const Machine machine = *loadMachine("tsp-v1");
  KernelGraph graph = buildAttentions({4, 128, 64});
  mergeHeads(graph, machine);
  packHeads(graph, machine);
  for (Tensor &tensor : graph.tensors)
    if (tensor.name.ends_with(".select"))
      tensor.data[2] = 1; // beside the diagonal
  const KernelGraph before = graph;
  EXPECT_EQ(cutSelections(graph, machine), 0u);
  EXPECT_EQ(graph, before);
}

} // namespace
