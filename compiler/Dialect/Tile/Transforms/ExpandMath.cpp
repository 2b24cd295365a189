// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/Transforms/ExpandMath.h"

#include "compiler/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace millrace::tile {

using namespace mlir;

namespace {

/// Upstream's exponential keeps its argument above -87.8 and so never gives 0. What is below the
/// least normal number is 0 here.
void endExponentials(Operation *kernel) {
  kernel->walk([](math::ExpOp exp) {
    if (!getElementTypeOrSelf(exp.getType()).isF32())
      return;
    OpBuilder builder(exp);
    builder.setInsertionPointAfter(exp);
    const auto constant = [&](float value) -> Value {
      TypedAttr number = builder.getF32FloatAttr(value);
      if (auto tile = dyn_cast<VectorType>(exp.getType()))
        number = SplatElementsAttr::get(tile, Attribute(number));
      return arith::ConstantOp::create(builder, exp.getLoc(), number);
    };
    Value isTiny = arith::CmpFOp::create(builder, exp.getLoc(), arith::CmpFPredicate::OLT,
                                         exp.getOperand(), constant(-87.33654f));
    auto ended = arith::SelectOp::create(builder, exp.getLoc(), isTiny, constant(0), exp);
    exp.getResult().replaceAllUsesExcept(ended, ended);
  });
}

} // namespace

LogicalResult expandMath(Operation *kernel) {
  RewritePatternSet patterns(kernel->getContext());
  endExponentials(kernel);
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
    if (!isa_and_nonnull<math::MathDialect>(op->getDialect()) || hopper::hasInstruction(op))
      return WalkResult::advance();
    op->emitError() << op->getName() << " of " << getElementTypeOrSelf(op->getResult(0).getType())
                    << " has no instructions on a GPU and no expansion; run it on the host";
    return WalkResult::interrupt();
  });
  return failure(left.wasInterrupted());
}

} // namespace millrace::tile
