// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Terms of a trace as code of a kernel of the tile level.
#pragma once

#include "compiler/Codegen/Gpu/Attention/Trace.h"

#include "mlir/IR/Builders.h"

namespace millrace::gpu {

/// Writes terms without reductions: what is one number for all lanes stays a scalar (rank 0), what
/// rows have in common is one per lane (rank 1), else it is a row per lane (rank 2).
class TermWriter {
public:
  /// `product`: what a term of that kind is.
  explicit TermWriter(mlir::Value product) : product(product) {}
  virtual ~TermWriter() = default;

  mlir::Value write(const Term &term);
  /// The value with a row per lane, or the other ranks.
  mlir::Value promoted(mlir::Value value, unsigned rank);

protected:
  virtual mlir::OpBuilder &builder() = 0;
  /// Of rank 1 or 2.
  virtual mlir::VectorType tileType(mlir::Type element, unsigned rank) = 0;
  /// The element that a leaf is, as it lies in memory: a truth is an i8.
  virtual mlir::Value load(const Term &leaf) = 0;
  /// The number whose digits the loops are, of the trace: an index, or a tile of i32 or indices.
  virtual mlir::Value index(llvm::ArrayRef<unsigned> loops) = 0;

private:
  mlir::Value make(const Term &term);
  mlir::Value apply(const Term &term);
  mlir::Type shaped(mlir::Type element, unsigned rank);

  mlir::Value product;
  llvm::DenseMap<const Term *, mlir::Value> written;
};

/// 0 of a scalar, 1 of an element per lane, 2 of a row per lane.
unsigned rankOf(mlir::Value value);

} // namespace millrace::gpu
