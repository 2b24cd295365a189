// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does what is spread over the lanes of a row, to be subtracted from a sum, become terms of it
// where that leaves the values as they are, and stay where it does not?
#include "compiler/Forms/Rewritings/SubtractInSums.h"
#include "compiler/Forms/KernelBuilder.h"

#include "tests/compiler/Forms/Rewritings/Outputs.h"

#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::forms;

namespace {

constexpr int64_t kRows = 5, kLanes = 7, kDepth = 3;

struct Case {
  float scale = 1;
  bool isMasked = false, isSubtrahend = false, isReadTwice = false, readsPadding = false;
};

/// scale * (q k) + mask less (or taken from) the sum of d's rows, spread over the lanes.
KernelGraph scoresLessSpread(const Case &like) {
  constexpr ElementType fp16 = ElementType::Fp16, fp32 = ElementType::Fp32;
  KernelGraph graph;
  const auto input = [&](const char *name, int64_t rows, int64_t lanes) {
    return addTensor(graph, name, {rows, lanes}, fp16, 1, TensorRole::Input);
  };
  const unsigned q = input("q", kRows, kDepth), k = input("k", kLanes, kDepth),
                 d = input("d", kRows, kRows), mask = input("mask", kRows, kLanes);
  const unsigned ones = addSplat(graph, "ones", {kLanes, kRows}, fp16, 1, 1.0f);
  const unsigned spread = addTensor(graph, "spread", {kRows, kLanes}, fp32, 1);
  const auto output = [&](const char *name) {
    return addTensor(graph, name, {kRows, kLanes}, fp32, 1, TensorRole::Output);
  };
  KernelBuilder build(graph);
  unsigned i = build.loop(kRows), j = build.loop(kLanes),
           c = build.loop(kRows, LoopKind::Contracted);
  build.term({d, {at(i), at(c)}, 0}, {ones, {at(j), at(c)}, 0}, 0);
  build.store(build.accumulator(), {spread, {at(i), at(j)}, 0});
  build.finish("spread");
  for (const char *name : {"y", "z"}) {
    if (name[0] == 'z' && !like.isReadTwice)
      break;
    i = build.loop(kRows), j = build.loop(kLanes), c = build.loop(kDepth, LoopKind::Contracted);
    build.term({q, {at(i), at(c)}, 0}, {k, {at(j), at(c)}, 0}, kRows * kLanes * kDepth);
    unsigned value = build.accumulator();
    if (like.scale != 1)
      value = build.op(AluOp::MulF32, {value, build.constant(like.scale)});
    if (like.isMasked)
      value = build.op(AluOp::AddF32, {value, build.load({mask, {at(i), at(j)}, 0})});
    const unsigned rows = build.load({spread, {at(i, 1, like.readsPadding ? 1 : 0), at(j)}, 0});
    build.store(like.isSubtrahend ? build.op(AluOp::SubF32, {rows, value})
                                  : build.op(AluOp::SubF32, {value, rows}),
                {output(name), {at(i), at(j)}, 0});
    build.finish(name);
  }
  return graph;
}

/// Small whole numbers, of which all sums are exact.
std::map<unsigned, TensorBytes> wholeNumbers(const KernelGraph &graph) {
  std::map<unsigned, TensorBytes> inputs;
  int next = 1;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (graph.tensors[t].role == TensorRole::Input) {
      std::vector<float> values;
      for (int64_t n = 0; n < elementCount(graph.tensors[t]); ++n)
        values.push_back(float((next = next * 5 % 23) - 11));
      inputs[t] = encodeAll(graph.tensors[t].type, values);
    }
  return inputs;
}

unsigned folded(const Case &like) {
  const KernelGraph before = scoresLessSpread(like);
  KernelGraph after = before;
  const unsigned gone = subtractInSums(after);
  EXPECT_EQ(after.kernels.size() + gone, before.kernels.size());
  EXPECT_EQ(outputsOf(before, wholeNumbers(before)), outputsOf(after, wholeNumbers(after)));
  return gone;
}

TEST(SubtractInSums, TakesTheTermsOfWhatIsSpread) {
  EXPECT_EQ(folded({}), 1u);
  EXPECT_EQ(folded({.isMasked = true}), 1u);
  KernelGraph graph = scoresLessSpread({});
  subtractInSums(graph);
  EXPECT_EQ(graph.kernels[0].terms.size(), 2u);
  EXPECT_TRUE(graph.kernels[0].operands.empty());
}

TEST(SubtractInSums, DividesByAScaleThatIsAPowerOfTwo) {
  EXPECT_EQ(folded({.scale = 0.125f}), 1u);
  EXPECT_EQ(folded({.scale = 8}), 1u);
}

TEST(SubtractInSums, LeavesWhatWouldBeAnotherNumber) {
  EXPECT_EQ(folded({.scale = 0.3f}), 0u) << "no 16 bits hold 1 / 0.3";
  EXPECT_EQ(folded({.scale = -1}), 0u);
  EXPECT_EQ(folded({.scale = 0.5f, .isMasked = true}), 0u)
      << "twice a number that hides may be beyond all numbers";
  EXPECT_EQ(folded({.isSubtrahend = true}), 0u);
}

TEST(SubtractInSums, LeavesWhatIsReadBesideTheTensor) {
  EXPECT_EQ(folded({.readsPadding = true}), 0u);
}

TEST(SubtractInSums, LeavesWhatSeveralRead) { EXPECT_EQ(folded({.isReadTwice = true}), 0u); }

} // namespace
