// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One operation of the tensor level on constants: what it reads, what it costs, what it gives.
#pragma once

#include "compiler/Import/Onnx/FoldBody.h"

namespace millrace::onnx_import {

/// An operation that can be evaluated once the constants of `reads` are known.
class FoldableOp {
public:
  /// Nothing for an operation that cannot be evaluated, whatever it reads.
  static std::optional<FoldableOp> create(mlir::Operation *op);

  llvm::ArrayRef<mlir::Value> reads() const { return tensors; }
  int64_t work() const;
  bool onlyMoves() const; ///< elements of one tensor
  bool isCostly() const;  ///< as FoldBody's, or a concatenation
  std::optional<FoldedTensor> evaluate(ConstantOf constantOf) const;

private:
  mlir::Operation *op = nullptr;
  std::optional<FoldBody> body; ///< of a linalg operation
  llvm::SmallVector<mlir::Value> tensors;
};

} // namespace millrace::onnx_import
