// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What one thread of a GPU does of a program whose lanes have rows: tensor cores multiply them.
#pragma once

#include "compiler/Dialect/Tile/Transforms/ThreadCode.h"

namespace millrace::tile {

/// A warp has 16 lanes (of the tile level) with their rows, and a thread of it, number t, has the
/// lanes t / 4 and t / 4 + 8, of their rows columns 2 (t mod 4) and the next of every eight: as the
/// sums of `hopper.mma` lie, and, in pairs, its first operand. So nothing moves between a product,
/// elementwise work, and the next product. Rows are combined by shuffles among four threads. Tables
/// are read from global memory by each warp, where they are multiplied; shared memory is not used.
///
/// A tile of one element per lane is a vector of two, with the same in four threads; one of rows a
/// vector of half a row's elements: for eight columns two of the first lane, then two of the other.
class FragmentCode : public ThreadCode {
public:
  static constexpr unsigned kLanes = 2, kWarpRows = 16;

  FragmentCode(mlir::OpBuilder &builder, KernelOp kernel) : ThreadCode(builder, kernel, kLanes) {}

protected:
  mlir::Value laneNumber(mlir::Location place, unsigned lane) override;
  mlir::Value writesLanes(mlir::Location place) override;
  mlir::Value loadTogether(LoadOp) override { return {}; }
  bool storeTogether(StoreOp) override { return false; }
  int64_t elementsOfRows(int64_t columns) const override {
    return (window.count ? window.count : columns) / 2;
  }
  mlir::Value writeRows(mlir::Operation *op) override;
  mlir::Value threadOf(mlir::Location place, unsigned shift, unsigned mask);
  virtual mlir::Value dot(DotOp op);

  /// Columns of rows that are written at a time, multiples of eight; count 0: all of them. What is
  /// written meanwhile has rows of one length, and neither reductions nor products.
  struct Window {
    int64_t first = 0, count = 0;
  } window;

private:
  /// A number to add to an element's place in memory, and whether it lies inside of the tensor;
  /// none: it does.
  struct Step {
    mlir::Value offset, isInside;
  };
  struct Memory {
    mlir::Value tensor;
    mlir::MemRefType type;
    mlir::SmallVector<int64_t> strides;
    int64_t offset = 0;
  };
  Memory memoryOf(mlir::Value tensor);
  mlir::Value index(mlir::Location place, int64_t n);
  /// The first of the thread's two neighbouring columns.
  mlir::Value firstColumn(mlir::Location place);
  /// Elements from the tensor's first to the one at the indices, but for dimensions `without`.
  /// `lane`: which of the thread's.
  mlir::Value placeOf(const Memory &memory, mlir::OperandRange indices, unsigned lane,
                      mlir::ArrayRef<unsigned> without, mlir::Value isOn);
  /// `distance` behind index `first` of a dimension, of `total` elements that are read from there.
  Step stepTo(const Memory &memory, mlir::Value first, mlir::Value own, int64_t distance,
              unsigned dimension, int64_t total);
  /// Whether pairs of elements from `first` on are whole accesses.
  bool arePairs(const Memory &memory, mlir::OperandRange indices, unsigned along);
  mlir::Value pointer(const Memory &memory, mlir::Value at, mlir::Value more, mlir::Type type);
  /// What `make` reads, or 0. `isGuarded`: outside nothing is read, not something else.
  mlir::Value whereInside(mlir::Location place, mlir::Value isInside, bool isGuarded,
                          mlir::Type type, llvm::function_ref<mlir::Value()> make);
  mlir::Value both(mlir::Location place, mlir::Value x, mlir::Value y);

  /// The window of rows of so many columns, in eights: the first and the one behind the last.
  std::pair<int64_t, int64_t> eightsOf(int64_t columns) const {
    return window.count ? std::pair(window.first / 8, (window.first + window.count) / 8)
                        : std::pair(int64_t(0), columns / 8);
  }

  mlir::Value columns(ColumnsOp op);
  mlir::Value spread(SpreadOp op);
  mlir::Value reduceRows(ReduceRowsOp op);
  mlir::Value loadRows(LoadRowsOp op);
  void storeRows(StoreRowsOp op);
  /// Words of `hopper.mma`'s second operand: the thread's two elements of eight rows of a table and
  /// eight columns.
  class TableWords;
  class LoadedWords;
  class ComputedWords;
  std::unique_ptr<TableWords> wordsOf(mlir::Operation *table);
  mlir::Value pairOf(mlir::Location place, mlir::Value low, mlir::Value high);
};

} // namespace millrace::tile
