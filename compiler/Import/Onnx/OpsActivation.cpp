// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elementwise functions of one tensor.
#include "compiler/Import/Onnx/Activation.h"
#include "compiler/Import/Onnx/Handlers.h"

#include "llvm/ADT/StringMap.h"

#include <cmath>
#include <numbers>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

using Order = Arithmetic::Order;

Handler unary(UnaryBody body, Parameters defaults = {}) {
  return [body, defaults](NodeImporter &node) -> Status {
    Parameters p{node.getFloat("alpha", defaults.alpha), node.getFloat("beta", defaults.beta),
                 node.getFloat("gamma", defaults.gamma)};
    bool unsignedInput = isUnsigned(node.inType(0));
    return node.done(
        node.t.map({node.in(0)}, elementTypeOf(node.in(0)), [&](Scalars &s, ValueRange x) {
          Arithmetic a(s, unsignedInput);
          return body(a, x[0], p);
        }));
  };
}

template <class Op> Handler mathCall() {
  return unary([](Arithmetic &a, Value x, const Parameters &) { return a.call<Op>(x); });
}

Value isBelow(Arithmetic &a, Value x, double bound) {
  return a.compare(Order::Less, x, a.like(x, bound));
}

Value scale(Arithmetic &a, Value x, double factor) {
  return factor == 1 ? x : a.mul(x, a.like(x, factor));
}

/// log(1 + exp(x)), written so that exp cannot overflow.
Value softplus(Arithmetic &a, Value x) {
  Value small = a.call<math::ExpOp>(a.neg(a.abs(x)));
  return a.add(a.max(x, a.like(x, 0)), a.call<math::Log1pOp>(small));
}

/// exp(x) - 1 for x < 0; the other branch never sees a positive argument.
Value expMinusOne(Arithmetic &a, Value x) { return a.call<math::ExpM1Op>(a.min(x, a.like(x, 0))); }

Value elu(Arithmetic &a, Value x, const Parameters &p) {
  return a.choose(isBelow(a, x, 0), scale(a, expMinusOne(a, x), p.alpha), x);
}

Value selu(Arithmetic &a, Value x, const Parameters &p) { return scale(a, elu(a, x, p), p.gamma); }

Value celu(Arithmetic &a, Value x, const Parameters &p) {
  Value below = scale(a, expMinusOne(a, a.div(x, a.like(x, p.alpha))), p.alpha);
  return a.choose(isBelow(a, x, 0), below, x);
}

Value hardSigmoid(Arithmetic &a, Value x, const Parameters &p) {
  return a.clamp(a.add(scale(a, x, p.alpha), a.like(x, p.beta)), 0, 1);
}

Value hardSwish(Arithmetic &a, Value x, const Parameters &) {
  return a.mul(x, hardSigmoid(a, x, Parameters{1.0 / 6, 0.5, 0}));
}

/// x / 2 * (1 + erf(x / sqrt 2))
Value geluExact(Arithmetic &a, Value x) {
  Value erf = a.call<math::ErfOp>(scale(a, x, std::numbers::sqrt2 / 2));
  return a.mul(scale(a, x, 0.5), a.add(erf, a.like(x, 1)));
}

/// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
Value geluTanh(Arithmetic &a, Value x) {
  Value cube = a.mul(a.mul(x, x), x);
  Value inner = scale(a, a.add(x, scale(a, cube, 0.044715)), std::sqrt(2 / std::numbers::pi));
  return a.mul(scale(a, x, 0.5), a.add(a.call<math::TanhOp>(inner), a.like(x, 1)));
}

/// -1, 0 or 1; NaN, and either zero, stay as they are.
Value sign(Arithmetic &a, Value x, const Parameters &) {
  Value zero = a.like(x, 0);
  Value upper = a.choose(a.compare(Order::Less, zero, x), a.like(x, 1), x);
  return a.choose(a.compare(Order::Less, x, zero), a.like(x, -1), upper);
}

