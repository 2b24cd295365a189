// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels made of small models, with their host steps, compute what the model's own run computes.
#include "tests/compiler/Forms/Former/OnnxModel.h"

#include "compiler/Forms/KernelBuilder.h"

#include <gmock/gmock.h>

#include <algorithm>

using namespace millrace;
using namespace millrace::forms;
using namespace millrace::test;

namespace {

size_t lookups(const KernelGraph &graph) {
  size_t count = 0;
  for (const Kernel &kernel : graph.kernels)
    for (const Access &operand : kernel.operands)
      count += operand.lookup.has_value();
  return count;
}

/// Does every lane of a product's result take the same rows of what streams, and only lanes that there are?
bool streamsForAllLanes(const KernelGraph &graph) {
  bool does = true;
  for (const Kernel &kernel : graph.kernels)
    for (const Term &term : kernel.terms) {
      const Tensor &a = graph.tensors[term.a.tensor];
      const Access &to = kernel.results[0].access;
      const auto lane = unitLoop(kernel, to.index[graph.tensors[to.tensor].laneDim], LoopKind::Parallel);
      for (unsigned dim = 0; dim < term.a.index.size(); ++dim)
        does &= !lane || dim == a.laneDim || coefficient(term.a.index[dim], *lane) == 0;
      const auto [low, high] = rangeOf(kernel, term.a.index[a.laneDim]);
      does &= low >= 0 && high < a.shape[a.laneDim];
    }
  return does;
}

} // namespace

TEST(Products, OfAnInputAndAConstantOnEitherSide) {
  const Model right = formed("g (float[3,8] x) => (float[3,5] y) <float[8,5] w = {" + numbers(40, 13) + "}> { y = MatMul (x, w) }");
  EXPECT_LT(right.error, kFp16);
  EXPECT_EQ(right.graph.kernels.size(), 1u);
  EXPECT_EQ(right.graph.macs(), 3 * 8 * 5);
  const Model left = formed("g (float[8,3] x) => (float[5,3] y) <float[5,8] w = {" + numbers(40, 13) + "}> { y = MatMul (w, x) }");
  EXPECT_LT(left.error, kFp16);
  EXPECT_EQ(left.graph.macs(), 3 * 8 * 5);
  EXPECT_TRUE(left.graph.hostCalls.empty());
}

TEST(Products, OfTwoInputsAndOfOnesTransposedInAnyWay) {
  EXPECT_LT(onGrid("g (float[2,3,8] x, float[2,8,5] z) => (float[2,3,5] y) { y = MatMul (x, z) }"), kFp16);
  EXPECT_LT(onGrid("g (float[2,3,8] x, float[2,5,8] z) => (float[2,3,5] y) { t = Transpose <perm = [0,2,1]> (z)\n y = MatMul (x, t) }"),
            kFp16);
  EXPECT_LT(onGrid("g (float[8,3] x, float[5,8] z) => (float[3,5] y) { y = Gemm <transA = 1, transB = 1> (x, z) }"), kFp16);
}

TEST(Products, OfARowEachOfABatch) {
  // One lane of the result a batch: neither operand's rows are the other's columns.
  EXPECT_LT(onGrid("g (float[6,1,8] x) => (float[6,1,1] y) <float[6,8,1] w = {" + numbers(48, 13) + "}> { y = MatMul (x, w) }"), kFp16);
  EXPECT_LT(onGrid("g (float[6,1,8] x, float[6,8,1] w) => (float[6,1,1] y) { y = MatMul (x, w) }"), kFp16);
  EXPECT_LT(onGrid("g (float[6,4,8] x, float[6,8,1] w) => (float[4,6] y) <int64[2] s = {6, 4}> { p = MatMul (x, w)\n r = Reshape (p, s)\n y = "
                   "Transpose <perm = [1,0]> (r) }"),
            kFp16);
}

/// Does a product stream a constant other than a selection?
bool streamsConstants(const KernelGraph &graph) {
  return std::ranges::any_of(graph.kernels, [&](const Kernel &kernel) {
    return std::ranges::any_of(kernel.terms, [&](const Term &term) {
      const Tensor &a = graph.tensors[term.a.tensor];
      return a.role == TensorRole::Constant && a.name != "select";
    });
  });
}

TEST(Products, PartsOfOneThatAreWantedAlongOtherLanesAreMadeAlongTheirChannelsAndTurned) {
  // Two parts of one projection of 8 rows by 256 lanes; the second is summed over its rows. To make it along these sweeps each of its 320 channels
  // 16 times, for 8 lanes.
  PrecisionOptions options;
  options.lanes = 32;
  const std::string projected = "g (float[8,256] x, float[4,8] p) => (float[4,320] y, float[8,320] q) <float[256,640] w = {" + numbers(256 * 640, 13, 0.01) +
                                "}, float[640] b = {" + numbers(640, 7) +
                                "}, int64[2] both = {320, 320}> { m = MatMul (x, w)\n s = Add (m, b)\n q, v = Split <axis = 1> (s, both)\n "
                                "y = MatMul (p, v) }";
  const Model part = formed(projected, options);
  EXPECT_LT(part.error, kFp16);
  EXPECT_FALSE(streamsConstants(part.graph));
  // The same by heads, as an attention takes it.
  const Model heads = formed("g (float[8,256] x, float[5,4,8] p) => (float[5,4,64] y, float[8,320] k) <float[256,640] w = {" + numbers(256 * 640, 13, 0.01) +
                                 "}, int64[2] both = {320, 320}, int64[3] split = {8, 5, 64}> { m = MatMul (x, w)\n k, v = Split <axis = 1> (m, both)\n "
                                 "r = Reshape (v, split)\n h = Transpose <perm = [1,0,2]> (r)\n y = MatMul (p, h) }",
                             options);
  EXPECT_LT(heads.error, kFp16);
  EXPECT_FALSE(streamsConstants(heads.graph));
  // Few channels are made along the rows at once.
  const Model small = formed("g (float[8,32] x, float[4,8] p) => (float[4,16] y, float[8,16] q) <float[32,32] w = {" + numbers(32 * 32, 13) +
                                 "}, int64[2] both = {16, 16}> { m = MatMul (x, w)\n q, v = Split <axis = 1> (m, both)\n y = MatMul (p, v) }",
                             options);
  EXPECT_LT(small.error, kFp16);
  EXPECT_TRUE(streamsConstants(small.graph));
}

