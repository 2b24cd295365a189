// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What one thread of a GPU does of a program at the hopper level. A program is a CTA, a thread has
// some neighbouring lanes, and lanes meet in shuffles of a warp and then in shared memory.
#pragma once

#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Tile/Transforms/LaneCode.h"

namespace millrace::tile {

class ThreadCode : public LaneCode {
public:
  /// `width`: lanes of a thread.
  ThreadCode(mlir::OpBuilder &builder, KernelOp kernel, unsigned width);

  void writeBody();
  /// That the reductions written so far take.
  unsigned sharedBytes() const;

protected:
  mlir::Value program() override;
  mlir::Value firstLane() override;
  mlir::Value load(mlir::Location place, mlir::Value memory, Indices indices) override;
  void store(mlir::Location place, mlir::Value value, mlir::Value memory, Indices indices) override;
  mlir::Value loadTogether(LoadOp op) override;
  bool storeTogether(StoreOp op) override;
  mlir::Value reduce(ReduceOp op) override;
  int64_t elementsOfRows(int64_t columns) const override { return columns; }
  mlir::Value writeRows(mlir::Operation *) override { return {}; } ///< FragmentCode has them

  mlir::Value number(mlir::Location place, int32_t n);
  mlir::Value toIndex(mlir::Value i32);
  /// The address of an element of the kernel's argument.
  mlir::Value addressOf(mlir::Location place, mlir::Value memory, Indices indices);
  /// As many elements as `type` says; `elements`: what the address is a multiple of, 0 for one with
  /// the alignment of its type.
  mlir::Value loadAs(mlir::Type type, mlir::Location place, mlir::Value memory, Indices indices,
                     unsigned elements);
  void storeAt(mlir::Location place, mlir::Value value, mlir::Value memory, Indices indices,
               unsigned elements);
  /// What another lane of the warp has in a value of up to 64 bits.
  mlir::Value shuffle(mlir::Location place, mlir::Value value, uint32_t mask);

  KernelOp kernel;

private:
  /// Indices of the thread's first lane.
  mlir::SmallVector<mlir::Value> first(mlir::OperandRange indices);
  /// What `make` gives where the first lane's mask is true, else what `other` gives.
  mlir::Value onlyWhere(mlir::Location place, mlir::Value mask,
                        llvm::function_ref<mlir::Value()> make,
                        llvm::function_ref<mlir::Value()> other);
  mlir::SmallVector<mlir::Value> toWords(mlir::Location place, mlir::Value value);
  mlir::Value fromWords(mlir::Location place, mlir::ValueRange words, mlir::Type type);
  mlir::Value acrossWarps(mlir::Location place, mlir::Value share,
                          llvm::function_ref<mlir::Value(mlir::Value, mlir::Value)> combine);

  const unsigned warps;
  unsigned slots = 0; ///< of shared memory, one per reduction across warps
};

} // namespace millrace::tile
