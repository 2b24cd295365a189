// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elementwise arithmetic, comparison and logic with NumPy broadcasting.
#include "compiler/Import/Onnx/Handlers.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

using Order = Arithmetic::Order;

Status broadcastError(NodeImporter &node) {
  return node.error("the shapes of its inputs do not broadcast");
}

bool inputsBroadcast(NodeImporter &node) {
  Shape shape(node.shape(0));
  for (size_t i = 1; i < node.inputCount(); ++i) {
    std::optional<Shape> merged = broadcastShapes(shape, node.shape(i));
    if (!merged)
      return false;
    shape = *merged;
  }
  return true;
}

/// A map of two inputs to a value of their type.
Handler binary(std::function<Value(Scalars &, Arithmetic &, Value, Value)> body) {
  return [body](NodeImporter &node) -> Status {
    if (!inputsBroadcast(node))
      return broadcastError(node);
    bool unsignedInputs = isUnsigned(node.inType(0));
    return node.done(node.t.map({node.in(0), node.in(1)}, elementTypeOf(node.in(0)),
                                [&](Scalars &s, ValueRange x) {
                                  Arithmetic arithmetic(s, unsignedInputs);
                                  return body(s, arithmetic, x[0], x[1]);
                                }));
  };
}

/// The same with a bool result.
Handler comparison(std::function<Value(Scalars &, Arithmetic &, Value, Value)> body) {
  return [body](NodeImporter &node) -> Status {
    if (!inputsBroadcast(node))
      return broadcastError(node);
    bool unsignedInputs = isUnsigned(node.inType(0));
    Value result = node.t.map({node.in(0), node.in(1)}, node.t.ops().getI1Type(),
                              [&](Scalars &s, ValueRange x) {
                                Arithmetic arithmetic(s, unsignedInputs);
                                return body(s, arithmetic, x[0], x[1]);
                              });
    return node.done(result, HostType::Bool);
  };
}

Handler ordered(Order order, bool swapped) {
  return comparison([=](Scalars &, Arithmetic &a, Value x, Value y) {
    return swapped ? a.compare(order, y, x) : a.compare(order, x, y);
  });
}

enum class Combine { Sum, Mean, Max, Min };

/// Any number of inputs, combined from left to right.
Handler variadic(Combine combine) {
  return [combine](NodeImporter &node) -> Status {
    if (!inputsBroadcast(node))
      return broadcastError(node);
    SmallVector<Value> inputs;
    for (size_t i = 0; i < node.inputCount(); ++i)
      inputs.push_back(node.in(i));
    bool unsignedInputs = isUnsigned(node.inType(0));
    return node.done(node.t.map(inputs, elementTypeOf(inputs[0]), [&](Scalars &s, ValueRange x) {
      Arithmetic a(s, unsignedInputs);
      Value result = x[0];
      for (Value next : x.drop_front()) {
        bool adds = combine == Combine::Sum || combine == Combine::Mean;
        result = adds                      ? a.add(result, next)
                 : combine == Combine::Max ? a.max(result, next)
                                           : a.min(result, next);
      }
      return combine == Combine::Mean ? a.div(result, a.like(result, static_cast<double>(x.size())))
                                      : result;
    }));
  };
}

/// Small constant exponents become products: exact, and what hardware does.
Value power(Scalars &s, Arithmetic &a, Value base, Value exponent) {
  FloatAttr constant;
  double value = matchPattern(exponent, m_Constant(&constant)) ? constant.getValueAsDouble() : 0;
  if (value == 1)
    return base;
  if (value == 2)
    return a.mul(base, base);
  if (value == 3)
    return a.mul(a.mul(base, base), base);
  if (value == 0.5)
    return a.call<math::SqrtOp>(base);
  return math::PowFOp::create(s, base, exponent);
}