TEST(Products, StreamTheSameRowsForAllLanesOfTheirResultAndNoPadding) {
  const Model batch = formed("g (float[6,4,8] x) => (float[4,6] y) <float[6,8,1] w = {" + numbers(48, 13) + "}, int64[2] s = {6, 4}> { p = MatMul (x, w)\n"
                             " r = Reshape (p, s)\n y = Transpose <perm = [1,0]> (r) }");
  EXPECT_LT(batch.error, kFp16);
  EXPECT_TRUE(streamsForAllLanes(batch.graph));
  const Model padded = formed("g (float[3,8] x) => (float[3,4] y) <int64[4] p = {0,1,0,1}, float two = {2}, float[10,4] w = {" + numbers(40, 13) +
                              "}> { q = Pad (x, p, two)\n y = MatMul (q, w) }");
  EXPECT_LT(padded.error, kFp16);
  EXPECT_TRUE(streamsForAllLanes(padded.graph));
}

TEST(Products, OfPositionsAndFrequenciesKeepFp32) {
  // 2999 times 0.37 is no angle that 16 bits hold.
  const Model model = formed("g (int64[5] ids) => (float[5,4] y) <float[1,4] f = {1, 0.37, 0.11, 0.013}, int64[2] s = {5, 1}> { c = Cast <to = 1> "
                             "(ids)\n r = Reshape (c, s)\n a = MatMul (r, f)\n y = Cos (a) }",
                             {}, {{"ids", {0, 7, 1000, 2048, 2999}}});
  EXPECT_LT(model.error, kFp16);
}

TEST(Products, OfAProductOnceMore) {
  const Model model = formed("g (float[3,8] x) => (float[3,4] y) <float[8,6] v = {" + numbers(48, 13) + "}, float[6,4] w = {" +
                             numbers(24, 11) + "}> { a = MatMul (x, v)\n b = Relu (a)\n y = MatMul (b, w) }");
  EXPECT_LT(model.error, kFp16);
  EXPECT_EQ(model.graph.kernels.size(), 2u);
}

TEST(Products, OfHeadsThatAReshapeCutsOut) {
  const Model model = formed("g (float[5,12] x) => (float[5,12] y) <float[12,12] q = {" + numbers(144, 13) + "}, float[12,12] k = {" +
                             numbers(144, 11) + R"(}, int64[3] heads = {5, 3, 4}, int64[2] flat = {5, 12}> {
    a = MatMul (x, q)
    b = MatMul (x, k)
    c = Reshape (a, heads)
    d = Reshape (b, heads)
    e = Transpose <perm = [1,0,2]> (c)
    f = Transpose <perm = [1,2,0]> (d)
    s = MatMul (e, f)
    p = Softmax <axis = -1> (s)
    v = Transpose <perm = [1,0,2]> (d)
    o = MatMul (p, v)
    t = Transpose <perm = [1,0,2]> (o)
    y = Reshape (t, flat)
  })");
  EXPECT_LT(model.error, 4 * kFp16);
  EXPECT_TRUE(model.graph.hostCalls.empty());
  EXPECT_EQ(model.graph.macs(), 2 * 5 * 12 * 12 + 2 * 3 * 5 * 5 * 4);
}

/// Scores of heads that a Reshape cuts out, with maps of both sides before or behind it.
Model scoresOfHeads(const std::string &before, const std::string &behind) {
  return formed("g (float[5,12] x) => (float[3,5,5] y) <float[12,12] q = {" + numbers(144, 13) + "}, float[12,12] k = {" +
                numbers(144, 11) + "}, int64[3] heads = {5, 3, 4}, float s = {0.5}> { a = MatMul (x, q)\n b = MatMul (x, k)\n" + before +
                R"(
    e = Reshape (c, heads)
    f = Reshape (d, heads)
    i = Transpose <perm = [1,0,2]> (e)
    j = Transpose <perm = [1,2,0]> (f))" + behind + " y = MatMul (m, n) }");
}

TEST(Products, OfHeadsThatAreScaledBehindTheReshapeAreThoseScaledBeforeIt) {
  const Model before = scoresOfHeads("c = Mul (a, s)\n d = Relu (b)\n", "\n m = Identity (i)\n n = Identity (j)\n");
  const Model behind = scoresOfHeads("c = Identity (a)\n d = Identity (b)\n", "\n m = Mul (i, s)\n n = Relu (j)\n");
  EXPECT_LT(behind.error, 4 * kFp16);
  EXPECT_EQ(behind.graph.kernels.size(), before.graph.kernels.size());
}

