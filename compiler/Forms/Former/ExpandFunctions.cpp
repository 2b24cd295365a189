// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions that no ALU computes, of those that it does. All are within some 5e-6 of the result,
// beside its own size, in fp32; near zero, where differences would cancel, they are series.
#include "compiler/Forms/Former/Rewrite.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

#include <numbers>

namespace millrace::forms {

using namespace mlir;

namespace {

constexpr double kHalfPi = std::numbers::pi / 2, kLn2 = std::numbers::ln2;

/// Scalar arithmetic before an operation.
class Writer {
public:
  explicit Writer(Operation *op) : builder(op), loc(op->getLoc()) {}

  Value number(double value) {
    return arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(float(value)));
  }
  Value add(Value x, Value y) { return arith::AddFOp::create(builder, loc, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(builder, loc, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(builder, loc, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(builder, loc, x, y); }
  Value abs(Value x) { return math::AbsFOp::create(builder, loc, x); }
  Value exp(Value x) { return math::ExpOp::create(builder, loc, x); }
  Value log(Value x) { return math::LogOp::create(builder, loc, x); }
  Value sqrt(Value x) { return math::SqrtOp::create(builder, loc, x); }
  Value least(Value x, Value y) { return arith::MinimumFOp::create(builder, loc, x, y); }
  Value most(Value x, Value y) { return arith::MaximumFOp::create(builder, loc, x, y); }
  Value ifLess(Value x, Value y, Value then, Value otherwise) {
    Value isLess = arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLT, x, y);
    return arith::SelectOp::create(builder, loc, isLess, then, otherwise);
  }
  /// The sum of `factors[i]` x^i.
  Value polynomial(Value x, ArrayRef<double> factors) {
    Value sum = number(factors.back());
    for (const double factor : llvm::reverse(factors.drop_back()))
      sum = add(mul(sum, x), number(factor));
    return sum;
  }
  /// x times the polynomial of x squared.
  Value oddPolynomial(Value x, ArrayRef<double> factors) {
    return mul(x, polynomial(mul(x, x), factors));
  }
  /// With x's sign, what is not negative.
  Value signedAs(Value x, Value magnitude) {
    return ifLess(x, number(0), sub(number(0), magnitude), magnitude);
  }

  Value tan(Value x) {
    return div(math::SinOp::create(builder, loc, x), math::CosOp::create(builder, loc, x));
  }
  /// Of 1 / x, where that is smaller, less than a right angle; the polynomial is that of Abramowitz
  /// and Stegun, 4.4.49, to 2e-8.
  Value atan(Value x) {
    const Value magnitude = abs(x), one = number(1);
    const Value small = least(magnitude, div(one, most(magnitude, one)));
    const Value angle =
        oddPolynomial(small, {1, -0.3333314528, 0.1999355085, -0.1420889944, 0.1065626393,
                              -0.0752896400, 0.0429096138, -0.0161657367, 0.0028662257});
    return signedAs(x, ifLess(one, magnitude, sub(number(kHalfPi), angle), angle));
  }
  Value asin(Value x) {
    const Value one = number(1);
    return atan(div(x, sqrt(mul(sub(one, x), add(one, x)))));
  }
  Value acos(Value x) { return sub(number(kHalfPi), asin(x)); }
  /// Half of e^x, also where e^x is beyond all numbers.
  Value halfExp(Value x) { return exp(sub(x, number(kLn2))); }
  Value sinh(Value x) {
    const Value series = oddPolynomial(x, {1, 1.0 / 6, 1.0 / 120, 1.0 / 5040});
    return ifLess(abs(x), number(0.5), series, sub(halfExp(x), halfExp(sub(number(0), x))));
  }
  Value cosh(Value x) { return add(halfExp(x), halfExp(sub(number(0), x))); }
  Value asinh(Value x) {
    const Value magnitude = abs(x), one = number(1);
    const Value series =
        oddPolynomial(magnitude, {1, -1.0 / 6, 3.0 / 40, -15.0 / 336, 105.0 / 3456});
    const Value near = log(add(magnitude, sqrt(add(mul(magnitude, magnitude), one)))),
                far = add(log(magnitude), number(kLn2)); // whose square is beyond all numbers
    return signedAs(
        x, ifLess(magnitude, number(0.25), series, ifLess(number(1e9), magnitude, far, near)));
  }
  Value acosh(Value x) {
    const Value one = number(1);
    return log(add(x, mul(sqrt(sub(x, one)), sqrt(add(x, one)))));
  }
  Value atanh(Value x) {
    const Value one = number(1);
    const Value series = oddPolynomial(x, {1, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9});
    return ifLess(abs(x), number(0.25), series,
                  mul(number(0.5), log(div(add(one, x), sub(one, x)))));
  }

private:
  OpBuilder builder;
  const Location loc;
};

/// Null: an ALU computes it, or nothing here does.
Value expanded(Operation *op) {
  if (op->getNumOperands() != 1 || !op->getOperand(0).getType().isF32())
    return {};
  Writer write(op);
  const Value x = op->getOperand(0);
  return llvm::TypeSwitch<Operation *, Value>(op)
      .Case<math::TanOp>([&](auto) { return write.tan(x); })
      .Case<math::AtanOp>([&](auto) { return write.atan(x); })
      .Case<math::AsinOp>([&](auto) { return write.asin(x); })
      .Case<math::AcosOp>([&](auto) { return write.acos(x); })
      .Case<math::SinhOp>([&](auto) { return write.sinh(x); })
      .Case<math::CoshOp>([&](auto) { return write.cosh(x); })
      .Case<math::AsinhOp>([&](auto) { return write.asinh(x); })
      .Case<math::AcoshOp>([&](auto) { return write.acosh(x); })
      .Case<math::AtanhOp>([&](auto) { return write.atanh(x); })
      .Default([](auto) { return Value(); });
}

} // namespace

void expandFunctions(func::FuncOp function) {
  SmallVector<Operation *> inBodies;
  function.walk([&](linalg::GenericOp op) {
    for (Operation &each : *op.getBlock())
      inBodies.push_back(&each);
  });
  for (Operation *op : inBodies)
    if (const Value value = expanded(op)) {
      op->getResult(0).replaceAllUsesWith(value);
      op->erase();
    }
}

} // namespace millrace::forms
