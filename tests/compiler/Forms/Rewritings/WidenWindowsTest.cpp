// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What windows would convert at each tap is stored in fp32, where nothing but maps reads it.
#include "compiler/Forms/Rewritings/WidenWindows.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Rewritings/Rewritings.h"
#include "compiler/Forms/Rewritings/SplitEpilogues.h"

#include "tests/compiler/Forms/Rewritings/Tsp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

using namespace millrace;
using namespace millrace::forms;

namespace {

/// What else happens to the tensor that a window reads.
enum class Also { Nothing, Product, Copy, Mask };

/// z = f(x) in 16 bits, y[h, w, c] = g(the sum over a window of z times a weight for each channel).
KernelGraph windowOf(int64_t size, ElementType type, Also also = Also::Nothing) {
  KernelGraph graph;
  graph.name = "window";
  const int64_t channels = 48, rows = 14;
  const std::vector<int64_t> shape{rows, rows, channels};
  const unsigned x = addTensor(graph, "x", shape, type, 2, TensorRole::Input);
  const unsigned z = addTensor(graph, "z", shape, type, 2);
  const unsigned y = addTensor(graph, "y", shape, type, 2, TensorRole::Output);
  const unsigned w = addConstant(graph, "w", {size, size, channels}, ElementType::Fp32, 2,
                                 randomValues(size_t(size * size * channels), 7, 1));
  {
    KernelBuilder build(graph);
    const std::vector<AffineIndex> point{at(build.loop(rows)), at(build.loop(rows)),
                                         at(build.loop(channels))};
    const unsigned value =
        build.op(AluOp::MulF32, {build.load({x, point, 0}), build.constant(1.1f)});
    if (also == Also::Mask) {
      std::vector<float> inside(size_t(channels), 1);
      inside[5] = inside[47] = 0; // -2 is stored there
      const unsigned mask = build.operand(
          {addConstant(graph, "mask", {channels}, ElementType::Fp32, 0, inside), {point[2]}, 0});
      build.storeBits(build.op(AluOp::SelectF32, {mask, build.op(narrowFromF32(type), {value}),
                                                  build.immediate(encode(type, -2))}),
                      {z, point, 0});
    } else {
      build.store(value, {z, point, 0});
    }
    build.finish("f");
  }
  {
    KernelBuilder build(graph);
    const unsigned h = build.loop(rows), v = build.loop(rows), c = build.loop(channels);
    std::optional<unsigned> sum;
    for (int64_t dy = 0; dy < size; ++dy)
      for (int64_t dx = 0; dx < size; ++dx) {
        AffineIndex down = at(h), right = at(v);
        down.offset = dy - size / 2;
        right.offset = dx - size / 2;
        const unsigned product =
            build.op(AluOp::MulF32, {build.load({z, {down, right, at(c)}, encode(type, -0.5f)}),
                                     build.operand({w, {fixed(dy), fixed(dx), at(c)}, 0})});
        sum = sum ? build.op(AluOp::AddF32, {*sum, product}) : product;
      }
    // With a last part that converts its taps, these would take a part of their own.
    unsigned value = *sum;
    for (const auto &[op, by] : {std::pair{AluOp::AddF32, 0.3f},
                                 {AluOp::MaxF32, -2.5f},
                                 {AluOp::MulF32, 1.7f},
                                 {AluOp::MinF32, 9.0f},
                                 {AluOp::AddF32, 0.1f}})
      value = build.op(op, {value, build.constant(by)});
    build.store(value, {y, {at(h), at(v), at(c)}, 0});
    build.finish("window");
  }
  if (also == Also::Product || also == Also::Copy) {
    const unsigned out = addTensor(graph, "out", shape, type, 2, TensorRole::Output);
    KernelBuilder build(graph);
    const unsigned h = build.loop(rows), v = build.loop(rows), c = build.loop(channels);
    const Access from{z, {at(h), at(v), at(c)}, 0}, to{out, {at(h), at(v), at(c)}, 0};
    if (also == Also::Copy) {
      build.storeBits(build.operand(from), to);
    } else {
      const unsigned k = build.loop(channels, LoopKind::Contracted);
      const unsigned mix = addConstant(graph, "mix", {channels, channels}, type, 1,
                                       randomValues(size_t(channels * channels), 9, 0.1f));
      build.term({z, {at(h), at(v), at(k)}, 0}, {mix, {at(c), at(k)}, 0}, 1);
      build.store(build.accumulator(), to);
    }
    build.finish("also");
  }
  EXPECT_EQ(graph.verify(), "");
  return graph;
}

/// The second tensor's successor, y, of one input.
std::vector<float> outputOf(const KernelGraph &graph) {
  const Tensor &x = graph.tensors[0], &y = graph.tensors[2];
  const TensorBytes input = encodeAll(x.type, randomValues(size_t(elementCount(x)), 1, 3));
  const Expected<std::vector<TensorBytes>> all = evaluate(graph, {{0, input}});
  EXPECT_TRUE(all) << (all ? "" : all.error());
  std::vector<float> values(all ? size_t(elementCount(y)) : 0);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint8_t *at = &(*all)[2][2 * i];
    values[i] = decode(y.type, uint32_t(at[0] | at[1] << 8));
  }
  return values;
}

unsigned widen(KernelGraph &graph, Room room = Room::Ample) {
  return widenWindows(graph, longestChain(tsp()), tsp(), room);
}

TEST(WidenWindows, TakesTapsAsTheyAre) {
  for (const ElementType type : {ElementType::Fp16, ElementType::Bf16})
    for (const Also also : {Also::Nothing, Also::Mask})
      for (const int64_t size : {3, 5, 7}) {
        const KernelGraph before = windowOf(size, type, also);
        KernelGraph after = before;
        ASSERT_EQ(widen(after), 1u) << size;
        EXPECT_EQ(after.verify(), "");
        EXPECT_EQ(after.tensors[1].type, ElementType::Fp32);
        for (const Node &node : after.kernels[1].nodes)
          EXPECT_FALSE(node.kind == Node::Kind::Op && node.op == widenToF32(type));
        const std::vector<float> was = outputOf(before), is = outputOf(after);
        ASSERT_EQ(is.size(), was.size());
        const double rounding = type == ElementType::Fp16 ? 1.0 / 1024 : 1.0 / 128;
        double difference = 0, scale = 0;
        for (size_t i = 0; i < is.size(); ++i) {
          difference += double(is[i] - was[i]) * double(is[i] - was[i]);
          scale += double(was[i]) * double(was[i]);
        }
        EXPECT_LT(std::sqrt(difference / scale), rounding);
        EXPECT_GT(difference, 0); // z is not rounded any more
        const unsigned most = longestChain(tsp());
        EXPECT_LT(cyclesOfMap(after, after.kernels[1], most, tsp(), Room::Ample),
                  cyclesOfMap(before, before.kernels[1], most, tsp(), Room::Ample));
        EXPECT_EQ(widen(after), 0u);
      }
}

TEST(WidenWindows, LeavesWhatOthersReadInSixteenBitsOrThereIsNoRoomFor) {
  for (const Also also : {Also::Product, Also::Copy}) {
    KernelGraph graph = windowOf(5, ElementType::Fp16, also);
    const KernelGraph before = graph;
    EXPECT_EQ(widen(graph), 0u);
    EXPECT_EQ(graph, before);
  }
  KernelGraph graph = windowOf(5, ElementType::Fp16);
  EXPECT_EQ(widen(graph, Room::Spare), 0u);
}

} // namespace
