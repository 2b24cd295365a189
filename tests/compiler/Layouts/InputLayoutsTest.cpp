// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which layouts may an image of few channels have?
#include "compiler/Layouts/Assign.h"

#include "tests/compiler/Codegen/Grid/TestMachine.h"

#include "compiler/Forms/Builders.h"

#include <gtest/gtest.h>

using namespace millrace;
using namespace millrace::forms;
using namespace millrace::layouts;

namespace {

/// Windows of 3 x 3 pixels over an image of 3 channels, maxima of 2 x 2 over its results, a contraction.
KernelGraph stemOfOddWindows(int64_t size) {
  KernelGraph graph;
  graph.name = "stem";
  const ElementType type = ElementType::Fp16;
  const unsigned x = addTensor(graph, "x", {1, 3, size, size}, type, 1, TensorRole::Input);
  const unsigned y = addTensor(graph, "y", {1, 64, size, size}, type, 1);
  const unsigned p = addTensor(graph, "p", {1, 64, size / 2, size / 2}, type, 1);
  const unsigned z = addTensor(graph, "z", {1, 160, size / 2, size / 2}, type, 1, TensorRole::Output);
  const unsigned w = addConstant(graph, "w", {64, 3, 3, 3}, type, 1, randomValues(64 * 27, 1, 0.3f));
  KernelBuilder windows(graph);
  const unsigned f = windows.loop(64), r = windows.loop(size), s = windows.loop(size),
                 c = windows.loop(3, LoopKind::Contracted), ky = windows.loop(3, LoopKind::Contracted),
                 kx = windows.loop(3, LoopKind::Contracted);
  windows.term({x, {fixed(0), at(c), window(r, 1, ky, 1, -1), window(s, 1, kx, 1, -1)}},
               {w, {at(f), at(c), at(ky), at(kx)}}, 64 * 27 * size * size);
  windows.store(windows.accumulator(), {y, {fixed(0), at(f), at(r), at(s)}});
  windows.finish("windows");
  KernelBuilder pool(graph);
  const unsigned g = pool.loop(64), q = pool.loop(size / 2), t = pool.loop(size / 2);
  unsigned most = pool.load({y, {fixed(0), at(g), at(q, 2), at(t, 2)}});
  for (auto [dy, dx] : {std::pair(0, 1), {1, 0}, {1, 1}})
    most = pool.op(AluOp::MaxF32, {most, pool.load({y, {fixed(0), at(g), at(q, 2, dy), at(t, 2, dx)}})});
  pool.store(most, {p, {fixed(0), at(g), at(q), at(t)}});
  pool.finish("pool");
  const unsigned v = addConstant(graph, "v", {160, 64}, type, 1, randomValues(160 * 64, 2, 0.1f));
  KernelBuilder last(graph);
  const unsigned h = last.loop(160), i = last.loop(size / 2), j = last.loop(size / 2),
                 d = last.loop(64, LoopKind::Contracted);
  last.term({p, {fixed(0), at(d), at(i), at(j)}}, {v, {at(h), at(d)}}, 160 * 64 * size * size / 4);
  last.store(last.accumulator(), {z, {fixed(0), at(h), at(i), at(j)}});
  last.finish("last");
  return graph;
}

TEST(InputLayouts, AnImageWhoseWindowsWouldBeRepeatedTooOftenHasFewerColumnsOfThemInARow) {
  const Machine machine = test::testMachine(20);
  const KernelGraph plain = stemOfOddWindows(48);
  KernelGraph packed = plain;
  const auto lines = assignLayouts(packed, machine, "exact");
  ASSERT_TRUE(lines) << lines.error();
  const Tensor &x = packed.tensors[0];
  // Five bands of results need five windows in a row: three columns of each would be 3.6 times the image.
  EXPECT_EQ(x.shape.back() % 6, 0) << x.shape.back();
  EXPECT_LE(elementCount(x), 3 * elementCount(plain.tensors[0])); // R15
  EXPECT_LE(5 * elementCount(x) / x.shape.back(), 2 * 48 * 48);
  EXPECT_TRUE(packed.verify().empty()) << packed.verify();
}

} // namespace
