// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/Transforms/ExpandMath.h"

#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace millrace::tile {

using namespace mlir;

namespace {

Value powerOfTwo(Value exponent, OpBuilder &builder) {
  const Location place = exponent.getLoc();
  auto tile = dyn_cast<VectorType>(exponent.getType());
  if (!tile)
    return hopper::Exp2Op::create(builder, place, exponent);
  SmallVector<Value> powers;
  for (Value each : vector::ToElementsOp::create(builder, place, exponent).getResults())
    powers.push_back(hopper::Exp2Op::create(builder, place, each));
  return vector::FromElementsOp::create(builder, place, tile, powers);
}

/// e^x of fp32 by the one instruction that a GPU has for powers, that of 2. Its exponent is
/// rounded, and what that leaves out, r, is made up for: e^x = 2^e (1 + r ln 2). Relative error:
/// 2^-22 of the instruction and 2^-23 of roundings, for all x. Infinities, NaN and what overflows
/// are as IEEE 754 has them; what is below the least normal number is 0.
struct ExpandExponential : OpRewritePattern<math::ExpOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::ExpOp exp, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(exp.getType()).isF32())
      return failure();
    const Location place = exp.getLoc();
    const auto constant = [&](float value) -> Value {
      TypedAttr number = rewriter.getF32FloatAttr(value);
      if (auto tile = dyn_cast<VectorType>(exp.getType()))
        number = SplatElementsAttr::get(tile, Attribute(number));
      return arith::ConstantOp::create(rewriter, place, number);
    };
    // log2 e as the sum of two numbers; all the power overflows from 128 on, as infinity does.
    Value high = constant(0x1.715476p+0f), low = constant(0x1.4ae0cp-26f), one = constant(1);
    Value x = arith::MinimumFOp::create(rewriter, place, exp.getOperand(), constant(128));
    Value exponent = arith::MulFOp::create(rewriter, place, x, high);
    Value negated = arith::NegFOp::create(rewriter, place, exponent);
    Value rest = math::FmaOp::create(rewriter, place, x, high, negated);
    rest = math::FmaOp::create(rewriter, place, x, low, rest);
    Value factor = math::FmaOp::create(rewriter, place, rest, constant(0x1.62e43p-1f), one);
    Value power = powerOfTwo(exponent, rewriter);
    Value result = arith::MulFOp::create(rewriter, place, power, factor);
    Value isTiny = arith::CmpFOp::create(rewriter, place, arith::CmpFPredicate::OLT,
                                         exp.getOperand(), constant(-87.33654f));
    rewriter.replaceOpWithNewOp<arith::SelectOp>(exp, isTiny, constant(0), result);
    return success();
  }
};

/// 2^x of fp32 is the instruction itself: a relative error of 2^-22, and 0 below the least normal
/// number.
struct ExpandPowerOfTwo : OpRewritePattern<math::Exp2Op> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::Exp2Op exp, PatternRewriter &rewriter) const override {
    if (!getElementTypeOrSelf(exp.getType()).isF32())
      return failure();
    rewriter.replaceOp(exp, powerOfTwo(exp.getOperand(), rewriter));
    return success();
  }
};

} // namespace

LogicalResult expandMath(Operation *kernel) {
  RewritePatternSet patterns(kernel->getContext());
  patterns.add<ExpandExponential>(kernel->getContext());
  patterns.add<ExpandPowerOfTwo>(kernel->getContext(), /*benefit=*/2); // before upstream's
  math::populateExpansionPatterns(
      patterns, {"tan", "sinh", "cosh", "asinh", "acosh", "atanh", "powf", "fpowi", "exp2"});
  populateMathPolynomialApproximationPatterns(patterns, [](StringRef name) {
    return llvm::is_contained({"math.atan", "math.atan2", "math.tanh", "math.log", "math.log2",
                               "math.log1p", "math.erf", "math.erfc", "math.asin", "math.acos",
                               "math.expm1", "math.cbrt", "math.sin", "math.cos"},
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
