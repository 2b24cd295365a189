// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Are sums that all lanes share made once, where that is worth a step, with the same values?
#include "compiler/Forms/ShareSums.h"
#include "compiler/Forms/Builders.h"
#include "compiler/Forms/Evaluate.h"

#include "arch/spec/MachineFile.h"

#include "tests/compiler/Forms/Rewritings/MeanAndVariance.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace millrace;
using namespace millrace::forms;

namespace {

Machine machineOf(const std::string &name) {
  Expected<Machine> machine = loadMachine(name);
  EXPECT_TRUE(machine);
  return *machine;
}

void expectSameValues(const KernelGraph &before, const KernelGraph &after) {
  ASSERT_EQ(after.verify(), "");
  const auto inputs = randomInputs(before);
  const auto x = evaluate(before, inputs), y = evaluate(after, inputs);
  ASSERT_TRUE(x && y);
  for (unsigned t = 0; t < before.tensors.size(); ++t)
    for (unsigned u = 0; u < after.tensors.size(); ++u)
      if (before.tensors[t].role == TensorRole::Output &&
          after.tensors[u].name == before.tensors[t].name) {
        EXPECT_EQ(x->at(t), y->at(u)) << before.tensors[t].name;
      }
}

TEST(ShareSums, OfALongNormalisationAreMadeOnceAndReadByEachLaneTile) {
  const KernelGraph before = buildLayerNorm(128, 768);
  KernelGraph after = before;
  EXPECT_EQ(shareSums(after, machineOf("tsp-v1")), 2u); // the mean and the variance
  EXPECT_EQ(after.kernels.size(), before.kernels.size() + 2 * 3);
  const auto sums = [](const KernelGraph &graph) {
    return std::count_if(graph.kernels.begin(), graph.kernels.end(),
                         [](const Kernel &k) { return !k.terms.empty(); });
  };
  EXPECT_EQ(sums(after), sums(before));
  for (const Kernel &kernel : after.kernels)
    if (!kernel.terms.empty()) {
      EXPECT_EQ(kernel.loops[kernel.results.front().access.index.back().terms[0].first].extent,
                320);
    }
  expectSameValues(before, after);
}

TEST(ShareSums, ThatReadASharedSumTakeItFromWhereItIsMade) {
  const KernelGraph before = test::buildMeanAndVariance(128, 768);
  KernelGraph after = before;
  EXPECT_EQ(shareSums(after, machineOf("tsp-v1")), 2u);
  EXPECT_EQ(after.kernels.size(), 2u + 3u) << "the maps that only spread the mean are gone";
  for (const Tensor &tensor : after.tensors)
    EXPECT_NE(tensor.name, "mean");
  expectSameValues(before, after);
}

TEST(ShareSums, StayWhereAResultIsNoLongerThanAVectorOrRowsAreFew) {
  for (const auto &[rows, width] : {std::pair{128, 320}, {1, 330}}) {
    KernelGraph graph = buildLayerNorm(rows, width);
    const KernelGraph before = graph;
    EXPECT_EQ(shareSums(graph, machineOf("tsp-v1")), 0u) << rows << " x " << width;
    EXPECT_EQ(graph, before);
  }
}

TEST(ShareSums, OfEveryLengthKeepTheirValues) {
  for (const int64_t width : {33, 64, 65, 90, 128, 161})
    for (const int64_t rows : {17, 60}) {
      const KernelGraph before = buildLayerNorm(rows, width);
      KernelGraph after = before;
      shareSums(after, machineOf("tsp-small"));
      expectSameValues(before, after);
    }
}

} // namespace
