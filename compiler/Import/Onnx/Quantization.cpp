// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Quantization.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

constexpr StringLiteral kQuant = "millrace.quant", kFlips = "millrace.flips";

/// True if the constant holds nothing but zeros, as symmetric schemes say it.
bool isZero(Value zeroPoint) {
  std::optional<ConstantView> view = viewConstant(zeroPoint);
  if (!view || !view->type.getElementType().isInteger())
    return false;
  int64_t count = view->splat ? 1 : view->type.getNumElements();
  for (int64_t i = 0; i < count; ++i)
    if (view->integer(i) != 0)
      return false;
  return true;
}

/// From the tensor's loops to the scale's (or zero point's) elements.
AffineMap parameterMap(TensorBuilder &t, Value parameter, ArrayRef<int64_t> shape,
                       const Scheme &scheme) {
  auto rank = static_cast<unsigned>(shape.size());
  if (scheme.block == 0)
    return shapeOf(parameter).empty() ? t.select(rank, {})
                                      : t.select(rank, {static_cast<unsigned>(scheme.axis)});
  SmallVector<AffineExpr> exprs;
  for (unsigned i = 0; i < rank; ++i)
    exprs.push_back(t.ops().getAffineDimExpr(i));
  exprs[scheme.axis] = exprs[scheme.axis].floorDiv(scheme.block);
  return AffineMap::get(rank, 0, exprs, t.ops().getContext());
}

/// Whether a scale or zero point has one element, or one per index of the axis or per block.
bool fits(Value parameter, ArrayRef<int64_t> shape, const Scheme &scheme) {
  ArrayRef<int64_t> parts = shapeOf(parameter);
  const bool hasAxis = scheme.axis >= 0 && scheme.axis < static_cast<int64_t>(shape.size());
  if (scheme.block == 0)
    return productOf(parts) == 1 ||
           (parts.size() == 1 && hasAxis && parts[0] == shape[static_cast<size_t>(scheme.axis)]);
  Shape wanted(shape);
  if (hasAxis)
    wanted[scheme.axis] = (wanted[scheme.axis] + scheme.block - 1) / scheme.block;
  return hasAxis && parts == ArrayRef(wanted);
}

/// A map of the tensor, scale and zero point (null where zero). Unlike TensorBuilder::map it keeps
/// constants as operands, so that the parameters stay where a later stage looks for them.
Value quantMap(TensorBuilder &t, Value tensor, const Scheme &scheme, Type elementType,
               StringRef kind, llvm::function_ref<Value(Scalars &, Value, Value, Value)> body) {
  ArrayRef<int64_t> shape = shapeOf(tensor);
  auto rank = static_cast<unsigned>(shape.size());
  SmallVector<Value> inputs{tensor};
  SmallVector<AffineMap> maps{t.ops().getMultiDimIdentityMap(rank)};
  bool shifts = scheme.zeroPoint && !isZero(scheme.zeroPoint);
  for (Value parameter : {scheme.scale, shifts ? scheme.zeroPoint : Value()}) {
    if (!parameter)
      continue;
    if (!fits(parameter, shape, scheme))
      return t.fail("its scales or zero points do not fit its tensor", shape, elementType);
    bool isScalar = scheme.block == 0 && productOf(shapeOf(parameter)) == 1;
    inputs.push_back(isScalar ? t.reshape(parameter, {}) : parameter);
    maps.push_back(parameterMap(t, inputs.back(), shape, scheme));
  }
  maps.push_back(t.ops().getMultiDimIdentityMap(rank));
  Value init = t.empty(shape, elementType);
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  auto generic =
      linalg::GenericOp::create(t.ops(), TypeRange(init.getType()), inputs, ValueRange(init), maps,
                                iterators, [&](OpBuilder &builder, Location loc, ValueRange x) {
                                  Scalars s(loc, builder);
                                  Value result = body(s, x[0], x[1], shifts ? x[2] : Value());
                                  linalg::YieldOp::create(s, result);
                                });
  generic->setAttr(kQuant, t.ops().getStringAttr(kind));
  return generic.getResult(0);
}

bool isReshape(Operation *op) {
  return isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op);
}

/// The scheme of the same reals over the bytes that flipSign makes of uint8.
Scheme signedScheme(TensorBuilder &t, Scheme scheme) {
  scheme.type = HostType::Int8;
  scheme.zeroPoint = scheme.zeroPoint ? flipSign(t, scheme.zeroPoint)
                                      : t.splat(shapeOf(scheme.scale), t.ops().getI8Type(), -128);
  return scheme;
}

} // namespace

Value flipSign(TensorBuilder &t, Value bytes) {
  auto map = bytes.getDefiningOp<linalg::GenericOp>();
  if (map && map->hasAttr(kFlips))
    return map->getOperand(0);
  if (Operation *view = bytes.getDefiningOp(); isReshape(view))
    return t.reshape(flipSign(t, view->getOperand(0)), shapeOf(bytes));
  if (std::optional<ConstantView> view = viewConstant(bytes)) {
    std::vector<char> flipped(view->bytes.begin(), view->bytes.end());
    for (char &byte : flipped)
      byte = static_cast<char>(byte ^ 0x80);
    auto constant = view->splat ? DenseElementsAttr::getFromRawBuffer(view->type, flipped)
                                : makeConstant(view->type, flipped, "signed");
    return arith::ConstantOp::create(t.ops(), cast<TypedAttr>(constant));
  }
  Value flipped = t.map({bytes}, t.ops().getI8Type(), [](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    return a.add(x[0], a.like(x[0], -128)); // which wraps around
  });
  if (auto made = flipped.getDefiningOp<linalg::GenericOp>())
    made->setAttr(kFlips, t.ops().getUnitAttr());
  return flipped;
}