TEST(Convolutions, PaddedStridedGroupedAndDepthwise) {
  const std::string w = "float[6,4,3,3] w = {" + numbers(216, 13) + "}";
  EXPECT_LT(onGrid("g (float[1,4,7,6] x) => (float[1,6,7,6] y) <" + w + "> { y = Conv <pads = [1,1,1,1]> (x, w) }"), kFp16);
  EXPECT_LT(onGrid("g (float[2,4,7,6] x) => (float[2,6,4,3] y) <" + w + "> { y = Conv <pads = [1,0,1,1], strides = [2,2]> (x, w) }"),
            kFp16);
  const Model grouped = formed("g (float[1,4,7,6] x) => (float[1,6,5,4] y) <float[6,2,3,3] w = {" + numbers(108, 13) +
                               "}, float[6] b = {1, 2, 3, 4, 5, 6}> { y = Conv <group = 2> (x, w, b) }");
  EXPECT_LT(grouped.error, kFp16);
  EXPECT_TRUE(grouped.graph.hostCalls.empty());
  EXPECT_LT(formed("g (float[1,4,7,6] x) => (float[1,4,5,4] y) <float[4,1,3,3] w = {" + numbers(36, 13) +
                   "}> { y = Conv <group = 4> (x, w) }").error,
            kFp16);
  EXPECT_LT(onGrid("g (float[1,4,9] x) => (float[1,2,5] y) <float[2,4,3] w = {" + numbers(24, 13) +
                   "}> { y = Conv <dilations = [2]> (x, w) }"),
            kFp16);
}

TEST(Reductions, OverLanesAndOverRows) {
  for (const char *op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"})
    for (const char *axis : {"0", "1", "2"}) {
      const std::string shape = *axis == '0' ? "float[4,6]" : *axis == '1' ? "float[3,1,6]" : "float[3,4]";
      const std::string model = "g (float[3,4,6] x) => (" + shape + " y) <int64[1] axes = {" + axis + "}> { y = " + op + " <keepdims = " +
                                (*axis == '1' ? "1" : "0") + "> (x, axes) }";
      EXPECT_LT(onGrid(model), kFp16) << op << " over " << axis;
    }
}

TEST(Reductions, OfWindows) {
  EXPECT_LT(onGrid("g (float[1,4,7,6] x) => (float[1,4,3,3] y) { y = MaxPool <kernel_shape = [3,2], strides = [2,2]> (x) }"), kFp16);
  EXPECT_LT(onGrid("g (float[1,4,7,6] x) => (float[1,4,7,6] y) { y = MaxPool <kernel_shape = [3,3], pads = [1,1,1,1]> (x) }"), kFp16);
  EXPECT_LT(onGrid("g (float[1,4,7,6] x) => (float[1,4,3,3] y) { y = AveragePool <kernel_shape = [3,2], strides = [2,2]> (x) }"), kFp16);
  EXPECT_LT(onGrid("g (float[1,4,7,6] x) => (float[1,4,1,1] y) { y = GlobalAveragePool (x) }"), kFp16);
}

TEST(Reductions, OfWindowsAlongADimensionThatAnotherReaderLeavesAcrossLanes) {
  for (const char *pool : {"AveragePool <kernel_shape = [3]>", "AveragePool <kernel_shape = [4], strides = [2]>",
                           "AveragePool <kernel_shape = [9], pads = [4,4]>", "MaxPool <kernel_shape = [3]>"})
    EXPECT_LT(onGrid(std::string("g (float[17,1,17] x) => (float[17,1,17] s, float[17,1,N] p) { t = Tanh (x) s = Softmax <axis = 0> (t) p = ") +
                     pool + " (t) }"),
              kFp16)
        << pool;
}

TEST(Reductions, AMaximumOfRectifiedValuesThatStartsAboveZeroOrBelow) {
  // What is rectified at a bound below zero is no magnitude: its bits do not order it.
  for (const char *low : {"0.0", "-0.5", "-1.0"})
    EXPECT_LT(onGrid(std::string("g (float[1,4,6,6] x) => (float[1,3,3,3] y) <float low = {") + low + R"(}, float[3,4,1,1] w = {)" +
                     numbers(12, 13) + R"(}> {
      a = Conv (x, w)
      b = Max (a, low)
      y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (b)
    })"),
              kFp16)
        << low;
}

TEST(Maps, MakeASigmoidInOneOperationHoweverItIsWritten) {
  const std::string w = " <float[8,8,1,1] w = {" + numbers(64, 13) + "}, float one = {1.0}> { a = Conv (x, w) ";
  for (const char *silu : {"s = Sigmoid (a) y = Mul (a, s)", "n = Neg (a) e = Exp (n) d = Add (one, e) s = Div (one, d) y = Mul (s, a)",
                           "n = Neg (a) e = Exp (n) d = Add (e, one) y = Div (a, d)"}) {
    const Model model = formed("g (float[1,8,5,5] x) => (float[1,8,5,5] y)" + w + silu + " }");
    ASSERT_EQ(model.graph.kernels.size(), 1u) << silu;
    std::vector<AluOp> ops; // of the product, not rounded before
    for (const Node &node : model.graph.kernels[0].nodes)
      if (node.kind == Node::Kind::Op)
        ops.push_back(node.op);
    EXPECT_THAT(ops, testing::ElementsAre(AluOp::SigmoidF32, AluOp::MulF32, AluOp::CvtF32F16Fin)) << silu;
    EXPECT_LT(model.error, kFp16) << silu;
  }
}

