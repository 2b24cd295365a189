// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which operands of a kernel's products TMA can bring to shared memory ahead of them.
#pragma once

#include "compiler/Dialect/Tile/IR/Tile.h"
#include "compiler/Dialect/Tile/Transforms/LaunchMaps.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

#include <optional>

namespace millrace::tile {

/// An attribute of kernels: how many stages a ring has at most; without it as many as fit.
constexpr const char *kStagesAttribute = "tile.stages";

/// An operand of a product in shared memory: `rows` (n, or lanes) of `depth` (k) elements. It lies
/// in panels of 128 bytes: of 64 places along k of every row, or, where rows are neighbours in
/// memory, of 64 rows at every k.
struct StagedOperand {
  mlir::Operation *load = nullptr; ///< load_table or load_rows
  int64_t rows = 0, depth = 0;
  bool isTransposed = false; ///< rows are neighbours in memory
  unsigned map = 0;          ///< of the plan's
  unsigned rowDim = 0, depthDim = 0;
  unsigned offset = 0; ///< bytes from where the stage begins

  int64_t panels() const { return ((isTransposed ? rows : depth) + 63) / 64; }
  /// Rows of 128 bytes that a panel has, one box of TMA.
  int64_t panelRows() const { return isTransposed ? depth : rows; }
  unsigned bytes() const { return unsigned(panels() * panelRows() * 128); }
  unsigned innerDim() const { return isTransposed ? rowDim : depthDim; }
  unsigned outerRowDim() const { return isTransposed ? depthDim : rowDim; }
};

/// Rows that are the same in every pass of the loop: their threads write them to shared memory
/// before it. In registers they may not stay: ptxas 13.0 gave those of a wgmma's first operand to
/// another one's in the loop, and did not restore them (64 x 128 queries beside weights of 128
/// keys).
struct KeptRows {
  mlir::Value rows;
  int64_t depth = 0;
  unsigned offset = 0; ///< bytes from the begin of shared memory
};

/// What one product waits for; with its operands it goes around the ring.
struct StagedProduct {
  DotOp dot;
  mlir::SmallVector<unsigned> operands; ///< numbers of the plan's that it is the first to read
};

/// A kernel whose products are those of one loop's body, by warpgroups of 64 lanes each, while one
/// more warpgroup loads. A stage of the ring holds the operands of one pass of the body.
struct StagingPlan {
  mlir::SmallVector<StagedOperand> operands; ///< in the order of their loads
  mlir::SmallVector<StagedProduct> products; ///< in their order
  mlir::SmallVector<KeptRows> kept;
  mlir::SmallVector<LaunchMap> maps;
  mlir::SmallVector<mlir::scf::ForOp> loops; ///< around the products, the outermost first
  unsigned consumers = 0;                    ///< warpgroups that multiply
  unsigned stages = 0, stageBytes = 0;
  unsigned ring = 0; ///< where it begins, behind the kept rows
  /// The value that the loop carries is the sum of its only product and nothing else: then the
  /// next pass begins before the last one's product is complete.
  std::optional<unsigned> carriedSum;
  /// The first of several products depends on nothing that the loop carries: it is begun with the
  /// last one of the pass before, so that what lies between them is computed without a product.
  /// Its operands are loaded once more than the loop passes, from behind the end.
  bool isFirstAhead = false;

  /// Addresses of barriers in shared memory.
  unsigned full(size_t product) const {
    return ring + stages * (stageBytes + 16 * unsigned(product));
  }
  unsigned empty(size_t product) const { return full(product) + 8 * stages; }
  unsigned sharedBytes() const { return full(products.size()); }
  const StagedOperand *find(mlir::Operation *load) const;
  const KeptRows *find(mlir::Value rows) const;
  size_t numberOf(DotOp dot) const; ///< of its product
};

/// Indices of the operand's first element, one for each dimension; null: 0.
mlir::SmallVector<mlir::Value> placesOf(mlir::Operation *load);

/// Nothing if TMA or the loop does not fit: computed tables, strides that are no multiple of 16
/// bytes, lanes that are no warpgroups, products in several loops, fewer than two stages.
std::optional<StagingPlan> planStaging(KernelOp kernel);

} // namespace millrace::tile
