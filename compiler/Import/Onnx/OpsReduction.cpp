// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions over axes, and the index of the largest or smallest element.
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/Reduction.h"
#include "compiler/Support/OnnxValue.h"

using namespace mlir;

namespace millrace::onnx_import {

Shape keepDims(ArrayRef<int64_t> shape, ArrayRef<int64_t> axes) {
  Shape kept(shape);
  for (int64_t axis : axes)
    kept[axis] = 1;
  return kept;
}

Value meanOver(TensorBuilder &t, Value input, ArrayRef<int64_t> axes) {
  int64_t count = 1;
  for (int64_t axis : axes)
    count *= shapeOf(input)[axis];
  Value sum = t.reduceSum(input, axes);
  return t.map({sum, t.splat(shapeOf(sum), elementTypeOf(sum), static_cast<double>(count))},
               elementTypeOf(sum),
               [](Scalars &s, ValueRange x) { return Arithmetic(s).div(x[0], x[1]); });
}

namespace {

/// The axes of a reduction, from input 1 or the attribute; all axes where none are given.
Expected<Shape> readAxes(NodeImporter &node) {
  Shape axes = node.getInts("axes");
  if (node.has(1)) {
    std::optional<Shape> constant = node.constantIntegers(1);
    if (!constant)
      return node.error("its axes are not constant");
    axes = *constant;
  }
  if (axes.empty() && node.getInt("noop_with_empty_axes", 0) == 0)
    return allAxes(node.rank(0));
  std::optional<Shape> normal = normalAxes(axes, node.rank(0));
  if (!normal)
    return node.error("an axis lies outside of rank " + std::to_string(node.rank(0)));
  normal->erase(llvm::unique(*normal), normal->end());
  return *normal;
}

struct Reduction {
  enum class Kind { Sum, Mean, Max, Min, Prod } kind;
  enum class Before { Nothing, Abs, Square, Exp } before = Before::Nothing;
  enum class After { Nothing, Sqrt, Log } after = After::Nothing;
};

Value applyBefore(Arithmetic &a, Value x, Reduction::Before before) {
  switch (before) {
  case Reduction::Before::Abs:
    return a.abs(x);
  case Reduction::Before::Square:
    return a.mul(x, x);
  case Reduction::Before::Exp:
    return a.call<math::ExpOp>(x);
  case Reduction::Before::Nothing:
    break;
  }
  return x;
}

Value reduceKind(NodeImporter &node, Value input, ArrayRef<int64_t> axes,
                 const Reduction &reduction) {
  using Kind = Reduction::Kind;
  TensorBuilder &t = node.t;
  Type type = elementTypeOf(input);
  bool unsignedInput = isUnsigned(node.inType(0));
  Value initial = reduction.kind == Kind::Max ? t.lowest(type, unsignedInput)
                  : reduction.kind == Kind::Min
                      ? t.highest(type, unsignedInput)
                      : t.scalar(type, reduction.kind == Kind::Prod ? 1 : 0);
  return t.reduce(input, axes, initial, [&](Scalars &s, Value element, Value sum) {
    Arithmetic a(s, unsignedInput);
    Value x = applyBefore(a, element, reduction.before);
    switch (reduction.kind) {
    case Kind::Max:
      return a.max(sum, x);
    case Kind::Min:
      return a.min(sum, x);
    case Kind::Prod:
      return a.mul(sum, x);
    default:
      return a.add(sum, x);
    }
  });
}

Handler reduction(Reduction reduction) {
  return [reduction](NodeImporter &node) -> Status {
    Expected<Shape> axes = readAxes(node);
    if (!axes)
      return axes.takeError();
    Value input = node.in(0), result;
    if (reduction.after != Reduction::After::Nothing && !isFloat(node.inType(0)))
      return node.error("takes a root or logarithm of " + std::string(onnxName(node.inType(0))) +
                        "; only floats are supported, cast its input");
    if (axes->empty() && reduction.before == Reduction::Before::Nothing &&
        reduction.after == Reduction::After::Nothing)
      return node.done(input);
    Shape kept = keepDims(node.shape(0), *axes);
    if (axes->empty())
      result = node.t.map({input}, elementTypeOf(input), [&](Scalars &s, ValueRange x) {
        Arithmetic a(s, isUnsigned(node.inType(0)));
        return applyBefore(a, x[0], reduction.before);
      });
    else if (reduction.kind == Reduction::Kind::Mean)
      result = meanOver(node.t, input, *axes);
    else
      result = reduceKind(node, input, *axes, reduction);
    if (reduction.after != Reduction::After::Nothing)
      result = node.t.map({result}, elementTypeOf(result), [&](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        return reduction.after == Reduction::After::Sqrt ? a.call<math::SqrtOp>(x[0])
                                                         : a.call<math::LogOp>(x[0]);
      });
    return node.done(node.getInt("keepdims", 1) != 0 ? node.t.reshape(result, kept) : result);
  };
}

/// `x` where it is finite, else 0.
Value finiteOrZero(Arithmetic &a, Value x) {
  Value zero = a.like(x, 0);
  // The difference of an infinity and itself is NaN, which equals nothing.
  return a.choose(a.compare(Arithmetic::Order::Equal, a.sub(x, x), zero), x, zero);
}

/// log(sum(exp(x - max))) + max (x itself over no axes): the maximum keeps exp from overflowing. An
/// infinite one is left out: infinity less infinity is NaN.
Status importLogSumExp(NodeImporter &node) {
  if (!isFloat(node.inType(0)))
    return node.error("takes the logarithm of " + std::string(onnxName(node.inType(0))) +
                      "; only floats are supported, cast its input");
  Expected<Shape> axes = readAxes(node);
  if (!axes)
    return axes.takeError();
  if (axes->empty())
    return node.done(node.in(0));
  TensorBuilder &t = node.t;
  Value input = node.in(0);
  auto rank = static_cast<unsigned>(node.rank(0));
  Value greatest =
      t.map({t.reduceMax(input, *axes)}, elementTypeOf(input), [](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        return finiteOrZero(a, x[0]);
      });
  Value powers = t.map(node.shape(0), {input, greatest},
                       {t.ops().getMultiDimIdentityMap(rank), t.withoutAxes(rank, *axes)},
                       elementTypeOf(input), [](Scalars &s, ValueRange x) {
                         Arithmetic a(s);
                         return a.call<math::ExpOp>(a.sub(x[0], x[1]));
                       });
  Value result = t.map({t.reduceSum(powers, *axes), greatest}, elementTypeOf(input),
                       [](Scalars &s, ValueRange x) {
                         Arithmetic a(s);
                         return a.add(a.call<math::LogOp>(x[0]), x[1]);
                       });
  return node.done(
      node.getInt("keepdims", 1) != 0 ? t.reshape(result, keepDims(node.shape(0), *axes)) : result);
}

/// The index along `axis` of the best element, without the axis: a reduction of two values, the
/// best element so far and its index; ties keep the first (or the last) index.
Value bestAlong(NodeImporter &node, int64_t axis, bool largest, bool lastWins) {
  const bool unsignedInput = isUnsigned(node.inType(0));
  TensorBuilder &t = node.t;
  Type type = elementTypeOf(node.in(0)), i64 = t.ops().getI64Type();
  auto rank = static_cast<unsigned>(node.rank(0));
  Shape shape(node.shape(0));
  shape.erase(shape.begin() + axis);
  Value worst = largest ? t.lowest(type, unsignedInput) : t.highest(type, unsignedInput);
  Value best = t.filled(shape, worst), index = t.filled(shape, t.scalar(i64, 0));
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  iterators[axis] = utils::IteratorType::reduction;
  AffineMap out = t.withoutAxes(rank, {axis});
  auto generic = linalg::GenericOp::create(
      t.ops(), TypeRange{best.getType(), index.getType()}, ValueRange(node.in(0)),
      ValueRange{best, index}, {t.ops().getMultiDimIdentityMap(rank), out, out}, iterators,
      [&](OpBuilder &builder, Location loc, ValueRange x) {
        Scalars s(loc, builder);
        Arithmetic a(s, unsignedInput);
        Value here = arith::IndexCastOp::create(s, i64, linalg::IndexOp::create(s, axis));
        auto order = lastWins ? Arithmetic::Order::LessOrEqual : Arithmetic::Order::Less;
        Value wins = largest ? a.compare(order, x[1], x[0]) : a.compare(order, x[0], x[1]);
        linalg::YieldOp::create(s,
                                ValueRange{a.choose(wins, x[0], x[1]), a.choose(wins, here, x[2])});
      });
  return generic.getResult(1);
}

/// The axis of a node that has one; `otherwise` where it names none.
Expected<int64_t> readAxis(NodeImporter &node, int64_t otherwise) {
  const std::optional<int64_t> axis = normalAxis(node.getInt("axis", otherwise), node.rank(0));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  return *axis;
}

Handler bestIndex(bool largest) {
  return [largest](NodeImporter &node) -> Status {
    Expected<int64_t> axis = readAxis(node, 0);
    if (!axis)
      return axis.takeError();
    Value result = bestAlong(node, *axis, largest, node.getInt("select_last_index", 0) != 0);
    Shape kept = keepDims(node.shape(0), {*axis});
    return node.done(node.getInt("keepdims", 1) != 0 ? node.t.reshape(result, kept) : result,
                     HostType::Int64);
  };
}

/// 1 where the first of the greatest elements along the axis is, 0 elsewhere.
Status importHardmax(NodeImporter &node) {
  Expected<int64_t> axis = readAxis(node, -1);
  if (!axis)
    return axis.takeError();
  TensorBuilder &t = node.t;
  const Value best = bestAlong(node, *axis, /*largest=*/true, /*lastWins=*/false);
  const Type type = elementTypeOf(node.in(0)), i64 = t.ops().getI64Type();
  const auto rank = static_cast<unsigned>(node.rank(0));
  return node.done(t.map(
      node.shape(0), {best}, {t.withoutAxes(rank, {*axis})}, type, [&](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        Value here = arith::IndexCastOp::create(s, i64, linalg::IndexOp::create(s, *axis));
        return a.choose(a.compare(Arithmetic::Order::Equal, here, x[0]), a.constant(type, 1),
                        a.constant(type, 0));
      }));
}

/// x / (sum |x|^p)^(1/p) along one axis, p = 1 or 2; 0 where the norm is 0 (ONNX).
Status importLpNormalization(NodeImporter &node) {
  Expected<int64_t> axis = readAxis(node, -1);
  if (!axis)
    return axis.takeError();
  const int64_t p = node.getInt("p", 2);
  if (p != 1 && p != 2)
    return node.error("its p is " + std::to_string(p) + "; 1 and 2 are supported");
  const Type type = elementTypeOf(node.in(0));
  Value powers = node.t.map({node.in(0)}, type, [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    return p == 1 ? a.abs(x[0]) : a.mul(x[0], x[0]);
  });
  Value sum = node.t.reshape(node.t.reduceSum(powers, {*axis}), keepDims(shapeOf(powers), {*axis}));
  return node.done(node.t.map({node.in(0), sum}, type, [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    Value norm = p == 1 ? x[1] : a.call<math::SqrtOp>(x[1]);
    Value isZero = a.compare(Arithmetic::Order::Equal, norm, a.like(norm, 0));
    return a.choose(isZero, a.like(norm, 0), a.div(x[0], norm));
  }));
}

Expected<int64_t> cumulativeAxis(NodeImporter &node) {
  const std::optional<double> given = node.constantReal(1);
  const std::optional<int64_t> axis =
      given ? normalAxis(static_cast<int64_t>(*given), node.rank(0)) : std::nullopt;
  if (!axis)
    return node.error("its axis is not constant or lies outside of rank " +
                      std::to_string(node.rank(0)));
  return *axis;
}

/// result[i] = sum of x[j] for j <= i (exclusive: j < i; reverse: j >= i). The last loop is j.
Status importCumSum(NodeImporter &node) {
  Expected<int64_t> axis = cumulativeAxis(node);
  if (!axis)
    return axis.takeError();
  TensorBuilder &t = node.t;
  bool exclusive = node.getInt("exclusive", 0) != 0, reverse = node.getInt("reverse", 0) != 0;
  auto rank = static_cast<unsigned>(node.rank(0));
  SmallVector<unsigned> source, result;
  for (unsigned i = 0; i < rank; ++i) {
    source.push_back(i == *axis ? rank : i);
    result.push_back(i);
  }
  SmallVector<utils::IteratorType> iterators(rank + 1, utils::IteratorType::parallel);
  iterators[rank] = utils::IteratorType::reduction;
  Value init = t.filled(node.shape(0), t.scalar(elementTypeOf(node.in(0)), 0));
  auto generic = linalg::GenericOp::create(
      t.ops(), TypeRange(init.getType()), ValueRange(node.in(0)), ValueRange(init),
      {t.select(rank + 1, source), t.select(rank + 1, result)}, iterators,
      [&](OpBuilder &builder, Location loc, ValueRange x) {
        Scalars s(loc, builder);
        Arithmetic a(s);
        Value to = linalg::IndexOp::create(s, *axis), from = linalg::IndexOp::create(s, rank);
        auto order = exclusive ? Arithmetic::Order::Less : Arithmetic::Order::LessOrEqual;
        Value counts = reverse ? a.compare(order, to, from) : a.compare(order, from, to);
        linalg::YieldOp::create(s, a.choose(counts, a.add(x[1], x[0]), x[1]));
      });
  generic->setAttr(kCumulative, t.ops().getDenseI64ArrayAttr({*axis, exclusive, reverse}));
  return node.done(generic.getResult(0));
}

/// The same of products, in steps: after the k-th each element is a product of up to 2^k.
Status importCumProd(NodeImporter &node) {
  Expected<int64_t> axis = cumulativeAxis(node);
  if (!axis)
    return axis.takeError();
  TensorBuilder &t = node.t;
  const bool reverse = node.getInt("reverse", 0) != 0;
  const int64_t extent = node.shape(0)[*axis];
  const Type type = elementTypeOf(node.in(0));
  const auto before = [&](Value x, int64_t distance) { // the element so far before, 1 if none is
    Shape ones(shapeOf(x));
    ones[*axis] = distance;
    const Value rest = t.sliceAxis(x, *axis, reverse ? distance : 0, extent - distance),
                one = t.splat(ones, type, 1);
    return reverse ? t.concat({rest, one}, *axis) : t.concat({one, rest}, *axis);
  };
  Value result = node.in(0);
  if (node.getInt("exclusive", 0) != 0)
    result = extent > 1 ? before(result, 1) : t.splat(node.shape(0), type, 1);
  for (int64_t distance = 1; distance < extent; distance *= 2)
    result = t.map({result, before(result, distance)}, type,
                   [](Scalars &s, ValueRange x) { return Arithmetic(s).mul(x[0], x[1]); });
  return node.done(result);
}

} // namespace

void addReductionOps(HandlerTable &table) {
  using Kind = Reduction::Kind;
  using Before = Reduction::Before;
  using After = Reduction::After;
  table[":ReduceSum"] = reduction({Kind::Sum});
  table[":ReduceMean"] = reduction({Kind::Mean});
  table[":ReduceMax"] = reduction({Kind::Max});
  table[":ReduceMin"] = reduction({Kind::Min});
  table[":ReduceProd"] = reduction({Kind::Prod});
  table[":ReduceL1"] = reduction({Kind::Sum, Before::Abs});
  table[":ReduceL2"] = reduction({Kind::Sum, Before::Square, After::Sqrt});
  table[":ReduceSumSquare"] = reduction({Kind::Sum, Before::Square});
  table[":ReduceLogSum"] = reduction({Kind::Sum, Before::Nothing, After::Log});
  table[":ReduceLogSumExp"] = importLogSumExp;
  table[":CumSum"] = importCumSum;
  table[":CumProd"] = importCumProd;
  table[":Hardmax"] = importHardmax;
  table[":LpNormalization"] = importLpNormalization;
  table[":ArgMax"] = bestIndex(true);
  table[":ArgMin"] = bestIndex(false);
}

} // namespace millrace::onnx_import