Value dequantize(TensorBuilder &t, Value integers, const Scheme &scheme) {
  if (scheme.type == HostType::UInt8)
    return dequantize(t, flipSign(t, integers), signedScheme(t, scheme));
  Type f32 = t.ops().getF32Type();
  return quantMap(t, integers, scheme, f32, "dequantize",
                  [&](Scalars &s, Value x, Value scale, Value zeroPoint) {
                    Arithmetic a(s, isUnsigned(scheme.type));
                    if (zeroPoint) {
                      Type wide = s.getI32Type();
                      x = a.sub(a.cast(x, wide, false), a.cast(zeroPoint, wide, false));
                      return a.mul(Arithmetic(s).cast(x, f32, false), scale);
                    }
                    return a.mul(a.cast(x, f32, false), scale);
                  });
}

Value quantize(TensorBuilder &t, Value reals, const Scheme &scheme) {
  if (scheme.type == HostType::UInt8)
    return flipSign(t, quantize(t, reals, signedScheme(t, scheme)));
  auto integer = cast<IntegerType>(storageType(scheme.type, t.ops().getContext()));
  bool readsUnsigned = isUnsigned(scheme.type);
  unsigned width = integer.getWidth();
  auto lowest = readsUnsigned ? 0.0 : -static_cast<double>(int64_t{1} << (width - 1));
  auto highest = static_cast<double>((int64_t{1} << (readsUnsigned ? width : width - 1)) - 1);
  return quantMap(t, reals, scheme, integer, "quantize",
                  [&](Scalars &s, Value x, Value scale, Value zeroPoint) {
                    Arithmetic a(s, readsUnsigned);
                    Value rounded = a.call<math::RoundEvenOp>(a.div(x, scale));
                    if (zeroPoint)
                      rounded = a.add(rounded, a.cast(zeroPoint, x.getType(), false));
                    Value saturated = a.clamp(rounded, lowest, highest);
                    if (readsUnsigned)
                      return arith::FPToUIOp::create(s, integer, saturated).getResult();
                    return arith::FPToSIOp::create(s, integer, saturated).getResult();
                  });
}

/// A map of one tensor, and perhaps of scalars, done to another tensor.
static Value mappedLike(TensorBuilder &t, linalg::GenericOp map, Value tensor) {
  const auto rank = static_cast<unsigned>(shapeOf(tensor).size());
  SmallVector<Value> inputs(map.getDpsInputs());
  inputs.front() = tensor;
  SmallVector<AffineMap> maps(inputs.size() + 1, t.select(rank, {}));
  maps.front() = maps.back() = t.ops().getMultiDimIdentityMap(rank);
  const Value init = t.empty(shapeOf(tensor), elementTypeOf(map->getResult(0)));
  auto result = linalg::GenericOp::create(
      t.ops(), TypeRange(init.getType()), inputs, ValueRange(init), maps,
      SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel));
  IRMapping none;
  map.getRegion().cloneInto(&result.getRegion(), none);
  for (const StringLiteral name : {kQuant, kFlips})
    if (const Attribute attribute = map->getAttr(name))
      result->setAttr(name, attribute);
  return result.getResult(0);
}

Value reshapedLast(TensorBuilder &t, Value value) {
  SmallVector<linalg::GenericOp> maps;
  Value source = value;
  for (auto map = source.getDefiningOp<linalg::GenericOp>();
       map && (map->hasAttr(kQuant) || map->hasAttr(kFlips));
       map = source.getDefiningOp<linalg::GenericOp>()) {
    if (llvm::any_of(llvm::drop_begin(map.getDpsInputs()),
                     [](Value parameter) { return !shapeOf(parameter).empty(); }))
      return value;
    maps.push_back(map);
    source = map->getOperand(0);
  }
  if (maps.empty() || !isReshape(source.getDefiningOp()))
    return value;
  while (isReshape(source.getDefiningOp()))
    source = source.getDefiningOp()->getOperand(0);
  for (linalg::GenericOp map : llvm::reverse(maps))
    source = mappedLike(t, map, source);
  return t.reshape(source, shapeOf(value));
}

QuantizedByRange quantizeByRange(TensorBuilder &t, Value reals) {
  Type f32 = t.ops().getF32Type(), i8 = t.ops().getI8Type();
  Shape axes;
  for (size_t i = 0; i < shapeOf(reals).size(); ++i)
    axes.push_back(int64_t(i));
  Value greatest = t.reduce(reals, axes, t.scalar(f32, 0), [](Scalars &s, Value x, Value best) {
    return Arithmetic(s).max(best, x);
  });
  Value least = t.reduce(reals, axes, t.scalar(f32, 0), [](Scalars &s, Value x, Value best) {
    return Arithmetic(s).min(best, x);
  });
  Value scale = t.map({greatest, least}, f32, [](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    Value range = a.sub(x[0], x[1]);
    Value isEmpty = a.compare(Arithmetic::Order::Equal, range, a.like(range, 0));
    return a.choose(isEmpty, a.like(range, 1), a.div(range, a.like(range, 255)));
  });
  Value zeroPoint = // less 128, as integers of 8 bits are computed with
      flipSign(t, t.map({least, scale}, i8, [&](Scalars &s, ValueRange x) -> Value {
        Arithmetic a(s);
        Value rounded = a.call<math::RoundEvenOp>(a.clamp(a.div(a.neg(x[0]), x[1]), 0, 255));
        return arith::FPToSIOp::create(s, i8, a.sub(rounded, a.like(rounded, 128)));
      }));
  return {quantize(t, reals, {scale, zeroPoint, HostType::UInt8}), scale, zeroPoint};
}

} // namespace millrace::onnx_import