TEST(Maps, GoOnWithWhatIsStoredWhereOthersReadItToo) {
  const Model model = formed("g (float[1,8,5,5] x) => (float[1,8,5,5] y, float[1,8,3,3] p) <float[8,8,1,1] w = {" + numbers(64, 13) +
                             "}> { a = Conv (x, w) s = Sigmoid (a) y = Mul (a, s) p = MaxPool <kernel_shape = [3,3]> (a) }");
  EXPECT_LT(model.error, kFp16);
  unsigned sigmoids = 0;
  for (const Kernel &kernel : model.graph.kernels)
    for (const Node &node : kernel.nodes) {
      if (node.kind != Node::Kind::Op || node.op != AluOp::SigmoidF32)
        continue;
      ++sigmoids;
      EXPECT_EQ(kernel.nodes[node.args[0]].op, AluOp::CvtF16F32);
    }
  EXPECT_EQ(sigmoids, 1u);
}

TEST(Maps, BroadcastFromEveryDimension) {
  EXPECT_LT(onGrid("g (float[3,4,6] x, float[6] b) => (float[3,4,6] y) { y = Add (x, b) }"), kFp16);
  EXPECT_LT(onGrid("g (float[3,4,6] x, float[4,1] b) => (float[3,4,6] y) { y = Mul (x, b) }"), kFp16);
  EXPECT_LT(onGrid("g (float[3,4,6] x, float[3,1,1] b) => (float[3,4,6] y) { y = Sub (x, b) }"), kFp16);
  EXPECT_LT(onGrid("g (float[3,4,6] x, float b) => (float[3,4,6] y) { y = Add (x, b) }"), kFp16);
  EXPECT_LT(onGrid("g (float[3,4] x) => (float[3,4] y) <float[3,1] c = {1, -2, 3}> { y = Mul (x, c) }"), kFp16);
  EXPECT_LT(onGrid("g (float[3,4] x) => (float[3,4] y) <float[3,4] c = {" + numbers(12, 7) + "}> { a = Mul (x, c)\n y = Tanh (a) }"),
            kFp16);
}

TEST(Maps, LongerThanAKernelsChainAreCut) {
  PrecisionOptions options;
  options.chain = 4;
  const Model model = formed("g (float[3,16] x, float[3,16] z) => (float[3,16] y) { a = Abs (x)\n b = Neg (a)\n c = Exp (b)\n d = Add (c, z)\n e = "
                             "Tanh (d)\n f = Mul (e, e)\n h = Add (f, a)\n y = Tanh (h) }",
                             options);
  EXPECT_LT(model.error, 3 * kFp16);
  EXPECT_GT(model.graph.kernels.size(), 1u);
  for (const Kernel &kernel : model.graph.kernels)
    EXPECT_LE(std::count_if(kernel.nodes.begin(), kernel.nodes.end(), [](const Node &node) { return node.kind == Node::Kind::Op; }),
              4 + 3) // what widens and narrows aside
        << kernel.name;
}

TEST(Maps, OfConstantsAreCutAndPaddedWithWhatTheyAreAddedTo) {
  const std::string c = "float[3,8] c = {" + numbers(24, 13) + "}";
  EXPECT_LT(onGrid("g (float[3,8] x) => (float[3,4] y) <" + c + ", int64[1] f = {0}, int64[1] t = {8}, int64[1] a = {1}, int64[1] s = {2}> { p = "
                   "Add (x, c)\n y = Slice (p, f, t, a, s) }"),
            kFp16);
  EXPECT_LT(onGrid("g (float[3,8] x) => (float[3,8] y) <" + c + ", int64[1] f = {7}, int64[1] t = {-9}, int64[1] a = {1}, int64[1] s = {-1}> { p = "
                   "Add (x, c)\n y = Slice (p, f, t, a, s) }"),
            kFp16);
  EXPECT_LT(onGrid("g (float[3,8] x) => (float[3,11] y) <" + c + ", int64[4] p = {0, 2, 0, 1}> { a = Add (x, c)\n y = Pad (a, p) }"), kFp16);
  EXPECT_LT(onGrid("g (float[3,8] x) => (float[8,3] y) <" + c + "> { a = Add (x, c)\n y = Transpose <perm = [1,0]> (a) }"), kFp16);
  EXPECT_LT(onGrid("g (float[3,8] x) => (float[3,2,4] y) <" + c + ", int64[3] s = {3, 2, 4}> { a = Add (x, c)\n y = Reshape (a, s) }"), kFp16);
  EXPECT_LT(onGrid("g (float[3,8] x) => (float[6,4] y) <" + c + ", int64[2] s = {6, 4}> { a = Add (x, c)\n r = Reshape (a, s)\n y = Tanh (r) }"),
            kFp16);
}

TEST(Maps, OfConstantsTakeThemInTheOrderOfTheirLanes) {
  for (const char *cut : {"int64[1] f = {0}, int64[1] t = {8}, int64[1] s = {2}", "int64[1] f = {7}, int64[1] t = {-9}, int64[1] s = {-2}"}) {
    const Model model = formed("g (float[3,8] x) => (float[3,4] y) <float[3,8] c = {" + numbers(24, 13) + "}, int64[1] a = {1}, " + cut +
                               "> { p = Add (x, c)\n y = Slice (p, f, t, a, s) }");
    EXPECT_LT(model.error, kFp16);
    for (const Kernel &kernel : model.graph.kernels)
      for (const Access &operand : kernel.operands)
        EXPECT_TRUE(unitLoop(kernel, operand.index[model.graph.tensors[operand.tensor].laneDim], LoopKind::Parallel)) << cut;
  }
}

TEST(Maps, BroadcastWhatIsAnOutputToo) {
  EXPECT_LT(onGrid("g (float[3,4] x, float[3] b) => (float[3] m, float[3,4] y) <int64[2] s = {3, 1}> { m = Exp (b)\n r = Reshape (m, s)\n y = Mul (x, "
                   "r) }"),
            kFp16);
}

