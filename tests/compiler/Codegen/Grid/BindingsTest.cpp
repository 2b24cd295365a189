// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does the host find every element of inputs and outputs: in the tile that holds its lane, on the PE that has written it?
#include "TestMachine.h"
#include "tests/contract/GridRun.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"

#include <gmock/gmock.h>

using namespace millrace;
using namespace millrace::forms;

namespace {

Image compiled(const KernelGraph &graph, const Machine &machine) {
  grid::CompileReport report;
  Expected<Image> image = grid::compile(graph, machine, {}, report);
  EXPECT_TRUE(image) << (image ? "" : image.error());
  return image ? *image : Image{};
}

const Binding &bindingOf(const Image &image, const std::string &name) {
  for (const Binding &b : image.bindings)
    if (b.name == name)
      return b;
  ADD_FAILURE() << "no binding " << name;
  return image.bindings.front();
}

/// y = max(x, 0), x of `shape` as the host loops say.
KernelGraph rectified(std::vector<int64_t> shape, std::vector<int64_t> hostShape, std::vector<HostLoop> loops,
                      std::vector<int64_t> start = {}) {
  KernelGraph graph;
  const unsigned lane = unsigned(shape.size()) - 1;
  const unsigned x = addTensor(graph, "x", shape, ElementType::Fp16, lane, TensorRole::Input),
                 y = addTensor(graph, "y", shape, ElementType::Fp16, lane, TensorRole::Output);
  graph.tensors[x].hostStart = start.empty() ? std::vector<int64_t>(hostShape.size(), 0) : start;
  graph.tensors[x].hostShape = std::move(hostShape);
  graph.tensors[x].hostLoops = std::move(loops);
  KernelBuilder build(graph);
  Access from{x, {}, 0}, to{y, {}, 0};
  for (int64_t extent : shape) {
    const unsigned loop = build.loop(extent);
    from.index.push_back(at(loop));
    to.index.push_back(at(loop));
  }
  build.store(build.op(AluOp::MaxF32, {build.load(from), build.constant(0)}), to);
  build.finish("rectified");
  return graph;
}

/// Runs the graph on values in the host's order and holds it against its evaluation.
void expectRight(const KernelGraph &graph) {
  const Machine machine = *loadMachine("tsp-small");
  int64_t count = 1;
  for (int64_t extent : graph.tensors[0].hostShape)
    count *= extent;
  const std::map<unsigned, TensorBytes> inputs = {{0, encodeAll(ElementType::Fp16, randomValues(size_t(count), 5))}};
  const test::GridRun run = test::runOnGrid(graph, machine, inputs);
  ASSERT_EQ(run.error, "");
  EXPECT_FALSE(run.simulated.violation) << run.simulated.violation->describe();
  EXPECT_EQ(test::distanceFromReference(graph, run, inputs), 0);
}

} // namespace

TEST(HostLoops, OfLanesThatATileCutsWithinAnIteration) {
  // 48 lanes of which a vector holds 32: steps of 12 and of 8 lanes, forwards and backwards.
  expectRight(rectified({4, 48}, {4, 4, 12}, {{4, 0, 1, 0, 1}, {4, 1, 12, 1, 1}, {12, 1, 1, 2, 1}}));
  expectRight(rectified({4, 48}, {4, 6, 8}, {{4, 0, 1, 0, 1}, {6, 1, 8, 1, 1}, {8, 1, 1, 2, 1}}));
  expectRight(rectified({4, 48}, {4, 4, 12}, {{4, 0, 1, 0, 1}, {4, 1, 12, 1, -1}, {12, 1, 1, 2, 1}}, {0, 3, 0}));
  expectRight(rectified({4, 48}, {4, 2, 2, 12}, {{4, 0, 1, 0, 1}, {2, 1, 24, 1, 1}, {2, 1, 12, 2, 1}, {12, 1, 1, 3, 1}}));
}

TEST(HostLoops, OfOneLaneThatNoLoopMoves) { expectRight(rectified({6, 1}, {6}, {{6, 0, 1, 0, 1}})); }

TEST(Outputs, AreReadInWholeRunsFromThePeThatWroteThem) {
  const KernelGraph graph = buildMatmul({.m = 30, .k = 32, .n = 32});
  const Machine machine = test::testMachine(2);
  EXPECT_LE(bindingOf(compiled(graph, machine), "y").placements.size(), 2u) << "a hemisphere writes half of the rows";
  // What weights are made of lies on every PE, of which each has written a part.
  KernelGraph attention = buildAttention(30, 24, 32, false);
  for (Tensor &tensor : attention.tensors)
    if (tensor.name == "k")
      tensor.role = TensorRole::Output;
  const Image image = compiled(
      attention, *loadMachine("tsp-small", {"fabric.topology=ring", "fabric.rows=1", "fabric.columns=3", "c2c.ports=2"}));
  for (const char *name : {"k", "y"}) {
    const Binding &binding = bindingOf(image, name);
    std::vector<unsigned> times(30 * 32);
    for (const Placement &p : binding.placements)
      test::forEachElement(binding, p, [&](int64_t element, uint32_t, size_t) { ++times[size_t(element)]; });
    EXPECT_THAT(times, testing::Each(1u)) << name;
  }
}

TEST(Indices, AreAddressesWhoseBytesLieInLanes) {
  const KernelGraph graph = buildEmbedding({.tokens = 20, .rows = 90, .width = 40});
  const Image image = compiled(graph, test::testMachine(2));
  const Binding &ids = bindingOf(image, "ids");
  ASSERT_FALSE(ids.placements.empty());
  for (const Placement &p : ids.placements) {
    EXPECT_TRUE(p.bytesInLanes);
    EXPECT_EQ(p.slices.size(), 1u);
    EXPECT_EQ(p.rows, 90u);
  }
}
