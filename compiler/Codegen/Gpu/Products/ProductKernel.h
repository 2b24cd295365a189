// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A found product as one kernel of the tile level.
#pragma once

#include "compiler/Codegen/Gpu/Products/FindProduct.h"
#include "compiler/Codegen/Gpu/Tuning/TuningTable.h"
#include "compiler/Dialect/Tile/IR/Tile.h"

namespace millrace::gpu {

/// Most rows and columns of the result that a program has, and products that it adds up at a time.
struct ProductSchedule {
  int64_t rows = 64, columns = 64, depth = 32;

  /// That of the table for such a product. `isStaged`: one that TMA loads and warpgroups multiply,
  /// on a chip that has them; without an entry of the table the one whose estimate is least.
  static ProductSchedule choose(const FoundProduct &found, const TuningTable &table, bool isStaged);
};

/// A product as the tuning table has it.
KernelKind kindOf(const FoundProduct &found, bool isStaged);

/// Its arguments are the tensors that it reads, in the order of `read`, then the result.
struct ProductKernel {
  tile::KernelOp kernel;
  llvm::SmallVector<mlir::Value> read; ///< tensors
};

/// Builds it at the builder's place. A program has a tile of rows and columns for one point of the
/// outer loops; sums stay in registers, what follows them works there, and each element of the
/// result is written once. Operands are converted as they are read: those of rows by the warp that
/// has them, those of columns by every warp. `schedule`: rows a multiple of 32, columns of 8, depth
/// of 16. Programs are numbered in groups of rows, column by column, so that those which run at a
/// time share what they read.
ProductKernel buildProduct(const FoundProduct &found, const ProductSchedule &schedule,
                           mlir::OpBuilder &builder, llvm::StringRef name);

/// With a schedule for warpgroups if the chip has them and TMA can load its operands, else with the
/// table's.
ProductKernel buildProduct(const FoundProduct &found, const TuningTable &table,
                           mlir::OpBuilder &builder, llvm::StringRef name);

} // namespace millrace::gpu
