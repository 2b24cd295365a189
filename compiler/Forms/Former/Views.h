// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Views of tensors at the tensor level: transpositions, reshapes, slices.
#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace millrace::forms {

/// Elements from which on a part of a dimension may lie along lanes of its own.
constexpr int64_t kLongPart = 8;

/// The shape without its dimensions of extent 1.
llvm::SmallVector<int64_t> withoutOnes(llvm::ArrayRef<int64_t> shape);

/// The same elements in a shape of which, dimensions of extent 1 aside, each dimension is some
/// neighbours of the value's together, or each of the value's some of it.
mlir::Value reshaped(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value,
                     llvm::ArrayRef<int64_t> shape);

/// The same lanes, in rows that the dimensions of `like` count but its last.
mlir::Value asRows(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value,
                   mlir::RankedTensorType like);

/// The same view (a transposition, a reshape, a slice) of another tensor.
mlir::Value viewOf(mlir::OpBuilder &builder, mlir::Operation *view, mlir::Value source);

/// The value padded with `scalar` before and behind along one dimension.
mlir::Value padAlong(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value input, unsigned dim,
                     int64_t low, int64_t high, mlir::Value scalar);

} // namespace millrace::forms
