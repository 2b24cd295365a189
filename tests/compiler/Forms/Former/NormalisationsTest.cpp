// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Are the two sums of a normalisation made at once where that costs no accuracy and saves time, and there alone? And are its squares
// rounded once where there are many?
#include "tests/compiler/Forms/Former/OnnxModel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

using namespace millrace;
using namespace millrace::forms;
using namespace millrace::test;

namespace {

/// A variance is a difference that is kept from being negative.
bool sumsSquaresOfRows(const KernelGraph &graph) {
  return std::any_of(graph.kernels.begin(), graph.kernels.end(), [](const Kernel &kernel) {
    return std::any_of(kernel.nodes.begin(), kernel.nodes.end(), [&](const Node &node) {
      return node.kind == Node::Kind::Op && node.op == AluOp::MaxF32 &&
             kernel.nodes[node.args[0]].op == AluOp::SubF32;
    });
  });
}

/// y = the normalised p, where `make` makes p of x, in so many rows; `shape` of y if it is another.
Model normalised(const std::string &make, int width, const std::string &how, int rows = 3, std::string shape = "") {
  const std::string n = std::to_string(width), same = "float[" + std::to_string(rows) + "," + n + "]";
  return formed("g (" + same + " x) => (" + (shape.empty() ? same : shape) + " y) <float[" + n + "] s = {" + numbers(width, 7, 0.5) +
                "}, float[" + n + "] b = {" + numbers(width, 5) + "}, float[" + n + "," + n + "] w = {" + numbers(width * width, 13) +
                "}, float[" + n + "," + n + "] same = {" + numbers(width * width, 1, 0.25) +
                "}, float e = {0.001}, int64[1] one = {1}, int64[1] zero = {0}> { " + make + "\n" + how + " }");
}

const char *const kNorm = "y = LayerNormalization (p, s, b)",
                  *const kSteps = "m = ReduceMean (p, one)\n d = Sub (p, m)\n q = Mul (d, d)\n v = ReduceMean (q, one)\n"
                                  "ve = Add (v, e)\n t = Sqrt (ve)\n y = Div (d, t)",
                  *const kOtherMean = "m = ReduceMean (p, zero)\n d = Sub (p, m)\n q = Mul (d, d)\n v = ReduceMean (q, one)\n"
                                      "ve = Add (v, e)\n t = Sqrt (ve)\n y = Div (d, t)";

TEST(Normalisations, BehindAProductSumRowsAndTheirSquaresAtOnce) {
  for (const char *how : {kNorm, kSteps})
    for (const char *make : {"p = MatMul (x, w)", "a = MatMul (x, w)\n p = Add (a, x)"}) {
      const Model model = normalised(make, 64, how);
      EXPECT_LT(model.error, 3 * kFp16) << make << "\n" << how;
      EXPECT_TRUE(sumsSquaresOfRows(model.graph)) << make << "\n" << how;
    }
}

TEST(Normalisations, OfWhatMayBeExactOrOfFewElementsSubtractTheMeanFirst) {
  EXPECT_FALSE(sumsSquaresOfRows(normalised("p = Relu (x)", 64, kNorm).graph));
  EXPECT_FALSE(sumsSquaresOfRows(normalised("p = MatMul (x, w)", 48, kNorm).graph));
  const Model other = normalised("p = MatMul (x, w)", 64, kOtherMean);
  EXPECT_FALSE(sumsSquaresOfRows(other.graph)) << "the mean of other elements";
  EXPECT_LT(other.error, 3 * kFp16);
}

/// Tensors of bf16 that are summed, in parts or not.
size_t summedInBf16(const KernelGraph &graph) {
  std::set<unsigned> summed;
  for (const Kernel &kernel : graph.kernels)
    for (const Term &term : kernel.terms)
      if (graph.tensors[term.a.tensor].type == ElementType::Bf16)
        summed.insert(term.a.tensor);
  return summed.size();
}

TEST(Normalisations, OfManyElementsSumRoundedSquaresOfDifferences) {
  for (const char *how : {kNorm, kSteps}) {
    const Model model = normalised("p = MatMul (x, w)", 64, how, 160);
    EXPECT_LT(model.error, 3 * kFp16) << how;
    EXPECT_FALSE(sumsSquaresOfRows(model.graph)) << how;
    EXPECT_EQ(summedInBf16(model.graph), 1u) << how;
  }
}

TEST(Normalisations, RoundSquaresOfWhichARootIsTakenAlone) {
  const char *const squares = "q = Mul (p, p)\n v = ReduceSum (q, one)\n";
  const Model scaled = normalised("p = MatMul (x, w)", 64, std::string(squares) + "ve = Add (v, e)\n t = Sqrt (ve)\n y = Div (p, t)");
  EXPECT_EQ(summedInBf16(scaled.graph), 1u);
  EXPECT_LT(scaled.error, 3 * kFp16);
  const Model plain = normalised("p = MatMul (x, w)", 64, std::string(squares) + "ve = Add (v, e)\n y = Div (p, ve)");
  EXPECT_EQ(summedInBf16(plain.graph), 2u);
  EXPECT_EQ(summedInBf16(normalised("p = MatMul (x, w)", 48, std::string(squares) + "ve = Add (v, e)\n t = Sqrt (ve)\n y = Div (p, t)").graph),
            2u)
      << "of few";
}

TEST(Normalisations, ReadAlongOtherDimensionsMakeBothSumsAtOnce) {
  const Model model = normalised("p = MatMul (x, w)", 64,
                                 "m = ReduceMean (p, one)\n d = Sub (p, m)\n q = Mul (d, d)\n v = ReduceMean (q, one)\n ve = Add (v, e)\n"
                                 "t = Sqrt (ve)\n n = Div (d, t)\n c = Transpose <perm = [1,0]> (n)\n y = MatMul (c, x)",
                                 160, "float[64,64]");
  EXPECT_TRUE(sumsSquaresOfRows(model.graph));
  EXPECT_LT(model.error, 3 * kFp16);
}

TEST(Normalisations, OfConstantRowsAreTheBias) {
  const Model model = normalised("p = MatMul (x, same)", 64, kNorm);
  EXPECT_TRUE(sumsSquaresOfRows(model.graph));
  EXPECT_LT(model.error, 3 * kFp16);
}

} // namespace
