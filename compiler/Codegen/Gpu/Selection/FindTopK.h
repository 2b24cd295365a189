// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The greatest or least elements of rows and where they stand, at the tensor level: found by what
// is compared and chosen, in rounds, by counting who is before whom, or in one pass with indices.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <vector>

namespace millrace::gpu {

/// The k first elements of each row of `input`, whose last dimension is the row.
struct FoundTopK {
  mlir::Value input;
  int64_t k = 1;
  bool isLargest = true;
  bool lastWins = false; ///< of equal elements the one of the higher index is first
  bool isUnsigned = false;
  /// Tensors of all k along a last dimension, or of one each, without it; null: there is none.
  mlir::Value allValues, allPlaces;
  llvm::SmallVector<mlir::Value> values, places;
  llvm::SmallVector<mlir::Operation *> operations; ///< of linalg and tensor, views aside

  int64_t columns() const {
    return mlir::cast<mlir::RankedTensorType>(input.getType()).getShape().back();
  }
};

/// Makes the numbers that the choice compares places with computed ones, so that a function that
/// holds it alone shows them, and large constants do not travel. Returns what was added.
llvm::SmallVector<mlir::Operation *> computeNumbers(FoundTopK &found);

/// All in a function, each operation in one at most.
std::vector<FoundTopK> findTopK(mlir::func::FuncOp function);

} // namespace millrace::gpu