/// Gelu of x, or of x + bias where a second input is given.
Handler gelu(bool byTanh) {
  const auto handler = [byTanh](NodeImporter &node) -> Status {
    bool approximates = byTanh || node.getString("approximate", "none") == "tanh";
    SmallVector<Value> inputs{node.in(0)};
    if (node.has(1))
      inputs.push_back(node.in(1));
    return node.done(node.t.map(inputs, elementTypeOf(node.in(0)), [&](Scalars &s, ValueRange x) {
      Arithmetic a(s);
      Value sum = x.size() == 2 ? a.add(x[0], x[1]) : x[0];
      return approximates ? geluTanh(a, sum) : geluExact(a, sum);
    }));
  };
  return needing({0}, typed({reals(0), reals(1)}, handler));
}

/// Bounds are optional scalar inputs.
Status importClip(NodeImporter &node) {
  SmallVector<Value> inputs{node.in(0)};
  for (size_t i : {1, 2})
    if (node.has(i))
      inputs.push_back(node.in(i));
  return node.done(node.t.map(inputs, elementTypeOf(node.in(0)), [&](Scalars &s, ValueRange x) {
    Arithmetic a(s, isUnsigned(node.inType(0)));
    Value result = x[0];
    if (node.has(1))
      result = a.max(result, x[1]);
    if (node.has(2))
      result = a.min(result, x.back());
    return result;
  }));
}

Status importIsNaN(NodeImporter &node) {
  Value result = node.t.map({node.in(0)}, node.t.ops().getI1Type(), [](Scalars &s, ValueRange x) {
    return arith::CmpFOp::create(s, arith::CmpFPredicate::UNO, x[0], x[0]);
  });
  return node.done(result, HostType::Bool);
}

Status importIsInf(NodeImporter &node) {
  bool positive = node.getInt("detect_positive", 1) != 0,
       negative = node.getInt("detect_negative", 1) != 0;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Value result = node.t.map({node.in(0)}, node.t.ops().getI1Type(), [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    Value none = arith::ConstantOp::create(s, s.getBoolAttr(false));
    Value above = positive ? a.compare(Order::Equal, x[0], a.like(x[0], infinity)) : none;
    Value below = negative ? a.compare(Order::Equal, x[0], a.like(x[0], -infinity)) : none;
    return arith::OrIOp::create(s, above, below);
  });
  return node.done(result, HostType::Bool);
}

/// shrink: 0 within [-lambd, lambd], else moved by bias towards 0.
Status importShrink(NodeImporter &node) {
  double lambda = node.getFloat("lambd", 0.5), bias = node.getFloat("bias", 0);
  return node.done(
      node.t.map({node.in(0)}, elementTypeOf(node.in(0)), [&](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        Value low =
            a.choose(isBelow(a, x[0], -lambda), a.add(x[0], a.like(x[0], bias)), a.like(x[0], 0));
        return a.choose(a.compare(Order::Less, a.like(x[0], lambda), x[0]),
                        a.sub(x[0], a.like(x[0], bias)), low);
      }));
}

void addMathCalls(HandlerTable &table) {
  table[":Exp"] = mathCall<math::ExpOp>();
  table[":Log"] = mathCall<math::LogOp>();
  table[":Sqrt"] = mathCall<math::SqrtOp>();
  table[":Erf"] = mathCall<math::ErfOp>();
  table[":Sin"] = mathCall<math::SinOp>();
  table[":Cos"] = mathCall<math::CosOp>();
  table[":Tan"] = mathCall<math::TanOp>();
  table[":Asin"] = mathCall<math::AsinOp>();
  table[":Acos"] = mathCall<math::AcosOp>();
  table[":Atan"] = mathCall<math::AtanOp>();
  table[":Sinh"] = mathCall<math::SinhOp>();
  table[":Cosh"] = mathCall<math::CoshOp>();
  table[":Asinh"] = mathCall<math::AsinhOp>();
  table[":Acosh"] = mathCall<math::AcoshOp>();
  table[":Atanh"] = mathCall<math::AtanhOp>();
  table[":Floor"] = mathCall<math::FloorOp>();
  table[":Ceil"] = mathCall<math::CeilOp>();
  table[":Round"] = mathCall<math::RoundEvenOp>();
}

