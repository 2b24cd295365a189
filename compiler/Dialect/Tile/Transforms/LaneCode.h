// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What all lowerings of the tile level share: from operations on tiles to operations on the
// elements of some lanes.
#pragma once

#include "compiler/Dialect/Tile/IR/Tile.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace millrace::tile {

/// Writes code for `width` neighbouring lanes of a program: a tile becomes a vector of that many
/// elements, or a scalar if it is one, and a tile with rows one vector of those of the rows'
/// elements that it has. Scalars stay as they are. How memory is reached is said by who derives
/// from it.
class LaneCode {
public:
  LaneCode(mlir::OpBuilder &builder, unsigned width) : builder(builder), width(width) {}
  virtual ~LaneCode() = default;

  /// Writes the operation with everything in its regions, at the builder's place.
  void write(mlir::Operation *op);
  /// What a tile or scalar of the kernel has become.
  mlir::Value lookup(mlir::Value value) const { return mapping.lookup(value); }
  void map(mlir::Value value, mlir::Value written) { mapping.map(value, written); }
  mlir::Type typeOf(mlir::Type type) const;

protected:
  using Indices = mlir::ArrayRef<mlir::Value>;
  /// The program's number and that of the first of the lanes, as index.
  virtual mlir::Value program() = 0;
  virtual mlir::Value firstLane() = 0;
  /// Reads or writes one element of an argument of the kernel; indices are scalars.
  virtual mlir::Value load(mlir::Location place, mlir::Value memory, Indices indices) = 0;
  virtual void store(mlir::Location place, mlir::Value value, mlir::Value memory,
                     Indices indices) = 0;
  /// How many elements of rows of so many it has.
  virtual int64_t elementsOfRows(int64_t columns) const = 0;
  /// A loop or branch, with everything in its regions.
  virtual void writeRegions(mlir::Operation *op);
  /// Operations on tiles with rows, but tables; the result, if it has one.
  virtual mlir::Value writeRows(mlir::Operation *op) = 0;
  /// Number of the lane among the kernel's, of those that it has.
  virtual mlir::Value laneNumber(mlir::Location place, unsigned lane);
  /// Whether it writes tiles of one element per lane: of several threads with the same lanes, one.
  virtual mlir::Value writesLanes(mlir::Location) { return {}; }
  /// Reads or writes all lanes at once where that can be done; whether it was.
  virtual mlir::Value loadTogether(LoadOp) { return {}; }
  virtual bool storeTogether(StoreOp) { return false; }
  virtual mlir::Value reduce(ReduceOp op) = 0;

  /// What the region of a table gives for an element, at the builder's place.
  mlir::Value writeElement(ComputeTableOp table, mlir::Value row, mlir::Value column);
  /// Element `lane` of what a tile has become; a scalar is its own.
  mlir::Value element(mlir::Location place, mlir::Value written, unsigned lane);
  /// The reverse.
  mlir::Value collect(mlir::Location place, mlir::Type tile, mlir::ValueRange elements);

  mlir::OpBuilder &builder;
  const unsigned width;

private:
  mlir::Value writeLoad(LoadOp op);
  void writeStore(StoreOp op);
  mlir::Value writeIota(IotaOp op);
  mlir::SmallVector<mlir::Value> indicesOf(mlir::OperandRange indices, unsigned lane);

  mlir::IRMapping mapping;
};

} // namespace millrace::tile
