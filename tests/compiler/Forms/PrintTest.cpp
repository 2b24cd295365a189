// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/KernelBuilder.h"

#include <gmock/gmock.h>

using namespace millrace;
using namespace millrace::forms;
using testing::HasSubstr;

TEST(Print, AMatmulIsOneLineForEachTensorTermOperandNodeAndResult) {
  EXPECT_EQ(print(buildMatmul({2, 3, 4, ElementType::Fp16, true, true, 1})),
            "graph matmul macs 24\n"
            "input %0:x fp16[2,3*] host x float\n"
            "output %1:y fp16[2,4*] host y float\n"
            "constant %2:matmul.w fp16[4,3*]\n"
            "constant %3:bias fp32[4*]\n"
            "kernel 0 matmul from matmul (p0<2 p1<4 c2<3)\n"
            "    acc += %0:x[p0, c2] * %2:matmul.w[p1, c2]  macs 24\n"
            "    operand 0 = %3:bias[p1]\n"
            "    n0 = acc\n"
            "    n1 = operand 0\n"
            "    n2 = add.f32 n0 n1\n"
            "    n3 = imm 0 (0)\n"
            "    n4 = max.f32 n2 n3\n"
            "    n5 = cvt.f32.f16.fin n4\n"
            "    %1:y[p0, p1] = n5\n");
}

TEST(Print, IndicesHaveCoefficientsOffsetsAndPads) {
  const std::string text = print(buildMaxPool(4, 5, 5, 3, 2, 1, ElementType::Fp16));
  EXPECT_THAT(text, HasSubstr("[0, p0, 2p1-1, 2p2-1] pad"));
}

TEST(Print, ALookupNamesItsTensorItsIndexAndItsDimension) {
  const std::string text = print(buildEmbedding({.tokens = 2, .rows = 9, .width = 4}));
  EXPECT_THAT(text, HasSubstr(" indices below 9\n"));
  EXPECT_THAT(text, HasSubstr(" in dim 0\n"));
}

TEST(Print, ARunningLoopAndItsReductionAreNamed) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {5, 8}, ElementType::Fp32, 1, TensorRole::Input),
                 y = addTensor(graph, "y", {8}, ElementType::Fp32, 0, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned r = build.loop(5, LoopKind::Running), l = build.loop(8);
  build.storeBits(build.reduce(AluOp::AddF32, build.load({x, {at(r), at(l)}, 0})), {y, {at(l)}, 0});
  build.finish("total", "Sum_3");
  EXPECT_EQ(print(graph), "graph  macs 0\n"
                          "input %0:x fp32[5,8*] host x float\n"
                          "output %1:y fp32[8*] host y float\n"
                          "kernel 0 total from Sum_3 (r0<5 p1<8)\n"
                          "    operand 0 = %0:x[r0, p1]\n"
                          "    n0 = operand 0\n"
                          "    n1 = reduce add.f32 n0\n"
                          "    %1:y[p1] = n1\n");
}

TEST(Print, AHostCallNamesItsFunctionAndItsTensors) {
  KernelGraph graph;
  addTensor(graph, "x", {4}, ElementType::Fp32, 0, TensorRole::Input);
  addTensor(graph, "y", {4}, ElementType::Fp32, 0, TensorRole::Output);
  graph.hostCalls.push_back({"TopK_1", "host0", StepDevice::Host, {0}, {1}});
  graph.order.push_back({true, 0});
  EXPECT_EQ(print(graph), "graph  macs 0\n"
                          "input %0:x fp32[4*] host x float\n"
                          "output %1:y fp32[4*] host y float\n"
                          "host 0 TopK_1 @host0 ( %0 ) -> ( %1 )\n");
}
