// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constant positions that step evenly through a dimension: reading there is a slice.
#pragma once

#include "compiler/Import/Onnx/TensorBuilder.h"

namespace millrace::onnx_import {

/// Positions first + by[0] * i0 + by[1] * i1 + ... for the indices i of a shape.
struct Steps {
  int64_t first = 0;
  Shape by; ///< 0 where an extent is 1
};

/// What `position(i)` gives for the points of `shape`, row major and not none, if it is such
/// positions.
std::optional<Steps> stepsOf(llvm::ArrayRef<int64_t> shape,
                             llvm::function_ref<int64_t(int64_t)> position);

/// The slice of a dimension that has all positions, and where in it each of them lies.
struct Taken {
  int64_t offset = 0, size = 1, stride = 1;
  mlir::AffineExpr at;   ///< of the loops from the first one on
  bool isForward = true; ///< each of the slice's elements once, in its order
  int64_t last() const { return offset + (size - 1) * stride; }
};
/// `firstLoop`: the loop of the shape's dimension 0.
Taken takenBy(const Steps &steps, llvm::ArrayRef<int64_t> shape, unsigned firstLoop,
              mlir::OpBuilder &builder);

/// Positions first, first + step, ...
struct Run {
  int64_t first = 0, step = 1, size = 1;
};
/// The positions as runs, one after the other; nothing where those are many, or short.
std::optional<llvm::SmallVector<Run>> fewRuns(llvm::ArrayRef<int64_t> positions);

} // namespace millrace::onnx_import
