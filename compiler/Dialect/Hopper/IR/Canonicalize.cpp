// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fences and waits that a neighbour makes needless.
#include "compiler/Dialect/Hopper/IR/Hopper.h"

namespace millrace::hopper {

using namespace mlir;

namespace {

/// A fence directly after the same fence orders nothing more.
template <class Fence> LogicalResult eraseRepeated(Fence fence, PatternRewriter &rewriter) {
  if (!isa_and_nonnull<Fence>(fence->getPrevNode()))
    return failure();
  rewriter.eraseOp(fence);
  return success();
}

} // namespace

LogicalResult FenceMbarrierInitOp::canonicalize(FenceMbarrierInitOp op, PatternRewriter &rewriter) {
  return eraseRepeated(op, rewriter);
}

LogicalResult FenceAsyncOp::canonicalize(FenceAsyncOp op, PatternRewriter &rewriter) {
  return eraseRepeated(op, rewriter);
}

/// A wait directly after one that leaves as few groups, and waits for as much of them.
LogicalResult TmaStoreWaitOp::canonicalize(TmaStoreWaitOp op, PatternRewriter &rewriter) {
  auto before = dyn_cast_or_null<TmaStoreWaitOp>(op->getPrevNode());
  if (!before || before.getGroups() > op.getGroups() || (before.getRead() && !op.getRead()))
    return failure();
  rewriter.eraseOp(op);
  return success();
}

/// A fence of accumulators that come directly from a fence, and from nothing between.
LogicalResult WgmmaFenceOp::canonicalize(WgmmaFenceOp op, PatternRewriter &rewriter) {
  auto before = dyn_cast_or_null<WgmmaFenceOp>(op->getPrevNode());
  if (!before || !llvm::all_of(op.getAccumulators(), [&](Value value) {
        return value.getDefiningOp() == before.getOperation();
      }))
    return failure();
  rewriter.replaceOp(op, op.getAccumulators());
  return success();
}

} // namespace millrace::hopper
