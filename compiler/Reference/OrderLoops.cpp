// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Reference/Lower.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace millrace::reference {
namespace {

bool lastIndexUses(AffineMap map, unsigned loop) {
  return map.getNumResults() > 0 && map.getResults().back().isFunctionOfDim(loop);
}

/// The parallel loop along the result's last dimension, if an input is contiguous along it too and
/// the operation sums over other loops: innermost, it runs over rows instead of gathering single
/// elements.
std::optional<unsigned> rowLoop(linalg::LinalgOp op) {
  if (op.getNumDpsInits() != 1 || op.getNumReductionLoops() == 0)
    return std::nullopt;
  AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  if (result.getNumResults() == 0)
    return std::nullopt;
  auto last = dyn_cast<AffineDimExpr>(result.getResults().back());
  if (!last)
    return std::nullopt;
  for (OpOperand *input : op.getDpsInputOperands())
    if (lastIndexUses(op.getMatchingIndexingMap(input), last.getPosition()))
      return last.getPosition();
  return std::nullopt;
}

} // namespace

void orderLoops(ModuleOp module) {
  llvm::SmallVector<linalg::LinalgOp> ops;
  module.walk([&](linalg::LinalgOp op) { ops.push_back(op); });
  IRRewriter rewriter(module.getContext());
  for (linalg::LinalgOp op : ops) {
    std::optional<unsigned> row = rowLoop(op);
    if (!row)
      continue;
    rewriter.setInsertionPoint(op);
    FailureOr<linalg::GenericOp> generic =
        isa<linalg::GenericOp>(op) ? FailureOr<linalg::GenericOp>(cast<linalg::GenericOp>(op))
                                   : linalg::generalizeNamedOp(rewriter, op);
    if (failed(generic))
      continue;
    llvm::SmallVector<unsigned> order;
    for (unsigned i = 0; i < generic->getNumLoops(); ++i)
      if (i != *row)
        order.push_back(i);
    order.push_back(*row);
    rewriter.setInsertionPoint(*generic);
    // An order that is a permutation always succeeds.
    (void)linalg::interchangeGenericOp(rewriter, *generic, order);
  }
}

} // namespace millrace::reference
