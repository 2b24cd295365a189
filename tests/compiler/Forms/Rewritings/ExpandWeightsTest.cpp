// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Are weights of groups of channels packed, and set apart again, to the same bits?
#include "compiler/Forms/Rewritings/ExpandWeights.h"

#include "tests/compiler/Codegen/Grid/TestMachine.h"

#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"

#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::forms;

namespace {

/// y[p, n] = the sum over taps t and lanes k of x[p + t, k] w_t[n, k], where column n multiplies
/// the lanes of its group alone: n / each = k / each, and nothing else is there.
KernelGraph groups(ElementType type, int64_t lanes, int64_t each, int64_t rows, int64_t taps) {
  KernelGraph graph;
  graph.name = "groups";
  const unsigned x = addTensor(graph, "x", {rows + taps - 1, lanes}, type, 1, TensorRole::Input),
                 y = addTensor(graph, "y", {rows, lanes}, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned p = build.loop(rows), n = build.loop(lanes);
  for (int64_t t = 0; t < taps; ++t) {
    std::vector<float> values =
        randomValues(size_t(lanes * lanes), unsigned(t + 1), type == ElementType::Int8 ? 127 : 1);
    for (int64_t i = 0; i < lanes * lanes; ++i)
      if (i / lanes / each != i % lanes / each)
        values[size_t(i)] = 0;
    const unsigned w = addConstant(graph, "w" + std::to_string(t), {lanes, lanes}, type, 1, values),
                   k = build.loop(lanes, LoopKind::Contracted);
    build.term({x, {at(p, 1, t), at(k)}, 0}, {w, {at(n), at(k)}, 0}, rows * lanes * each);
  }
  unsigned value = build.accumulator();
  if (type == ElementType::Int8)
    value = build.op(AluOp::CvtI32F32, {value});
  build.store(value, {y, {at(p), at(n)}, 0});
  build.finish("groups");
  return graph;
}

TensorBytes outputOf(const KernelGraph &graph, const KernelGraph &plain) {
  const Expected<std::vector<TensorBytes>> tensors = evaluate(graph, randomInputs(plain));
  EXPECT_TRUE(tensors) << (tensors ? "" : tensors.error());
  return tensors ? (*tensors)[1] : TensorBytes();
}

int64_t constantBytes(const KernelGraph &graph) {
  int64_t bytes = 0;
  std::vector<bool> isRead(graph.tensors.size(), false);
  for (const Kernel &kernel : graph.kernels) {
    for (const Term &term : kernel.terms)
      isRead[term.w.tensor] = true;
    for (const Access &operand : kernel.operands)
      isRead[operand.tensor] = true;
  }
  for (size_t t = 0; t < graph.tensors.size(); ++t)
    if (isRead[t] && graph.tensors[t].role == TensorRole::Constant)
      bytes += int64_t(graph.tensors[t].data.size());
  return bytes;
}

TEST(ExpandWeights, PacksColumnsOfDifferentLanesIntoOneVector) {
  const Machine machine = test::testMachine(20);
  for (const ElementType type : {ElementType::Fp16, ElementType::Int8}) {
    const KernelGraph plain = groups(type, 640, 32, 12, 3);
    KernelGraph packed = plain;
    const int64_t saved = expandWeights(packed, machine);
    // Of ten groups in a vector one is left: 3 taps of 640 columns, but for 3 of 2 x 32.
    EXPECT_EQ(saved, 3 * (640 - 64) * 320 * int64_t(byteWidth(type)));
    ASSERT_EQ(packed.verify(), "");
    EXPECT_EQ(packed.macs(), plain.macs());
    EXPECT_EQ(packed.kernels.size(), 8u); // per 320 columns a map for each tap, and the sums
    EXPECT_LT(10 * constantBytes(packed), constantBytes(plain));
    EXPECT_EQ(outputOf(packed, plain), outputOf(plain, plain)); // bit by bit
    grid::CompileReport report;
    const Expected<Image> image = grid::compile(packed, machine, {}, report);
    EXPECT_TRUE(image) << (image ? "" : image.error());
  }
}

TEST(ExpandWeights, KeepsGroupsThatFillNoWholeVectors) { // 13 groups of 24 lanes in 312 of 320
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = groups(ElementType::Fp16, 336, 24, 7, 2);
  KernelGraph packed = plain;
  EXPECT_GT(expandWeights(packed, machine), 0);
  ASSERT_EQ(packed.verify(), "");
  EXPECT_EQ(outputOf(packed, plain), outputOf(plain, plain));
}

TEST(ExpandWeights, LeavesDenseWeights) {
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = groups(ElementType::Fp16, 320, 320, 7, 2);
  KernelGraph same = plain;
  EXPECT_EQ(expandWeights(same, machine), 0);
  EXPECT_EQ(same, plain);
}

} // namespace