TEST(Maps, ChooseByAComparison) {
  EXPECT_EQ(onGrid("g (float[3,4] x, float[3,4] z) => (bool[3,4] y) { y = Less (x, z) }"), 0);
  EXPECT_EQ(onGrid("g (float[3,4] x, float[3,4] z) => (float[3,4] y) { b = Less (x, z)\n y = Where (b, x, z) }"), 0);
  EXPECT_EQ(onGrid("g (bool[3,4] b, float[3,4] x, float[4] z) => (float[3,4] y) { y = Where (b, x, z) }"), 0);
}

TEST(Maps, OfLanesThatAreCutComeOutWhole) {
  PrecisionOptions options;
  options.lanes = 32;
  const Model model = formed("g (float[2,24] x) => (float[2,96] l, float[2,96] y) <float[24,96] w = {" + numbers(24 * 96, 13) +
                             "}> { l = MatMul (x, w)\n y = Softmax <axis = 1> (l) }",
                             options);
  EXPECT_LT(model.error, 10 * kFp16);
  bool isCut = false;
  for (const Tensor &tensor : model.graph.tensors) {
    isCut |= tensor.role == TensorRole::Output && !tensor.hostLoops.empty();
    for (const HostLoop &loop : tensor.hostLoops)
      EXPECT_EQ(loop.step, 1) << "every loop moves its dimension";
  }
  EXPECT_TRUE(isCut) << "the logits lie in parts of at most 32 lanes";
}

TEST(Maps, NormaliseAndSoften) {
  EXPECT_LT(onGrid("g (float[3,16] x) => (float[3,16] y) <float[16] s = {" + numbers(16, 7, 0.5) + "}, float[16] b = {" + numbers(16, 5) +
                   "}> { y = LayerNormalization (x, s, b) }"),
            3 * kFp16);
  const Model soft = formed("g (float[3,16] x) => (float[3,16] y) { a = Relu (x)\n y = Softmax <axis = 1> (a) }");
  EXPECT_LT(soft.error, 2 * kFp16);
  EXPECT_TRUE(soft.graph.hostCalls.empty());
  for (const Kernel &kernel : soft.graph.kernels)
    for (const Node &node : kernel.nodes)
      if (node.kind == Node::Kind::Op && node.op == AluOp::ExpF32) {
        EXPECT_EQ(kernel.nodes[node.args[0]].op, AluOp::SubF32) << "no rounding between the two";
      }
  EXPECT_LT(onGrid("g (float[3,16] x) => (float[3,16] y) { a = Relu (x)\n y = Softmax <axis = 0> (a) }"), 2 * kFp16);
  EXPECT_LT(onGrid("g (float[1,4,3,3] x) => (float[1,4,3,3] y) <float[4] s = {1, 2, 3, 4}, float[4] b = {1, -2, 3, -4}, float[4] m = "
                   "{0.5, 0.25, 0, 1}, float[4] v = {1, 2, 0.5, 4}> { y = BatchNormalization (x, s, b, m, v) }"),
            kFp16);
}

TEST(Views, CutJoinTurnAndPad) {
  EXPECT_EQ(onGrid("g (float[3,4,6] x) => (float[6,3,4] y) { y = Transpose <perm = [2,0,1]> (x) }"), 0);
  EXPECT_EQ(onGrid("g (float[3,4] x, float[3,4] z) => (float[3,8] y) { a = Relu (x)\n y = Concat <axis = 1> (a, z) }"), 0);
  EXPECT_EQ(onGrid("g (float[3,4] x, float[2,4] z) => (float[5,4] y) { a = Relu (x)\n y = Concat <axis = 0> (a, z) }"), 0);
  EXPECT_EQ(onGrid("g (float[3,6] x) => (float[3,2] a, float[3,4] b) <int64[2] s = {2, 4}> { p = Relu (x)\n a, b = Split <axis = 1> (p, s) }"),
            0);
  EXPECT_EQ(onGrid("g (float[3,8] x) => (float[3,3] y) <int64[1] f = {1}, int64[1] t = {7}, int64[1] a = {1}, int64[1] s = {2}> { p = Relu "
                   "(x)\n y = Slice (p, f, t, a, s) }"),
            0);
  EXPECT_EQ(onGrid("g (float[3,4] x) => (float[5,7] y) <int64[4] p = {1, 2, 1, 1}> { a = Relu (x)\n y = Pad (a, p) }"), 0);
  EXPECT_EQ(onGrid("g (float[3,8] x) => (float[6,4] y) <int64[2] s = {6, 4}> { a = Relu (x)\n y = Reshape (a, s) }"), 0);
  EXPECT_EQ(onGrid("g (float[2,12] x) => (float[6,4] y) <int64[2] s = {6, 4}> { a = Relu (x)\n y = Reshape (a, s) }"), 0);
  EXPECT_EQ(onGrid("g (float[4,3,2] x) => (float[2,12] y) <int64[2] s = {2, 12}> { a = Transpose <perm = [2,0,1]> (x)\n y = Reshape (a, s) }"),
            0);
}

