// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles with a row per lane on a CPU: a row is a vector, what is read and multiplied are loops.
#pragma once

#include "compiler/Dialect/Tile/Transforms/LaneCode.h"

namespace millrace::tile {

/// Code of one lane.
class LoopRows : public LaneCode {
public:
  /// `entry`: where memory of the function is allocated.
  LoopRows(mlir::OpBuilder &builder, mlir::Block *entry) : LaneCode(builder, 1), entry(entry) {}

protected:
  int64_t elementsOfRows(int64_t columns) const override { return columns; }
  mlir::Value writeRows(mlir::Operation *op) override;

  mlir::Block *entry;

private:
  mlir::Value index(mlir::Location place, int64_t n);
  /// Memory for a row of the type.
  mlir::Value rowMemory(mlir::Location place, mlir::VectorType row);
  mlir::Value toVector(mlir::Location place, mlir::Value memory, mlir::VectorType row);
  void forEach(mlir::Location place, int64_t count, llvm::function_ref<void(mlir::Value)> body);
  /// The element at the indices and some steps further, or 0 where that is outside.
  mlir::Value loadInside(mlir::Location place, mlir::Value tensor, mlir::OperandRange indices,
                         mlir::ArrayRef<std::pair<unsigned, mlir::Value>> steps, mlir::Value isOn);
  mlir::Value loadRows(LoadRowsOp op);
  void storeRows(StoreRowsOp op);
  mlir::Value tableElement(mlir::Operation *table, mlir::Value n, mlir::Value k);
  mlir::Value dot(DotOp op);
  mlir::Value reduceRows(ReduceRowsOp op);
};

} // namespace millrace::tile
