// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Reference/Lower.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace millrace::reference {
namespace {

/// True for constants that every number may be divided by.
bool isHarmless(Value divisor) {
  IntegerAttr constant;
  return matchPattern(divisor, m_Constant(&constant)) && !constant.getValue().isZero() &&
         !constant.getValue().isAllOnes();
}

/// Quotients of 0 and (signed) of -1, which the CPU may trap at, are chosen, not divided.
template <class Op, bool isSigned, bool isQuotient> void guard(Op division) {
  Value x = division.getLhs(), y = division.getRhs();
  if (isHarmless(y))
    return;
  ImplicitLocOpBuilder b(division.getLoc(), division);
  auto like = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(b, IntegerAttr::get(y.getType(), value));
  };
  Value zero = like(0), one = like(1);
  Value byZero = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, y, zero);
  Value byMinusOne;
  Value safe = arith::SelectOp::create(b, byZero, one, y);
  if (isSigned) {
    byMinusOne = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, y, like(-1));
    safe = arith::SelectOp::create(b, byMinusOne, one, safe);
  }
  // The remainder of 1 is 0, which is that of -1 too.
  Value result = Op::create(b, x, safe);
  if (isQuotient && isSigned)
    result = arith::SelectOp::create(b, byMinusOne, arith::SubIOp::create(b, zero, x), result);
  if (isQuotient)
    result = arith::SelectOp::create(b, byZero, zero, result);
  division.getResult().replaceAllUsesWith(result);
  division.erase();
}

} // namespace

void guardDivisions(ModuleOp module) {
  llvm::SmallVector<Operation *> divisions;
  module.walk([&](Operation *op) {
    if (isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp>(op))
      divisions.push_back(op);
  });
  for (Operation *op : divisions) {
    if (auto quotient = dyn_cast<arith::DivSIOp>(op))
      guard<arith::DivSIOp, true, true>(quotient);
    else if (auto quotient = dyn_cast<arith::DivUIOp>(op))
      guard<arith::DivUIOp, false, true>(quotient);
    else if (auto remainder = dyn_cast<arith::RemSIOp>(op))
      guard<arith::RemSIOp, true, false>(remainder);
    else if (auto remainder = dyn_cast<arith::RemUIOp>(op))
      guard<arith::RemUIOp, false, false>(remainder);
  }
}

} // namespace millrace::reference
