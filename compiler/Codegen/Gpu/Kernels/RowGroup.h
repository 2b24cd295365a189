// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations of linalg that work row by row, as one computation: what every element of a row and
// every number of a row is made of. Buffers between them are looked through.
#pragma once

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include "llvm/ADT/MapVector.h"

#include <deque>
#include <optional>

namespace millrace::gpu {

/// A loop that all operations of a group share; of columns: one over the elements of a row.
struct RowLoop {
  int64_t size = 1;
  bool isColumn = false;
};

/// Element `offset` + the sum of strides x loops of a contiguous memory, whatever views lie
/// between.
struct RowAccess {
  mlir::Value root;
  int64_t offset = 0;
  llvm::SmallVector<int64_t> strides; ///< by loop of the group

  bool operator==(const RowAccess &) const = default;
};

/// A value for each row, or for each element of a row.
struct RowNode {
  enum class Kind : uint8_t { Load, Apply, Reduce, Index };
  Kind kind = Kind::Apply;
  RowAccess access;              ///< of a load
  mlir::Operation *op = nullptr; ///< of an application: constant or elementwise, with one result
  llvm::SmallVector<RowNode *> operands; ///< of a reduction: what is combined, then with what
  mlir::arith::AtomicRMWKind combine = mlir::arith::AtomicRMWKind::addf;
  size_t loop = 0;         ///< of an index
  bool hasColumns = false; ///< differs along a row
  unsigned level = 0;      ///< reductions below each other that it needs
  mlir::Type type;
};

/// The computation of a set of operations in the order of their block.
class RowGroup {
public:
  /// Nothing if the operations have no common rows, or cannot be done row by row in one launch:
  /// memory that is read or written in two ways, a body that is not elementwise, or a reduction
  /// that is no single combination. At least one of them reduces.
  static std::optional<RowGroup> create(llvm::ArrayRef<mlir::linalg::LinalgOp> members);

  /// Whether a reduction gives a group: its inputs are rows that share no elements, or vectors and
  /// numbers for all rows; matrix products and windows are none.
  static bool isSeed(mlir::linalg::LinalgOp op);

  llvm::SmallVector<RowLoop> loops;
  std::deque<RowNode> nodes;
  /// What each memory that the group writes holds at its end, and where.
  llvm::MapVector<mlir::Value, std::pair<RowAccess, RowNode *>> written;
  llvm::MapVector<mlir::Value, llvm::SmallVector<RowAccess>> read; ///< as it was before

  int64_t rows() const { return count(false); }
  int64_t columns() const { return count(true); }

private:
  friend class RowReader;
  int64_t count(bool isColumn) const;
  /// Makes one loop of two that all accesses step through as one.
  void mergeLoops();
};

/// The memory behind views of it, which no other overlaps: an allocation, an argument of a public
/// function or a constant. Nothing for others.
mlir::Value rootOf(mlir::Value memory);

} // namespace millrace::gpu