/// Base and exponent may differ in type; integer bases compute in f64 (exact to 53 bits).
Status importPow(NodeImporter &node) {
  if (!inputsBroadcast(node))
    return broadcastError(node);
  Type type = elementTypeOf(node.in(0));
  bool unsignedExponent = isUnsigned(node.inType(1));
  return node.done(node.t.map({node.in(0), node.in(1)}, type, [&](Scalars &s, ValueRange x) {
    Type compute = isa<FloatType>(type) ? type : Type(s.getF64Type());
    Arithmetic a(s, isUnsigned(node.inType(0)));
    Value base = a.cast(x[0], compute, false);
    Value exponent = x[1].getType() == compute
                         ? x[1]
                         : Arithmetic(s, unsignedExponent).cast(x[1], compute, false);
    return a.cast(power(s, a, base, exponent), type, isUnsigned(node.inType(0)));
  }));
}

/// An error if the divisor is a constant integer that holds 0: there is no quotient to give.
Status checkDivisor(NodeImporter &node) {
  std::optional<Shape> divisor = isFloat(node.inType(1)) ? std::nullopt : node.constantIntegers(1);
  if (divisor && llvm::is_contained(*divisor, 0))
    return node.error("its divisor is a constant of integers that holds 0; correct it, or divide "
                      "floats");
  return Success{};
}

Status importDiv(NodeImporter &node) {
  if (Status checked = checkDivisor(node); !checked)
    return checked;
  return binary([](Scalars &, Arithmetic &a, Value x, Value y) { return a.div(x, y); })(node);
}

/// Mod: the sign of the divisor, or of the dividend with fmod=1.
Status importMod(NodeImporter &node) {
  if (!inputsBroadcast(node))
    return broadcastError(node);
  if (Status checked = checkDivisor(node); !checked)
    return checked;
  bool fmod = node.getInt("fmod", 0) != 0, unsignedInputs = isUnsigned(node.inType(0));
  Type type = elementTypeOf(node.in(0));
  return node.done(
      node.t.map({node.in(0), node.in(1)}, type, [&](Scalars &s, ValueRange x) -> Value {
        Arithmetic a(s);
        if (unsignedInputs)
          return arith::RemUIOp::create(s, x[0], x[1]);
        Value rest = isa<FloatType>(type) ? Value(arith::RemFOp::create(s, x[0], x[1]))
                                          : Value(arith::RemSIOp::create(s, x[0], x[1]));
        if (fmod)
          return rest;
        Value zero = a.like(rest, 0);
        Value restIsNegative = a.compare(Order::Less, rest, zero),
              divisorIsNegative = a.compare(Order::Less, x[1], zero);
        Value differs = arith::XOrIOp::create(s, restIsNegative, divisorIsNegative);
        Value isExact = a.compare(Order::Equal, rest, zero);
        return a.choose(isExact, rest, a.choose(differs, a.add(rest, x[1]), rest));
      }));
}

Status importWhere(NodeImporter &node) {
  if (!inputsBroadcast(node))
    return broadcastError(node);
  // All of one side, which may be a constant and fold: it is not left to be compared with itself.
  const std::optional<Shape> condition = node.constantIntegers(0);
  const bool isOneSide = condition && llvm::all_equal(*condition) && !condition->empty();
  Value result = node.t.map({node.in(0), node.in(1), node.in(2)}, elementTypeOf(node.in(1)),
                            [&](Scalars &s, ValueRange x) -> Value {
                              if (isOneSide)
                                return x[condition->front() ? 1 : 2];
                              return arith::SelectOp::create(s, x[0], x[1], x[2]);
                            });
  return node.done(result, node.inType(1));
}

Status importCast(NodeImporter &node) {
  HostType from = node.inType(0);
  std::optional<HostType> to = node.type() == "CastLike"
                                   ? node.inType(1)
                                   : hostTypeOf(static_cast<int>(node.getInt("to", 0)));
  if (!to)
    return node.error("casts to ONNX element type " + std::to_string(node.getInt("to", 0)) +
                      ", which is not supported");
  MLIRContext *context = node.t.ops().getContext();
  Type compute = computeType(*to, context), stored = storageType(*to, context);
  if (from == *to)
    return node.done(node.in(0));
  Value result = node.t.map({node.in(0)}, compute, [&](Scalars &s, ValueRange x) {
    Arithmetic a(s, isUnsigned(from));
    // 16-bit floats are held in f32: their rounding is all that remains of the cast.
    Value rounded = a.cast(x[0], stored, isUnsigned(*to));
    return a.cast(rounded, compute, false);
  });
  return node.done(result, *to);
}

