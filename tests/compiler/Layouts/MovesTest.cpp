// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Do inputs that are written more than once, and tensors that are moved from one layout to another,
// save the vectors that they are made for, with the same values?
#include "compiler/Layouts/Assign.h"
#include "compiler/Layouts/ChangeLayouts.h"
#include "compiler/Layouts/CopyInputs.h"
#include "compiler/Layouts/RowMoves.h"
#include "compiler/Layouts/SplitTaps.h"

#include "tests/compiler/Codegen/Grid/TestMachine.h"
#include "tests/compiler/Layouts/Outputs.h"

#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace millrace;
using namespace millrace::forms;
using namespace millrace::layouts;

namespace {

/// y = ReLU of a convolution of x, padded, and of a residual.
void convolve(KernelGraph &graph, unsigned x, unsigned y, int64_t size, int64_t stride,
              unsigned seed, std::optional<unsigned> residual = std::nullopt) {
  const std::vector<int64_t> from = graph.tensors[x].shape, to = graph.tensors[y].shape;
  const ElementType type = graph.tensors[x].type;
  const int64_t sums = from[1] * size * size;
  const bool isInteger = type == ElementType::Int8;
  const unsigned w = addConstant(
      graph, "w" + std::to_string(seed), {to[1], from[1], size, size}, type, 1,
      randomValues(size_t(to[1] * sums), seed, isInteger ? 127 : 1.7f / std::sqrt(float(sums))));
  KernelBuilder build(graph);
  const unsigned f = build.loop(to[1]), r = build.loop(to[2]), s = build.loop(to[3]),
                 c = build.loop(from[1], LoopKind::Contracted),
                 ky = build.loop(size, LoopKind::Contracted),
                 kx = build.loop(size, LoopKind::Contracted);
  build.term({x,
              {fixed(0), at(c), window(r, stride, ky, 1, -(size / 2)),
               window(s, stride, kx, 1, -(size / 2))}},
             {w, {at(f), at(c), at(ky), at(kx)}}, to[1] * to[2] * to[3] * sums);
  const std::vector<AffineIndex> point{fixed(0), at(f), at(r), at(s)};
  unsigned value = build.accumulator();
  if (isInteger)
    value = build.op(AluOp::MulF32, {build.op(AluOp::CvtI32F32, {value}),
                                     build.constant(1 / (73 * std::sqrt(float(sums))))});
  if (residual)
    value = build.op(AluOp::AddF32, {value, build.load({*residual, point})});
  build.store(build.op(AluOp::MaxF32, {value, build.constant(0)}), {y, point});
  build.finish("conv" + std::to_string(seed));
}

/// The maximum of three neighbours of every second row or column.
void pool(KernelGraph &graph, unsigned x, unsigned y, bool columns) {
  const std::vector<int64_t> shape = graph.tensors[y].shape;
  const ElementType type = graph.tensors[x].type;
  const uint32_t lowest = type == ElementType::Int8 ? 0x80 : encode(type, -INFINITY);
  KernelBuilder build(graph);
  const unsigned f = build.loop(shape[1]), r = build.loop(shape[2]), s = build.loop(shape[3]);
  unsigned most = 0;
  for (int64_t d : {-1, 0, 1}) {
    const unsigned tap =
        build.load({x,
                    {fixed(0), at(f), columns ? at(r) : at(r, 2, d), columns ? at(s, 2, d) : at(s)},
                    lowest});
    most = d < 0 ? tap : build.op(AluOp::MaxF32, {most, tap});
  }
  build.store(most, {y, {fixed(0), at(f), at(r), at(s)}});
  build.finish(columns ? "columns" : "rows");
}

/// A stem, its pooling, and `blocks` residual blocks behind it.
KernelGraph network(ElementType type, int64_t size, int64_t blocks) {
  KernelGraph graph;
  graph.name = "network";
  const int64_t lanes = 64, half = size / 2, quarter = size / 4;
  const unsigned x = addTensor(graph, "x", {1, 3, size, size}, type, 1, TensorRole::Input),
                 y = addTensor(graph, "y", {1, lanes, half, half}, type, 1),
                 p = addTensor(graph, "p", {1, lanes, half, quarter}, type, 1);
  unsigned q = addTensor(graph, "q", {1, lanes, quarter, quarter}, type, 1);
  convolve(graph, x, y, 7, 2, 1);
  pool(graph, y, p, true);
  pool(graph, p, q, false);
  for (int64_t b = 0; b < blocks; ++b) {
    const std::string name = std::to_string(b);
    const unsigned inner = addTensor(graph, "inner" + name, {1, lanes, quarter, quarter}, type, 1),
                   sum = addTensor(graph, "sum" + name, {1, lanes, quarter, quarter}, type, 1);
    convolve(graph, q, inner, 3, 1, unsigned(2 * b + 2));
    convolve(graph, inner, sum, 3, 1, unsigned(2 * b + 3), q);
    q = sum;
  }
  const unsigned z = addTensor(graph, "z", {1, 40, quarter, quarter}, type, 1, TensorRole::Output);
  convolve(graph, q, z, 1, 1, 99);
  return graph;
}

/// Of the one output. `plain`: the graph whose inputs are drawn; copies get the same.
std::vector<float> outputOf(const KernelGraph &graph, const KernelGraph &plain) {
  const std::map<unsigned, TensorBytes> drawn = randomInputs(plain);
  std::map<unsigned, TensorBytes> inputs;
  for (unsigned t = 0; t < graph.tensors.size(); ++t)
    if (graph.tensors[t].role == TensorRole::Input)
      inputs[t] = drawn.at(0);
  return outputsOf(graph, inputs);
}

/// Sums of integers are exact; others, in another order, move an fp16 result by a unit or two.
void expectSame(const KernelGraph &plain, const KernelGraph &other) {
  EXPECT_EQ(other.verify(), "");
  EXPECT_EQ(other.macs(), plain.macs());
  const std::vector<float> expected = outputOf(plain, plain), got = outputOf(other, plain);
  ASSERT_EQ(expected.size(), got.size());
  float worst = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(expected[i] - got[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  EXPECT_GT(largest, 1);
  EXPECT_LE(worst, plain.tensors[0].type == ElementType::Int8 ? 0 : largest / 500);
}

double costOf(const KernelGraph &graph, const Machine &machine) {
  const LayoutProblem problem(graph, machine);
  return problem.graphCost(layoutSolvers().front().solve(problem, 0));
}

/// Kernels that sum over windows of the input.
int64_t readersOfInputs(const KernelGraph &graph) {
  return std::count_if(graph.kernels.begin(), graph.kernels.end(), [&](const Kernel &kernel) {
    return !kernel.terms.empty() &&
           graph.tensors[kernel.terms[0].a.tensor].role == TensorRole::Input;
  });
}

TEST(SplitTaps, MovesANeighbourThatIsAnotherOneAStepAway) {
  const Machine machine = test::testMachine(20);
  for (const ElementType type : {ElementType::Fp16, ElementType::Int8}) {
    const KernelGraph plain = network(type, 80, 0);
    KernelGraph split = plain;
    ASSERT_EQ(splitTaps(split, machine),
              std::vector<std::string>{"y: one tensor for each of 3 neighbours"});
    EXPECT_EQ(readersOfInputs(split),
              2); // even and odd columns; those before the odd ones are odd ones, too
    expectSame(plain, split);
    ASSERT_TRUE(assignLayouts(split, machine, "exact"));
    expectSame(plain, split);
  }
}

TEST(SplitTaps, ComputesNeighboursAgainThatMayBeInfinite) {
  KernelGraph graph = network(ElementType::Fp16, 80, 0);
  graph.tensors[1].unbounded = true; // 0 times infinity is no number
  ASSERT_EQ(splitTaps(graph, test::testMachine(20)).size(), 1u);
  EXPECT_EQ(readersOfInputs(graph), 3);
}

TEST(CopyInputs, WritesAnInputAgainWhereItsReadersReachDifferentColumns) {
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = network(ElementType::Fp16, 80, 0);
  KernelGraph copied = plain;
  copied.tensors[1].unbounded =
      true; // three readers, which reach 27 columns: a lane too many for a pass
  ASSERT_EQ(splitTaps(copied, machine).size(), 1u);
  const double before = costOf(copied, machine);
  ASSERT_EQ(copyInputs(copied, machine),
            std::vector<std::string>{"x: written 2 times, for different readers"});
  EXPECT_LT(costOf(copied, machine), before);
  ASSERT_TRUE(assignLayouts(copied, machine, "exact"));
  expectSame(plain, copied);
  int64_t written = 0;
  for (const Tensor &tensor : copied.tensors)
    written += tensor.role == TensorRole::Input ? elementCount(tensor) : 0;
  EXPECT_LE(written, 3 * elementCount(plain.tensors[0])); // R15: all copies together
}

TEST(CopyInputs, LeavesAnInputOfOneReader) {
  KernelGraph graph = network(ElementType::Fp16, 48, 1);
  EXPECT_TRUE(copyInputs(graph, test::testMachine(20)).empty());
}

/// Two sums over windows with a map between them that reads neighbours: what it reads lies in rows
/// of one pixel or in bands, and neither suits the windows.
KernelGraph windowsAroundAMap(int64_t size) {
  KernelGraph graph;
  graph.name = "windows";
  const ElementType type = ElementType::Fp16;
  const std::vector<int64_t> shape{1, 64, size, size};
  const unsigned x = addTensor(graph, "x", {1, 3, size, size}, type, 1, TensorRole::Input),
                 a = addTensor(graph, "a", {1, 48, size, size}, type, 1),
                 b = addTensor(graph, "b", shape, type, 1),
                 p = addTensor(graph, "p", shape, type, 1),
                 z = addTensor(graph, "z", {1, 32, size, size}, type, 1, TensorRole::Output);
  convolve(graph, x, a, 1, 1, 1);
  convolve(graph, a, b, 5, 1, 2);
  KernelBuilder build(graph);
  const unsigned f = build.loop(64), r = build.loop(size), s = build.loop(size);
  unsigned most = 0;
  for (int64_t d = 0; d < 9; ++d) {
    const unsigned tap =
        build.load({b, {fixed(0), at(f), at(r, 1, d / 3 - 1), at(s, 1, d % 3 - 1)}, 0});
    most = d ? build.op(AluOp::MaxF32, {most, tap}) : tap;
  }
  build.store(most, {p, {fixed(0), at(f), at(r), at(s)}});
  build.finish("map");
  convolve(graph, p, z, 1, 1, 3);
  return graph;
}

TEST(ChangeLayouts, MovesWhatAMapOfNeighboursReads) {
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = windowsAroundAMap(35);
  KernelGraph moved = plain;
  ASSERT_EQ(changeLayouts(moved, machine), std::vector<std::string>{"b: moved to another layout"});
  EXPECT_LT(costOf(moved, machine), costOf(plain, machine));
  ASSERT_TRUE(assignLayouts(moved, machine, "exact"));
  expectSame(plain, moved);
}

TEST(ChangeLayouts, MovesWhatAPoolingMakesToTheLayoutOfSumsBehindIt) {
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = network(ElementType::Int8, 112, 16);
  KernelGraph moved = plain;
  ASSERT_EQ(splitTaps(moved, machine).size(), 1u);
  const double before = costOf(moved, machine);
  ASSERT_EQ(changeLayouts(moved, machine), std::vector<std::string>{"q: moved to another layout"});
  EXPECT_LT(costOf(moved, machine), before);
  EXPECT_EQ(moved.verify(), "");
  EXPECT_EQ(moved.macs(), plain.macs());
}

TEST(ChangeLayouts, LeavesWhatAMoveWouldNotPayFor) {
  KernelGraph graph = network(ElementType::Int8, 48, 1);
  ASSERT_EQ(splitTaps(graph, test::testMachine(20)).size(), 1u);
  EXPECT_TRUE(changeLayouts(graph, test::testMachine(20)).empty());
}

TEST(ChangeLayouts, LeavesWhatMayBeInfinite) {
  KernelGraph graph = network(ElementType::Int8, 112, 16);
  for (Tensor &tensor : graph.tensors)
    tensor.unbounded = true;
  EXPECT_TRUE(changeLayouts(graph, test::testMachine(20)).empty());
}

} // namespace
