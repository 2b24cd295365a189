// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does an epilogue take the ALUs that the plan counts: never more, and not fewer?
#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/EpiloguePlan.h"
#include "compiler/Forms/KernelBuilder.h"

#include "arch/spec/MachineFile.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

using namespace millrace;
using namespace millrace::forms;

namespace {

/// A map of `count` additions and maxima of earlier values: an input, a constant per lane, one of
/// the input's shape (which changes along the rows), and what was made of them.
KernelGraph randomMap(unsigned seed, unsigned count) {
  std::mt19937 draw(seed);
  KernelGraph graph;
  const std::vector<int64_t> shape = {300, 40};
  const unsigned x = addTensor(graph, "x", shape, ElementType::Fp32, 1, TensorRole::Input),
                 y = addTensor(graph, "y", shape, ElementType::Fp32, 1, TensorRole::Output);
  graph.tensors[x].hostShape = graph.tensors[y].hostShape = shape;
  graph.tensors[x].hostType = graph.tensors[y].hostType = "float32";
  KernelBuilder build(graph);
  const unsigned row = build.loop(shape[0]), lane = build.loop(shape[1]);
  std::vector<unsigned> values = {build.load({x, {at(row), at(lane)}, 0})};
  const auto numbers = [&](size_t many) {
    std::vector<float> all(many);
    for (float &f : all)
      f = float(draw() % 1000) / 100;
    return all;
  };
  values.push_back(build.operand(
      {addConstant(graph, "bias", {shape[1]}, ElementType::Fp32, 0, numbers(40)), {at(lane)}, 0}));
  values.push_back(build.operand({addConstant(graph, "table", shape, ElementType::Fp32, 1, numbers(12000)),
                                  {at(row), at(lane)},
                                  0}));
  for (unsigned n = 0; n < count; ++n) {
    const unsigned last = values.back(), other = values[draw() % values.size()];
    values.push_back(build.op(draw() % 2 ? AluOp::AddF32 : AluOp::MaxF32, {last, other}));
  }
  build.storeBits(values.back(), {y, {at(row), at(lane)}, 0});
  build.finish("map");
  return graph;
}

TEST(Epilogue, TakesTheAlusThatThePlanCounts) {
  Machine machine = *loadMachine("tsp-v1");
  for (unsigned seed = 1; seed <= 60; ++seed) {
    const KernelGraph graph = randomMap(seed, 2 + seed % 7);
    const unsigned alus = epilogueNeeds(graph.kernels[0], graph, machine).alus;
    const auto compiled = [&](unsigned has) {
      machine.vxm.alus = has;
      grid::CompileReport report;
      const Expected<Image> image = grid::compile(graph, machine, {}, report);
      return image ? std::string() : image.error();
    };
    EXPECT_EQ(compiled(alus), "") << "seed " << seed;
    EXPECT_NE(compiled(alus - 1).find("needs " + std::to_string(alus) + " ALUs at once"),
              std::string::npos)
        << "seed " << seed << ": " << compiled(alus - 1);
    machine.vxm.alus = 16;
  }
}

TEST(Epilogue, ALatchIsLoadedInTheCycleBeforeItsUse) {
  KernelGraph graph;
  const unsigned x = addTensor(graph, "x", {300, 40}, ElementType::Fp32, 1, TensorRole::Input),
                 y = addTensor(graph, "y", {300, 40}, ElementType::Fp32, 1, TensorRole::Output),
                 bias = addConstant(graph, "bias", {40}, ElementType::Fp32, 0, randomValues(40, 1));
  KernelBuilder build(graph);
  const unsigned row = build.loop(300), lane = build.loop(40);
  build.storeBits(build.op(AluOp::AddF32, {build.load({x, {at(row), at(lane)}, 0}), build.load({bias, {at(lane)}, 0})}),
                  {y, {at(row), at(lane)}, 0});
  build.finish("map");
  grid::CompileReport report;
  const Expected<Image> image = grid::compile(graph, *loadMachine("tsp-small"), {}, report);
  ASSERT_TRUE(image) << image.error();
  unsigned latches = 0;
  std::map<unsigned, uint64_t> loaded; // queue -> cycle of a Latch whose use comes next
  for (const Instruction &i : image->instructions[0]) {
    if (const auto at = loaded.find(i.queue); at != loaded.end()) {
      EXPECT_EQ(i.cycle, at->second + 1);
      loaded.erase(at);
    }
    if (i.opcode == Opcode::Latch)
      loaded[i.queue] = i.cycle, ++latches;
  }
  EXPECT_GE(latches, 2u); // one for each lane tile
}

TEST(Epilogue, OfMoreOperandsThanAHemisphereHasStreamsCountsThem) {
  KernelGraph graph;
  const std::vector<int64_t> shape = {64, 32};
  const unsigned x = addTensor(graph, "x", shape, ElementType::Fp32, 1, TensorRole::Input),
                 y = addTensor(graph, "y", shape, ElementType::Fp32, 1, TensorRole::Output);
  KernelBuilder build(graph);
  const unsigned row = build.loop(shape[0]), lane = build.loop(shape[1]);
  const auto load = [&](unsigned tensor) { return build.load({tensor, {at(row), at(lane)}, 0}); };
  unsigned value = load(x);
  for (int n = 0; n < 8; ++n)
    value = build.op(AluOp::AddF32,
                     {value, load(addConstant(graph, "c" + std::to_string(n), shape,
                                              ElementType::Fp32, 1,
                                              std::vector<float>(64 * 32, float(n))))});
  build.storeBits(value, {y, {at(row), at(lane)}, 0});
  build.finish("chain");
  EXPECT_EQ(epilogueNeeds(graph.kernels[0], graph, *loadMachine("tsp-v1")).streams, 9 * 4u);
}

} // namespace
