// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Forms of operations on the rows of a tensor, along its last dimension, of which choices are made:
// maxima, maps, numbers that count up.
#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <optional>

namespace millrace::gpu {

/// A maximum or minimum of rows along their last dimension.
struct Extreme {
  mlir::linalg::LinalgOp op;
  bool isMaximum = true, isUnsigned = false;
  mlir::Value of() { return op.getDpsInputOperand(0)->get(); }
  mlir::Value result() { return op->getResult(0); }
};
/// The operation as one, if it is.
std::optional<Extreme> extremeOf(mlir::Operation *op);
/// Whether nothing is worse than the value.
bool isWorst(mlir::TypedAttr value, const Extreme &extreme);

mlir::RankedTensorType typeOf(mlir::Value value);
/// The number that fills what a reduction begins with; null if it is none.
mlir::TypedAttr beginOf(mlir::linalg::LinalgOp op);
/// One input, whole, reduced along the last dimension to so many results.
bool reducesRows(mlir::linalg::LinalgOp op, unsigned results);
/// One result of static shape, element by element.
bool isMap(mlir::linalg::LinalgOp op);

/// The attribute is this number, real or integer.
bool isNumber(mlir::TypedAttr value, double number);
/// 0, 1, 2 ... of a tensor of one dimension, a constant or as computeNumbers() writes it.
bool countsUp(mlir::Value value, int64_t count);
/// A constant or computed [i][j]: 1 where j < i, else 0.
bool isLower(mlir::Value value);

} // namespace millrace::gpu
