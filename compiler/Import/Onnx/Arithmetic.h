// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scalar arithmetic in bodies of maps: one name for the float and the integer operation.
#pragma once

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace millrace::onnx_import {

/// Floats follow IEEE 754 and propagate NaN. Integers are signless; `isUnsigned` says how to read
/// them.
class Arithmetic {
public:
  using Value = mlir::Value;
  explicit Arithmetic(mlir::ImplicitLocOpBuilder &builder, bool isUnsigned = false)
      : b(builder), isUnsigned(isUnsigned) {}

  Value constant(mlir::Type type, double value);
  Value like(Value other, double value) { return constant(other.getType(), value); }

  Value add(Value x, Value y);
  Value sub(Value x, Value y);
  Value mul(Value x, Value y);
  Value div(Value x, Value y); ///< integers truncate towards zero
  Value max(Value x, Value y);
  Value min(Value x, Value y);
  Value neg(Value x);
  Value abs(Value x);

  enum class Order { Equal, Less, LessOrEqual };
  Value compare(Order order, Value x, Value y); ///< i1; false for NaN
  Value choose(Value condition, Value x, Value y);
  Value clamp(Value x, double low, double high) { return min(max(x, like(x, low)), like(x, high)); }

  template <class Op> Value call(Value x) { return Op::create(b, x); }
  Value sigmoid(Value x); ///< 1 / (1 + exp(-x))
  /// States that x, the result of an operation, lies in [low, high] or is NaN, the latter only if an
  /// operand is not finite: what bounds of the operands alone do not show (`millrace.within`,
  /// docs/dialects/tensor.md).
  Value within(Value x, double low, double high);

  /// ONNX Cast: float to integer truncates, to bool tests against zero. `fromUnsigned` and
  /// `toUnsigned` say how integers are read.
  Value cast(Value x, mlir::Type to, bool toUnsigned);

private:
  Value castToInteger(Value x, mlir::IntegerType to, bool toUnsigned);
  mlir::ImplicitLocOpBuilder &b;
  bool isUnsigned;
};

} // namespace millrace::onnx_import