TEST(Views, MoveLanesOfWhatMayBeInfiniteByItsBytesAndOfFp32InThreeParts) {
  const std::string halves = R"(
    a = Slice (p, zero, end, axis, two)
    b = Slice (p, one, end, axis, two)
    u = Neg (a)
    v = Abs (b)
  })";
  const std::string places = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] end = {8}, int64[1] axis = {1}, int64[1] two = {2}";
  // Exponentials may be infinities, which a product with 0 would make NaN.
  std::vector<double> x(24);
  for (size_t k = 0; k < x.size(); ++k)
    x[k] = double(k % 7) - 3;
  const Model bytes = formed("g (float[3,8] x) => (float[3,4] u, float[3,4] v) <" + places + "> { p = Exp (x)\n" + halves, {}, {{"x", x}});
  EXPECT_LT(bytes.error, kFp16);
  EXPECT_TRUE(bytes.graph.hostCalls.empty());
  std::vector<double> ids(24);
  for (size_t k = 0; k < ids.size(); ++k)
    ids[k] = double(k * k * 37 + 5);
  const Model angles = formed("g (int32[3,8] x) => (float[3,4] u, float[3,4] v) <" + places + ", float f = {0.37}> { c = Cast <to = 1> (x)\n p = Mul "
                              "(c, f)\n" + halves,
                              {}, {{"x", ids}});
  EXPECT_LT(angles.error, kFp16);
}

TEST(Views, ThatMoveLanesOfOneTensorShareItsParts) {
  const std::string places = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] end = {8}, int64[1] axis = {1}, int64[1] two = {2}";
  const std::string halves = "a = Slice (p, zero, end, axis, two)\n b = Slice (p, one, end, axis, two)\n";
  const Model bytes = formed("g (float[3,8] x) => (float[3,8] p, float[3,4] u, float[3,4] v) <" + places + "> { p = Exp (x)\n " + halves +
                             "u = Neg (a)\n v = Abs (b) }");
  EXPECT_LT(bytes.error, kFp16);
  EXPECT_EQ(bytes.graph.kernels.size(), 3u); // p with its parts, u, v
  EXPECT_TRUE(bytes.graph.hostCalls.empty());
  const Model parts = formed("g (int32[3,8] x) => (float[3,8] w, float[3,4] u, float[3,4] v) <" + places + ", float f = {0.37}> { c = Cast <to = 1> "
                             "(x)\n p = Mul (c, f)\n w = Cos (p)\n " + halves + "u = Cos (a)\n v = Sin (b) }");
  EXPECT_LT(parts.error, kFp16);
  EXPECT_EQ(parts.graph.kernels.size(), 3u);
  EXPECT_TRUE(parts.graph.hostCalls.empty());
}

TEST(Tables, AreLookedUpOnTheGridAsLongAsThereIsRoom) {
  const std::string text = "g (int64[5] ids) => (float[5,4] y) <float[4,4] t = {" + numbers(16, 13) + "}> { r = Gather (t, ids)\n y = Tanh (r) }";
  const Model grid = formed(text, {}, {{"ids", {3, -1, 0, 2, -4}}});
  EXPECT_LT(grid.error, kFp16);
  EXPECT_EQ(lookups(grid.graph), 1u);
  EXPECT_TRUE(grid.remarks.empty());
  PrecisionOptions small;
  small.memoryBytes = 40;
  const Model host = formed(text, small, {{"ids", {3, -1, 0, 2, -4}}});
  EXPECT_LT(host.error, kFp16);
  EXPECT_EQ(lookups(host.graph), 0u);
  EXPECT_EQ(host.graph.hostCalls.size(), 1u);
  ASSERT_EQ(host.remarks.size(), 1u);
  EXPECT_THAT(host.remarks[0], testing::HasSubstr("of 32 bytes stays with the host: "));
}

TEST(Tables, OfTwoTheSmallerOneAndOtherConstantsComeFirst) {
  const std::string text = "g (int64[5] ids) => (float[5,4] y) <float[4,4] t = {" + numbers(16, 13) + "}, float[6,4] u = {" +
                           numbers(24, 13) + "}, float[4,4] w = {" + numbers(16, 11) +
                           "}> { r = Gather (t, ids)\n s = Gather (u, ids)\n a = Add (r, s)\n y = MatMul (a, w) }";
  PrecisionOptions room;
  room.memoryBytes = 32 + 2 * (32 + 47); // w, and half of the rest for tables of 32 and 48
  const Model one = formed(text, room, {{"ids", {3, -1, 0, 2, -4}}});
  EXPECT_LT(one.error, kFp16);
  EXPECT_EQ(lookups(one.graph), 1u);
  ASSERT_EQ(one.remarks.size(), 1u);
  EXPECT_THAT(one.remarks[0], testing::HasSubstr("of 48 bytes stays with the host: 47 bytes are left for tables"));
  room.memoryBytes += 2;
  const Model both = formed(text, room, {{"ids", {3, -1, 0, 2, -4}}});
  EXPECT_LT(both.error, kFp16);
  EXPECT_EQ(lookups(both.graph), 2u);
}

TEST(HostSteps, TakeWhatTheGridMadeAndGiveItBack) {
  const std::string weights = "<float[8,8] v = {" + numbers(64, 13) + "}, float[8,5] w = {" + numbers(40, 11) + "}, float c = {1000.0}, int64 axis = {1}> {";
  const Model model = formed("g (float[3,8] x) => (float[3,5] y) " + weights + "a = MatMul (x, v)\n b = Mod <fmod = 1> (a, c)\n y = MatMul (b, w) }");
  EXPECT_LT(model.error, 2 * kFp16);
  EXPECT_EQ(model.graph.hostCalls.size(), 1u);
  EXPECT_EQ(model.graph.macs(), 3 * 8 * 8 + 3 * 8 * 5);
  const Model summed = formed("g (float[3,8] x) => (float[3,5] y) " + weights + "a = MatMul (x, v)\n b = CumSum (a, axis)\n y = MatMul (b, w) }");
  EXPECT_LT(summed.error, 2 * kFp16);
  EXPECT_TRUE(summed.graph.hostCalls.empty()) << "a product with ones";
  EXPECT_EQ(summed.graph.macs(), model.graph.macs()) << "which is none of the model's";
  const Model given = formed("g (float[3,8] x) => (float[3,8] y) <int64 axis = {1}> { y = CumSum (x, axis) }");
  EXPECT_TRUE(given.graph.hostCalls.empty()) << "sums in steps, as an input may be infinite";
}