using P = const Parameters &;

Value relu(Arithmetic &a, Value x, P) { return a.max(x, a.like(x, 0)); }

Value thresholdedRelu(Arithmetic &a, Value x, P p) {
  return a.choose(a.compare(Order::Less, a.like(x, p.alpha), x), x, a.like(x, 0));
}

Value leakyRelu(Arithmetic &a, Value x, P p) {
  return a.choose(isBelow(a, x, 0), scale(a, x, p.alpha), x);
}

/// Those that are operations, too.
const llvm::StringMap<Activation> &namedActivations() {
  static const llvm::StringMap<Activation> named = {
      {"Relu", {relu, {}, 0}},
      {"Tanh", {[](Arithmetic &a, Value x, P) { return a.call<math::TanhOp>(x); }, {}, 0}},
      {"Sigmoid", {[](Arithmetic &a, Value x, P) { return a.sigmoid(x); }, {}, 0}},
      {"Softplus", {[](Arithmetic &a, Value x, P) { return softplus(a, x); }, {}, 0}},
      {"Softsign",
       {[](Arithmetic &a, Value x, P) { return a.div(x, a.add(a.abs(x), a.like(x, 1))); }, {}, 0}},
      {"LeakyRelu", {leakyRelu, {0.01}, 1}},
      {"ThresholdedRelu", {thresholdedRelu, {1}, 1}},
      {"Elu", {elu, {1}, 1}},
      {"HardSigmoid", {hardSigmoid, {0.2, 0.5}, 2}},
  };
  return named;
}

} // namespace

std::optional<Activation> activationNamed(std::string_view name) {
  if (auto found = namedActivations().find(name); found != namedActivations().end())
    return found->second;
  if (name == "Affine")
    return Activation{
        [](Arithmetic &a, Value x, P p) { return a.add(scale(a, x, p.alpha), a.like(x, p.beta)); },
        {1, 0},
        2};
  if (name == "ScaledTanh")
    return Activation{[](Arithmetic &a, Value x, P p) {
                        return scale(a, a.call<math::TanhOp>(scale(a, x, p.beta)), p.alpha);
                      },
                      {1, 1},
                      2};
  return std::nullopt;
}

void addActivationOps(HandlerTable &table) {
  addMathCalls(table);
  for (const auto &entry : namedActivations())
    table[(":" + entry.getKey()).str()] = unary(entry.second.body, entry.second.parameters);
  table[":Neg"] = unary([](Arithmetic &a, Value x, P) { return a.neg(x); });
  table[":Abs"] = unary([](Arithmetic &a, Value x, P) { return a.abs(x); });
  table[":Sign"] = unary(sign);
  table[":Reciprocal"] = unary([](Arithmetic &a, Value x, P) { return a.div(a.like(x, 1), x); });
  table[":Selu"] = unary(selu, {1.67326319217681884765625, 0, 1.05070102214813232421875});
  table[":Celu"] = unary(celu, {1});
  table[":HardSwish"] = unary(hardSwish);
  table[":Mish"] = unary(
      [](Arithmetic &a, Value x, P) { return a.mul(x, a.call<math::TanhOp>(softplus(a, x))); });
  table[":Swish"] = unary(
      [](Arithmetic &a, Value x, P p) { return a.mul(x, a.sigmoid(scale(a, x, p.alpha))); }, {1});
  table["com.microsoft:QuickGelu"] = needing(
      {0}, typed({reals(0)}, unary([](Arithmetic &a, Value x,
                                      P p) { return a.mul(x, a.sigmoid(scale(a, x, p.alpha))); },
                                   {1.702})));
  table[":Gelu"] = table["com.microsoft:Gelu"] = table["com.microsoft:BiasGelu"] = gelu(false);
  table["com.microsoft:FastGelu"] = gelu(true);
  table[":Clip"] = importClip;
  table[":IsNaN"] = importIsNaN;
  table[":IsInf"] = importIsInf;
  table[":Shrink"] = importShrink;
}

} // namespace millrace::onnx_import