template <class Op> Handler bitwise() {
  return binary(
      [](Scalars &s, Arithmetic &, Value x, Value y) -> Value { return Op::create(s, x, y); });
}

/// Shifting by the width or more leaves nothing (or, to the right, copies of a signed type's sign).
Status importBitShift(NodeImporter &node) {
  bool left = node.getString("direction", "LEFT") == "LEFT",
       unsignedInputs = isUnsigned(node.inType(0));
  return node.done(node.t.map(
      {node.in(0), node.in(1)}, elementTypeOf(node.in(0)), [&](Scalars &s, ValueRange x) {
        Arithmetic a(s, /*isUnsigned=*/true);
        unsigned width = x[0].getType().getIntOrFloatBitWidth();
        Value most = a.like(x[0], width - 1), amount = a.min(x[1], most);
        Value zero = a.like(x[0], 0), fits = a.compare(Order::LessOrEqual, x[1], most);
        if (left)
          return a.choose(fits, arith::ShLIOp::create(s, x[0], amount), zero);
        if (unsignedInputs)
          return a.choose(fits, arith::ShRUIOp::create(s, x[0], amount), zero);
        return arith::ShRSIOp::create(s, x[0], amount).getResult();
      }));
}

Status importNot(NodeImporter &node) {
  return node.done(
      node.t.map({node.in(0)}, elementTypeOf(node.in(0)), [&](Scalars &s, ValueRange x) -> Value {
        Value ones = arith::ConstantOp::create(s, IntegerAttr::get(x[0].getType(), -1));
        return arith::XOrIOp::create(s, x[0], ones);
      }));
}

} // namespace

void addArithmeticOps(HandlerTable &table) {
  table[":Add"] = binary([](Scalars &, Arithmetic &a, Value x, Value y) { return a.add(x, y); });
  table[":Sub"] = binary([](Scalars &, Arithmetic &a, Value x, Value y) { return a.sub(x, y); });
  table[":Mul"] = binary([](Scalars &, Arithmetic &a, Value x, Value y) { return a.mul(x, y); });
  table[":Div"] = importDiv;
  table[":PRelu"] = binary([](Scalars &, Arithmetic &a, Value x, Value slope) {
    return a.choose(a.compare(Order::Less, x, a.like(x, 0)), a.mul(x, slope), x);
  });
  table[":Pow"] = importPow;
  table[":Mod"] = importMod;
  table[":Sum"] = variadic(Combine::Sum);
  table[":Mean"] = variadic(Combine::Mean);
  table[":Max"] = variadic(Combine::Max);
  table[":Min"] = variadic(Combine::Min);
  table[":Equal"] = ordered(Order::Equal, false);
  table[":Less"] = ordered(Order::Less, false);
  table[":LessOrEqual"] = ordered(Order::LessOrEqual, false);
  table[":Greater"] = ordered(Order::Less, true);
  table[":GreaterOrEqual"] = ordered(Order::LessOrEqual, true);
  table[":And"] = table[":BitwiseAnd"] = bitwise<arith::AndIOp>();
  table[":Or"] = table[":BitwiseOr"] = bitwise<arith::OrIOp>();
  table[":Xor"] = table[":BitwiseXor"] = bitwise<arith::XOrIOp>();
  table[":Not"] = table[":BitwiseNot"] = importNot;
  table[":BitShift"] = importBitShift;
  table[":Where"] = importWhere;
  table[":Cast"] = table[":CastLike"] = importCast;
}

} // namespace millrace::onnx_import
