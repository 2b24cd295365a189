// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products that move or share lanes, at the tensor level.
#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <span>

namespace millrace::forms {

/// result[..., to] = sum over from of rows[..., from] * matrix[from * extent + to]: the last
/// dimension of `rows`, of f32, by a constant matrix that becomes `extent` lanes. The constant is
/// called `name`. Rows of each index of the dimensions `by` have a matrix of their own.
mlir::linalg::GenericOp multiplyLanes(mlir::OpBuilder &builder, mlir::Location loc,
                                      mlir::Value rows, std::span<const float> matrix,
                                      int64_t extent, mlir::StringRef name,
                                      mlir::ArrayRef<unsigned> by = {});

/// Whether it is what something computes, by way of views perhaps: finite where all that is given
/// is.
bool isComputed(mlir::Value value);

/// Whether it is a map of one value, element by element, with constants that are the same for all.
bool isMapOfElements(mlir::Operation *op);

/// The same map of a value of any shape.
mlir::Value mapAgain(mlir::OpBuilder &builder, mlir::linalg::GenericOp map, mlir::Value of);

} // namespace millrace::forms