TEST(HostSteps, TakeDoublesAndKeepWholeNumbersAsTheyAre) {
  EXPECT_LT(formed("g (double[3,4] x) => (double[3,4] y) <double c = {0.1}> { y = Mul (x, c) }").error, kFp16);
  const Model large = formed("g (double[3,40] x) => (double[3,40] y) <double[3,40] c = {" + numbers(120, 13) + "}> { y = Mul (x, c) }");
  EXPECT_LT(large.error, kFp16);
  ASSERT_EQ(large.graph.hostCalls.size(), 1u);
  EXPECT_EQ(large.graph.hostCalls[0].inputs.size(), 2u); // the constant is too large to stand in the function
  for (unsigned tensor : large.graph.hostCalls[0].inputs)
    EXPECT_EQ(large.graph.tensors[tensor].hostType, "double") << tensor;
  EXPECT_EQ(formed("g (int64[3,4] x, int64[4] z) => (int64[3,4] y) { y = Mul (x, z) }").error, 0);
  EXPECT_EQ(formed("g (int64[3,4] x) => (int64[3,4] a, float[3,4] b) { a = Add (x, x)\n c = Cast <to = 1> (a)\n b = Relu (c) }").error, 0);
}

TEST(HostSteps, OfContractionsAreCountedAndDoublesAreSaid) {
  const Model product = formed("g (int64[3,4] x, int64[4,2] z) => (int64[3,2] y) { y = MatMul (x, z) }");
  EXPECT_EQ(product.error, 0);
  ASSERT_EQ(product.points.size(), 1u);
  EXPECT_EQ(product.points.begin()->second.all, 3 * 4 * 2);
  EXPECT_EQ(product.points.begin()->second.onHost, 3 * 4 * 2);
  const Model grid = formed("g (float[3,4] x, float[4,2] z) => (float[3,2] y) { y = MatMul (x, z) }");
  ASSERT_EQ(grid.points.size(), 1u);
  EXPECT_EQ(grid.points.begin()->second.all, 3 * 4 * 2);
  EXPECT_EQ(grid.points.begin()->second.onHost, 0);
  const Model doubles = formed("g (double[3,4] x) => (float[3,4] y) <int64 axis = {1}> { s = CumSum (x, axis)\n d = Add (s, s)\n c = Cast <to = 1> "
                               "(d)\n y = Relu (c) }");
  EXPECT_LT(doubles.error, kFp16);
  for (const HostCall &call : doubles.graph.hostCalls)
    for (unsigned tensor : call.inputs)
      EXPECT_EQ(doubles.graph.tensors[tensor].hostType, "double");
}

TEST(HostSteps, TakeTheExtremeOfAnInputOffItBeforeItIsRounded) {
  // Around 10,000, fp16 holds every eighth number.
  std::vector<double> large(12);
  for (size_t k = 0; k < large.size(); ++k)
    large[k] = 10000 + double(k * 5 % 12);
  const auto check = [&](const std::string &text, size_t hostCalls) {
    const Model model = formed(text, {}, {{"x", large}, {"z", large}});
    EXPECT_EQ(model.graph.hostCalls.size(), hostCalls) << text;
    return model.error;
  };
  EXPECT_EQ(check("g (float[3,4] x) => (float[3,4] y) <int64[1] a = {1}> { m = ReduceMax (x, a)\n d = Sub (x, m)\n y = Neg (d) }", 1), 0);
  EXPECT_EQ(check("g (float[3,4] x) => (float[3,4] y) <float h = {0.5}, int64[1] a = {1}> { m = ReduceMin (x, a)\n d = Sub (x, m)\n y = Mul (d, h) }", 1), 0);
  EXPECT_EQ(check("g (float[3,4] x) => (int8[3,4] y) <float h = {127}, int8 z = {0}> { m = ReduceMax <keepdims = 0> (x)\n s = Div (m, h)\n y = "
                  "QuantizeLinear (x, s, z) }", 1), 0);
  // What takes no difference, differences of anything else, and extremes of something else as well are the grid's.
  check("g (float[3,4] x) => (float[3,4] y) <int64[1] a = {1}> { m = ReduceMax (x, a)\n y = Mul (x, m) }", 0);
  check("g (float[3,4] x, float[3,4] z) => (float[3,4] y) { y = Sub (x, z) }", 0);
  check("g (float[3,4] x, float[3,4] z) => (float[3,4] y) <int64[1] a = {1}> { s = Add (x, z)\n m = ReduceMax (s, a)\n y = Sub (x, m) }", 0);
  check("g (float[3,4] x) => (float[3,4] y) <int64[1] a = {1}> { m = ReduceMean (x, a)\n y = Sub (x, m) }", 0);
}

TEST(HostSteps, SeeThroughTheConversionOfAnInput) {
  std::vector<double> large(12);
  for (size_t k = 0; k < large.size(); ++k)
    large[k] = 10000 + double(k * 5 % 12);
  const Model model = formed("g (double[3,4] x) => (float[3,4] y) <int64[1] a = {1}> { c = Cast <to = 1> (x)\n m = ReduceMax (c, a)\n d = Sub (c, m)\n y = "
                             "Neg (d) }",
                             {}, {{"x", large}});
  EXPECT_EQ(model.graph.hostCalls.size(), 1u);
  EXPECT_EQ(model.error, 0);
}

