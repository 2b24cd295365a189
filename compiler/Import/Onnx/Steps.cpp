// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Steps.h"

#include <numeric>

namespace millrace::onnx_import {

using namespace mlir;

std::optional<Steps> stepsOf(ArrayRef<int64_t> shape,
                             llvm::function_ref<int64_t(int64_t)> position) {
  Steps steps{position(0), {}};
  const int64_t count = productOf(shape);
  int64_t pitch = count;
  for (int64_t extent : shape) {
    pitch /= extent;
    steps.by.push_back(extent > 1 ? position(pitch) - steps.first : 0);
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = steps.first, rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d])
      at += steps.by[d] * (rest % shape[d]);
    if (position(i) != at)
      return std::nullopt;
  }
  return steps;
}

Taken takenBy(const Steps &steps, ArrayRef<int64_t> shape, unsigned firstLoop, OpBuilder &builder) {
  Taken taken;
  taken.offset = steps.first;
  int64_t last = steps.first, stride = 0;
  for (auto [step, extent] : llvm::zip_equal(steps.by, shape)) {
    (step < 0 ? taken.offset : last) += step * (extent - 1);
    stride = std::gcd(stride, step);
  }
  taken.at = builder.getAffineConstantExpr(0);
  if (stride == 0) { // one element, for all points
    taken.isForward = productOf(shape) == 1;
    return taken;
  }
  taken.stride = stride;
  taken.size = (last - taken.offset) / stride + 1;
  unsigned moving = 0;
  for (auto [d, step] : llvm::enumerate(steps.by)) {
    if (step != 0)
      taken.at = taken.at + builder.getAffineDimExpr(firstLoop + unsigned(d)) * (step / stride);
    moving += step != 0;
  }
  taken.at = taken.at + (steps.first - taken.offset) / stride;
  taken.isForward = moving == 1 && steps.first == taken.offset && taken.size == productOf(shape);
  return taken;
}

std::optional<SmallVector<Run>> fewRuns(ArrayRef<int64_t> positions) {
  constexpr size_t kMost = 8;
  SmallVector<Run> runs;
  for (size_t i = 0; i < positions.size(); i += size_t(runs.back().size)) {
    if (runs.size() == kMost)
      return std::nullopt;
    Run run{positions[i], 1, 1};
    // Two alone are a run only as neighbours: any two step evenly.
    const size_t left = positions.size() - i;
    if (left > 1)
      run.step = positions[i + 1] - positions[i];
    const bool isRun =
        run.step == 1 || (left > 2 && positions[i + 2] - positions[i + 1] == run.step);
    if (!isRun)
      run.step = 1;
    while (isRun && size_t(run.size) < left &&
           positions[i + size_t(run.size)] - positions[i + size_t(run.size) - 1] == run.step)
      ++run.size;
    runs.push_back(run);
  }
  return runs;
}

} // namespace millrace::onnx_import
