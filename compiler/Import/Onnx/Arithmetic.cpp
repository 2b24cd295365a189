// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Arithmetic.h"

using namespace mlir;

namespace millrace::onnx_import {

namespace {
bool isFloat(Value x) { return isa<FloatType>(x.getType()); }
} // namespace

Value Arithmetic::constant(Type type, double value) {
  if (auto floatType = dyn_cast<FloatType>(type))
    return arith::ConstantOp::create(b, FloatAttr::get(floatType, value));
  return arith::ConstantOp::create(b, IntegerAttr::get(type, static_cast<int64_t>(value)));
}

Value Arithmetic::add(Value x, Value y) {
  return isFloat(x) ? Value(arith::AddFOp::create(b, x, y)) : Value(arith::AddIOp::create(b, x, y));
}

Value Arithmetic::sub(Value x, Value y) {
  return isFloat(x) ? Value(arith::SubFOp::create(b, x, y)) : Value(arith::SubIOp::create(b, x, y));
}

Value Arithmetic::mul(Value x, Value y) {
  return isFloat(x) ? Value(arith::MulFOp::create(b, x, y)) : Value(arith::MulIOp::create(b, x, y));
}

Value Arithmetic::div(Value x, Value y) {
  if (isFloat(x))
    return arith::DivFOp::create(b, x, y);
  return isUnsigned ? Value(arith::DivUIOp::create(b, x, y))
                    : Value(arith::DivSIOp::create(b, x, y));
}

Value Arithmetic::max(Value x, Value y) {
  if (isFloat(x))
    return arith::MaximumFOp::create(b, x, y);
  return isUnsigned ? Value(arith::MaxUIOp::create(b, x, y))
                    : Value(arith::MaxSIOp::create(b, x, y));
}

Value Arithmetic::min(Value x, Value y) {
  if (isFloat(x))
    return arith::MinimumFOp::create(b, x, y);
  return isUnsigned ? Value(arith::MinUIOp::create(b, x, y))
                    : Value(arith::MinSIOp::create(b, x, y));
}

Value Arithmetic::neg(Value x) {
  return isFloat(x) ? Value(arith::NegFOp::create(b, x)) : sub(like(x, 0), x);
}

Value Arithmetic::abs(Value x) {
  if (isFloat(x))
    return call<math::AbsFOp>(x);
  return isUnsigned ? x : call<math::AbsIOp>(x);
}

Value Arithmetic::compare(Order order, Value x, Value y) {
  if (isFloat(x)) {
    auto predicate = order == Order::Equal  ? arith::CmpFPredicate::OEQ
                     : order == Order::Less ? arith::CmpFPredicate::OLT
                                            : arith::CmpFPredicate::OLE;
    return arith::CmpFOp::create(b, predicate, x, y);
  }
  auto predicate = order == Order::Equal ? arith::CmpIPredicate::eq
                   : order == Order::Less
                       ? (isUnsigned ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt)
                       : (isUnsigned ? arith::CmpIPredicate::ule : arith::CmpIPredicate::sle);
  return arith::CmpIOp::create(b, predicate, x, y);
}

Value Arithmetic::choose(Value condition, Value x, Value y) {
  return arith::SelectOp::create(b, condition, x, y);
}

Value Arithmetic::sigmoid(Value x) {
  Value one = like(x, 1);
  return div(one, add(one, call<math::ExpOp>(neg(x))));
}

Value Arithmetic::within(Value x, double low, double high) {
  if (mlir::Operation *op = x.getDefiningOp())
    op->setAttr("millrace.within", b.getDenseF64ArrayAttr({low, high}));
  return x;
}

Value Arithmetic::cast(Value x, Type to, bool toUnsigned) {
  Type from = x.getType();
  if (from == to)
    return x;
  if (to.isInteger(1)) {
    if (isFloat(x))
      return arith::CmpFOp::create(b, arith::CmpFPredicate::UNE, x, like(x, 0));
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, x, like(x, 0));
  }
  if (auto integer = dyn_cast<IntegerType>(to))
    return castToInteger(x, integer, toUnsigned);
  if (!isFloat(x)) {
    bool zeroExtend = isUnsigned || from.isInteger(1);
    return zeroExtend ? Value(arith::UIToFPOp::create(b, to, x))
                      : Value(arith::SIToFPOp::create(b, to, x));
  }
  unsigned fromWidth = from.getIntOrFloatBitWidth(), toWidth = to.getIntOrFloatBitWidth();
  if (from.isF64() && to.isBF16()) // no runtime library rounds in one step
    return arith::TruncFOp::create(b, to, arith::TruncFOp::create(b, b.getF32Type(), x));
  if (fromWidth == toWidth) // float16 and bfloat16
    return arith::TruncFOp::create(b, to, arith::ExtFOp::create(b, b.getF32Type(), x));
  return toWidth > fromWidth ? Value(arith::ExtFOp::create(b, to, x))
                             : Value(arith::TruncFOp::create(b, to, x));
}

Value Arithmetic::castToInteger(Value x, IntegerType to, bool toUnsigned) {
  if (isFloat(x)) {
    // Via 64 bits, so that values outside of a narrow type wrap around instead of being undefined.
    Type wide = b.getI64Type();
    bool needsUnsigned = toUnsigned && to.getWidth() == 64;
    x = needsUnsigned ? Value(arith::FPToUIOp::create(b, wide, x))
                      : Value(arith::FPToSIOp::create(b, wide, x));
    return to == wide ? x : arith::TruncIOp::create(b, to, x).getResult();
  }
  unsigned from = x.getType().getIntOrFloatBitWidth();
  if (from > to.getWidth())
    return arith::TruncIOp::create(b, to, x);
  bool zeroExtend = isUnsigned || from == 1;
  return zeroExtend ? Value(arith::ExtUIOp::create(b, to, x))
                    : Value(arith::ExtSIOp::create(b, to, x));
}

} // namespace millrace::onnx_import
