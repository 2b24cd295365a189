// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program whose lanes have rows on Hopper: one warpgroup loads operands through TMA into a ring
// of stages in shared memory, the others multiply them by wgmma.
#pragma once

#include "compiler/Dialect/Tile/Transforms/FragmentCode.h"
#include "compiler/Dialect/Tile/Transforms/Staging.h"

namespace millrace::tile {

/// Where the ring of stages is: of the loops' iteration.
struct RingPlace {
  mlir::Value stage, parity;
};

/// What both roles share: the plan's loops, which carry the place in the ring.
class RingCode {
public:
  RingCode(mlir::OpBuilder &ring, const StagingPlan &plan, mlir::Location place)
      : ring(ring), plan(plan), place(place) {}

protected:
  mlir::Value constant(int64_t n);
  mlir::Value plus(mlir::Value x, int64_t n);
  mlir::Value plus(mlir::Value x, mlir::Value y);
  mlir::Value times(mlir::Value x, int64_t n);
  mlir::Value barrier(unsigned first, mlir::Value stage) { return plus(times(stage, 8), first); }
  mlir::Value barrier(unsigned first) { return barrier(first, at.stage); }
  mlir::Value isEqual(mlir::Value x, int64_t n);
  /// Runs `body` in the branch that the condition opens.
  void when(mlir::Value condition, llvm::function_ref<void()> body);
  RingPlace next();
  bool isInnermost(mlir::Operation *loop) const { return loop == plan.loops.back(); }

  mlir::OpBuilder &ring;
  const StagingPlan &plan;
  const mlir::Location place;
  RingPlace at;
};

/// A thread of a warpgroup that multiplies. As in FragmentCode, but for the products.
class WarpgroupCode : public FragmentCode, private RingCode {
public:
  WarpgroupCode(mlir::OpBuilder &builder, KernelOp kernel, const StagingPlan &plan)
      : FragmentCode(builder, kernel), RingCode(builder, plan, kernel.getLoc()) {}

  /// The body, from the ring's begin on.
  void writeConsumer();

protected:
  void writeRegions(mlir::Operation *op) override;
  mlir::Value writeRows(mlir::Operation *op) override;
  mlir::Value dot(DotOp op) override;

private:
  /// Where step k of 16 along the depth begins.
  mlir::Value stepOf(const StagedOperand &operand, int64_t k, mlir::ArrayRef<mlir::Value> panels);
  /// Descriptors of the operand's panels, `more` bytes behind where it begins.
  mlir::SmallVector<mlir::Value> panelsOf(const StagedOperand &operand, mlir::Value begin,
                                          mlir::Value more);
  void keepRows();
  /// Operations behind the loop, if they work on the rows of its only result alone: those columns
  /// by columns, so that registers suffice for what lies between the operations.
  mlir::SmallVector<mlir::Operation *> columnwise();
  void writeColumnwise(mlir::ArrayRef<mlir::Operation *> ops);
  /// Waits for the product's operands and begins it: sums in flight, of sums in flight.
  mlir::Value begin(DotOp op, mlir::Value sums);
  /// Gives back what the product read, of a stage.
  void release(size_t product, mlir::Value stage);
  mlir::Value asAccumulator(mlir::Value values);
  mlir::Value fenced(mlir::Value accumulator);
  mlir::Value waitFor(mlir::Value sums);
  void writeCarriedSum(mlir::scf::ForOp loop);
  void writeWithFirstAhead(mlir::scf::ForOp loop);
  mlir::Value beginFirst();
  /// Takes this warpgroup's turn of multiplying, once `after` is computed.
  void takeTurn(mlir::ValueRange after);
  /// Gives the other one its turn.
  void giveTurn();
  /// Runs `body` in each of two warpgroups, with its number.
  void inEach(llvm::function_ref<void(unsigned)> body);
  mlir::SmallVector<mlir::Value> wordsOf(mlir::Value rows);

  // Of a loop whose first product is a pass ahead.
  RingPlace following;     ///< of the next pass
  mlir::Value firstOfNext; ///< its first product
};

/// The thread that loads.
class LoaderCode : public ThreadCode, private RingCode {
public:
  /// `maps`: the kernel's arguments for those of the plan.
  LoaderCode(mlir::OpBuilder &builder, KernelOp kernel, const StagingPlan &plan,
             mlir::ValueRange maps)
      : ThreadCode(builder, kernel, 1), RingCode(builder, plan, kernel.getLoc()), maps(maps) {}

  void writeLoader();

private:
  void writeLoop(size_t level);
  /// What the operands' places need of the loop's body, for its index.
  void writePlaces(mlir::scf::ForOp loop, mlir::Value index);
  void writeWithFirstAhead();
  void load(const StagedProduct &product, size_t number);
  void need(mlir::Value value);

  mlir::SmallVector<mlir::Value> maps;
  llvm::DenseSet<mlir::Operation *> needed; ///< for the operands' places
};

} // namespace millrace::tile
