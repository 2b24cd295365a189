// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Forms/KernelBuilder.h"

namespace millrace::test {

/// A mean in every lane, and what is left of the mean square: two sums, of which the second reads
/// the first.
inline forms::KernelGraph buildMeanAndVariance(int64_t rows, int64_t width,
                                               ElementType type = ElementType::Bf16) {
  using namespace forms;
  KernelGraph graph;
  const std::vector<int64_t> shape = {rows, width};
  const unsigned x = addTensor(graph, "x", shape, type, 1, TensorRole::Input),
                 square = addTensor(graph, "square", shape, type, 1, TensorRole::Input),
                 mean = addTensor(graph, "mean", shape, ElementType::Fp32, 1),
                 y = addTensor(graph, "y", shape, ElementType::Fp32, 1, TensorRole::Output),
                 ones = addSplat(graph, "ones", {width, width}, type, 1, 1);
  for (const bool isMean : {true, false}) {
    KernelBuilder build(graph);
    const unsigned m = build.loop(rows), n = build.loop(width),
                   k = build.loop(width, LoopKind::Contracted);
    build.term({isMean ? x : square, {at(m), at(k)}, 0}, {ones, {at(n), at(k)}, 0}, 0);
    unsigned value =
        build.op(AluOp::MulF32, {build.accumulator(), build.constant(1 / float(width))});
    if (!isMean) {
      const unsigned its = build.load({mean, {at(m), at(n)}, 0});
      const unsigned rest = build.op(AluOp::SubF32, {value, build.op(AluOp::MulF32, {its, its})});
      value = build.op(AluOp::MulF32, {rest, build.load({x, {at(m), at(n)}, 0})});
    }
    build.store(value, {isMean ? mean : y, {at(m), at(n)}, 0});
    build.finish(isMean ? "mean" : "y");
  }
  return graph;
}

} // namespace millrace::test
