// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/Transforms/ExpandMath.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace millrace::tile {

using namespace mlir;

namespace {

/// What NVPTX selects instructions for.
bool isInstruction(Operation *op) {
  return isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::CopySignOp, math::CountLeadingZerosOp,
             math::CountTrailingZerosOp, math::CtPopOp, math::FloorOp, math::FmaOp, math::RoundOp,
             math::RoundEvenOp, math::SqrtOp, math::RsqrtOp, math::TruncOp, math::IsNaNOp,
             math::IsInfOp, math::IsFiniteOp, math::IsNormalOp>(op);
}

} // namespace

LogicalResult expandMath(Operation *kernel) {
  RewritePatternSet patterns(kernel->getContext());
  math::populateExpansionPatterns(
      patterns, {"tan", "sinh", "cosh", "asinh", "acosh", "atanh", "powf", "fpowi", "exp2"});
  populateMathPolynomialApproximationPatterns(patterns, [](StringRef name) {
    return llvm::is_contained({"math.atan", "math.atan2", "math.tanh", "math.log", "math.log2",
                               "math.log1p", "math.erf", "math.erfc", "math.asin", "math.acos",
                               "math.exp", "math.expm1", "math.cbrt", "math.sin", "math.cos"},
                              name);
  });
  if (failed(applyPatternsGreedily(kernel, std::move(patterns))))
    return kernel->emitError("cannot expand its mathematical functions");
  const WalkResult left = kernel->walk([](Operation *op) {
    if (!isa_and_nonnull<math::MathDialect>(op->getDialect()) || isInstruction(op))
      return WalkResult::advance();
    op->emitError() << op->getName() << " of " << getElementTypeOrSelf(op->getResult(0).getType())
                    << " has no instructions on a GPU and no expansion; run it on the host";
    return WalkResult::interrupt();
  });
  return failure(left.wasInterrupted());
}

} // namespace millrace::tile