namespace {

/// x, quantised in steps of 1/8; int8 weights in steps of `scales`, whose zero points are `zeros`.
std::string quantised(const std::string &scales, const std::string &zeros, const std::string &zero = "0") {
  return "g (float[3,8] x) => (float[3,4] y) <float sx = {0.125}, int8 zx = {" + zero + "}, int8[8,4] w = {" + integers(32, 15) +
         "}, float[4] sw = {" + scales + "}, int8[4] zw = {" + zeros + R"(}, float sy = {0.0625}, int8 zy = {2}> {
    q = QuantizeLinear (x, sx, zx)
    d = DequantizeLinear (q, sx, zx)
    v = DequantizeLinear <axis = 1> (w, sw, zw)
    p = MatMul (d, v)
    r = QuantizeLinear (p, sy, zy)
    y = DequantizeLinear (r, sy, zy)
  })";
}

} // namespace

TEST(Quantised, ProductsAreOfIntegersWhateverTheZeroPoints) {
  PrecisionOptions options;
  options.precision = Precision::Int8;
  const auto integerTerms = [](const KernelGraph &graph) {
    size_t count = 0;
    for (const Kernel &kernel : graph.kernels)
      for (const Term &term : kernel.terms)
        count += graph.tensors[term.a.tensor].type == ElementType::Int8 && graph.tensors[term.w.tensor].type == ElementType::Int8;
    return count;
  };
  for (const char *zero : {"0", "5"}) {
    const Model one = formed(quantised("0.25, 0.5, 0.125, 0.25", "0, 0, 0, 0", zero), options);
    EXPECT_EQ(one.error, 0);
    EXPECT_EQ(integerTerms(one.graph), 1u);
    EXPECT_TRUE(one.graph.hostCalls.empty());
  }
  // The last one's weights less their zero points take two constants of 8 bits.
  for (auto [zeros, terms] : {std::pair("0, 1, 2, 3", 1u), {"0, 0, 0, 1", 1u}, {"0, 0, 0, -1", 1u}, {"0, -128, 0, 0", 2u}})
    for (const char *zero : {"0", "5"}) {
      const Model several = formed(quantised("0.25, 0.5, 0.125, 0.25", zeros, zero), options);
      EXPECT_EQ(several.error, 0) << zeros;
      EXPECT_EQ(integerTerms(several.graph), terms) << zeros;
      EXPECT_TRUE(several.graph.hostCalls.empty()) << zeros;
    }
}

TEST(Quantised, ProductsOfTwoConsumersAreComputedOnce) {
  PrecisionOptions options;
  options.precision = Precision::Int8;
  const Model model = formed("g (float[3,8] x) => (float[3,4] u, float[3,4] v) <float sx = {0.125}, int8 z = {0}, int8[8,4] w = {" +
                             integers(32, 15) + R"(}, float sw = {0.125}, float sy = {0.0625}> {
    q = QuantizeLinear (x, sx, z)
    d = DequantizeLinear (q, sx, z)
    e = DequantizeLinear (w, sw, z)
    p = MatMul (d, e)
    r = QuantizeLinear (p, sy, z)
    y = DequantizeLinear (r, sy, z)
    u = Neg (y)
    v = Abs (y)
  })", options);
  EXPECT_EQ(model.error, 0);
  EXPECT_EQ(model.graph.macs(), 3 * 8 * 4);
}

TEST(Quantised, AnEvenZeroPointIsAddedWithTheBias) {
  PrecisionOptions options;
  options.precision = Precision::Int8;
  // A residual sum of a product with bias and what was quantised, rectified; zero points of every side.
  const auto residual = [&](const char *zx, const char *zy) {
    return formed("g (float[3,8] x) => (float[3,8] y) <float sx = {0.125}, int8 zx = {" + std::string(zx) +
                      "}, int8[8,8] w = {" + integers(64, 15) + "}, float sw = {0.125}, int8 zw = {0}, float[8] b = {" +
                      numbers(8, 5) + "}, float sy = {0.0625}, int8 zy = {" + zy + R"(}> {
      q = QuantizeLinear (x, sx, zx)
      d = DequantizeLinear (q, sx, zx)
      v = DequantizeLinear (w, sw, zw)
      p = MatMul (d, v)
      c = Add (p, b)
      s = Add (c, d)
      t = Relu (s)
      r = QuantizeLinear (t, sy, zy)
      y = DequantizeLinear (r, sy, zy)
    })", options);
  };
  const auto additions = [](const KernelGraph &graph) {
    for (const Kernel &kernel : graph.kernels)
      if (!kernel.terms.empty())
        return std::count_if(kernel.nodes.begin(), kernel.nodes.end(),
                             [](const Node &node) { return node.kind == Node::Kind::Op && node.op == AluOp::AddF32; });
    return ptrdiff_t(-1);
  };
  for (const char *zx : {"0", "6", "-5"})
    for (const auto &[zy, rounding] : {std::pair{"0", 0}, {"4", 0}, {"-128", 0}, {"3", 2}}) {
      const Model model = residual(zx, zy);
      EXPECT_EQ(model.error, 0) << zx << ", " << zy;
      // The bias, the sum, the zero point of the other side; an odd one of the result is added in two steps, as its
      // scale is a power of two, and each is taken off again.
      EXPECT_EQ(additions(model.graph), 2 + (zx[0] != '0') + (zy[0] != '0') + rounding) << zx << ", " << zy;
    }
}
