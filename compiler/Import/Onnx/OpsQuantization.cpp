// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// QDQ and QOperator forms. The latter are expanded: dequantise, compute in f32, quantise.
#include "compiler/Import/Onnx/Convolution.h"
#include "compiler/Import/Onnx/Fold.h"
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/MatMul.h"
#include "compiler/Import/Onnx/Normalization.h"
#include "compiler/Import/Onnx/Pooling.h"
#include "compiler/Import/Onnx/Quantization.h"
#include "compiler/Import/Onnx/Reduction.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// The scheme whose scale and zero point are inputs `scaleAt` and `scaleAt + 1`, for integers of
/// type `type`.
Scheme readScheme(NodeImporter &node, size_t scaleAt, HostType type, int64_t axis = 0) {
  Scheme scheme{node.in(scaleAt), Value(), type, axis};
  if (node.has(scaleAt + 1))
    scheme.zeroPoint = node.in(scaleAt + 1);
  return scheme;
}

/// axis and block_size of QuantizeLinear and DequantizeLinear, checked against the scale's shape.
Expected<Scheme> readLinear(NodeImporter &node, HostType type) {
  Scheme scheme = readScheme(node, 1, type);
  ArrayRef<int64_t> scale = node.shape(1);
  if (productOf(scale) == 1 && scale.size() <= 1)
    return scheme;
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", 1), node.rank(0));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  scheme.axis = *axis;
  scheme.block = node.getInt("block_size", 0);
  int64_t parts = scheme.block == 0 ? node.shape(0)[*axis]
                                    : (node.shape(0)[*axis] + scheme.block - 1) / scheme.block;
  size_t scaleAxis = scheme.block == 0 ? 0 : static_cast<size_t>(*axis);
  if (scale.size() != (scheme.block == 0 ? 1 : node.shape(0).size()) || scale[scaleAxis] != parts)
    return node.error("its scales do not fit dimension " + std::to_string(*axis));
  return scheme;
}

bool isByteOrWord(HostType type) {
  return type == HostType::Int8 || type == HostType::UInt8 || type == HostType::Int16 ||
         type == HostType::UInt16;
}

Status importQuantizeLinear(NodeImporter &node) {
  HostType type = node.has(2) ? node.inType(2) : HostType::UInt8;
  if (int64_t wanted = node.getInt("output_dtype", 0); wanted != 0 && !node.has(2)) {
    std::optional<HostType> known = hostTypeOf(static_cast<int>(wanted));
    if (!known)
      return node.error("quantises to ONNX element type " + std::to_string(wanted) +
                        ", which is not supported");
    type = *known;
  }
  if (!isByteOrWord(type))
    return node.error("quantises to " + std::string(onnxName(type)) +
                      "; int8, uint8, int16, uint16 are supported");
  if (!isFloat(node.inType(0)))
    return node.error("quantises " + std::string(onnxName(node.inType(0))) +
                      "; only floats are supported, cast its input");
  Expected<Scheme> scheme = readLinear(node, type);
  if (!scheme)
    return scheme.takeError();
  return node.done(quantize(node.t, node.in(0), *scheme), type);
}

Status importDequantizeLinear(NodeImporter &node) {
  if (isFloat(node.inType(0)))
    return node.error("dequantises " + std::string(onnxName(node.inType(0))) +
                      ", which is not supported");
  Expected<Scheme> scheme = readLinear(node, node.inType(0));
  if (!scheme)
    return scheme.takeError();
  return node.done(dequantize(node.t, node.in(0), *scheme), node.inType(1));
}

/// bias_scale[i] = x_scale * w_scale[i], as a constant where both are.
Value biasScale(NodeImporter &node, const Scheme &x, const Scheme &w) {
  TensorBuilder &t = node.t;
  Value scale = t.map({t.reshape(w.scale, {productOf(shapeOf(w.scale))}), t.reshape(x.scale, {})},
                      t.ops().getF32Type(),
                      [](Scalars &s, ValueRange v) { return Arithmetic(s).mul(v[0], v[1]); });
  ElementsAttr constant = foldValue(scale);
  return constant ? arith::ConstantOp::create(t.ops(), cast<TypedAttr>(constant)).getResult()
                  : scale;
}

/// Inputs: x, x scale, x zero, w, w scale, w zero, y scale, y zero, bias (int32, of scale x scale *
/// w scale).
Status importQLinearConv(NodeImporter &node) {
  TensorBuilder &t = node.t;
  Scheme xScheme = readScheme(node, 1, node.inType(0)),
         wScheme = readScheme(node, 4, node.inType(3));
  Value x = dequantize(t, node.in(0), xScheme), w = dequantize(t, node.in(3), wScheme);
  Expected<Window> window = readConvolution(node, x, w);
  if (!window)
    return window.takeError();
  Value result = convolve(node, x, w, *window);
  if (node.has(8)) {
    Value scale = biasScale(node, xScheme, wScheme);
    result = addChannelBias(node, result,
                            dequantize(t, node.in(8), {scale, Value(), HostType::Int32, 0}));
  }
  HostType type = node.inType(7);
  return node.done(quantize(t, result, readScheme(node, 6, type)), type);
}

/// Whether the scheme's parameters are constants, so that a later stage finds a quantised product.
bool isConstant(const Scheme &scheme) {
  return viewConstant(scheme.scale) && (!scheme.zeroPoint || viewConstant(scheme.zeroPoint));
}

/// The integers less their zero point, as floats: those are exact.
Value centred(TensorBuilder &t, Value integers, Scheme scheme) {
  scheme.scale = t.splat({}, t.ops().getF32Type(), 1);
  return dequantize(t, integers, scheme);
}

/// From the loops of a matrix product's result to a scale per row (`fromEnd` 2) or column (1), or
/// to the one that there is.
AffineMap scaleMap(TensorBuilder &t, Value &scale, unsigned rank, unsigned fromEnd) {
  if (productOf(shapeOf(scale)) != 1)
    return t.select(rank, {rank - fromEnd});
  scale = t.reshape(scale, {});
  return t.select(rank, {});
}

/// Inputs: a, a scale, a zero, b, b scale, b zero, y scale, y zero. Scales per row of a, per column
/// of b. Scales that are known only at run time multiply the whole sum, which is one of integers.
Status importQLinearMatMul(NodeImporter &node) {
  TensorBuilder &t = node.t;
  const Scheme aScheme = readScheme(node, 1, node.inType(0), node.rank(0) - 2),
               bScheme = readScheme(node, 4, node.inType(3), node.rank(3) - 1);
  const bool isStatic = isConstant(aScheme) && isConstant(bScheme);
  Value a = isStatic ? dequantize(t, node.in(0), aScheme) : centred(t, node.in(0), aScheme);
  Value b = isStatic ? dequantize(t, node.in(3), bScheme) : centred(t, node.in(3), bScheme);
  Expected<Value> product = multiply(node, a, b);
  if (!product)
    return product.takeError();
  Value result = *product;
  const auto rank = static_cast<unsigned>(shapeOf(result).size());
  const bool isMatrix = rank >= 2 && node.rank(0) >= 2 && node.rank(3) >= 2;
  for (const Scheme *scheme : {&aScheme, &bScheme})
    if (!isStatic && productOf(shapeOf(scheme->scale)) != 1 &&
        (!isMatrix || shapeOf(scheme->scale).size() != 1))
      return node.error("its scales do not fit its matrices");
  if (!isStatic) {
    Value aScale = aScheme.scale, bScale = bScheme.scale;
    const AffineMap aMap = scaleMap(t, aScale, rank, 2), bMap = scaleMap(t, bScale, rank, 1);
    result = t.map(shapeOf(*product), {*product, aScale, bScale},
                   {t.ops().getMultiDimIdentityMap(rank), aMap, bMap}, t.ops().getF32Type(),
                   [](Scalars &s, ValueRange x) {
                     Arithmetic arithmetic(s);
                     return arithmetic.mul(x[0], arithmetic.mul(x[1], x[2]));
                   });
    if (auto map = result.getDefiningOp<linalg::GenericOp>())
      map->setAttr("millrace.scales", t.ops().getI64IntegerAttr(1));
  }
  HostType type = node.inType(7);
  return node.done(quantize(t, result, readScheme(node, 6, type, int64_t(rank) - 2)), type);
}

/// com.microsoft: a, a scale, a zero, b, b scale, b zero, c scale, c zero; elementwise.
Handler qlinearBinary(std::function<Value(Arithmetic &, Value, Value)> body) {
  const auto handler = [body](NodeImporter &node) -> Status {
    TensorBuilder &t = node.t;
    if (!broadcastShapes(node.shape(0), node.shape(3)))
      return node.error("the shapes of its inputs do not broadcast");
    Value a = dequantize(t, node.in(0), readScheme(node, 1, node.inType(0)));
    Value b = dequantize(t, node.in(3), readScheme(node, 4, node.inType(3)));
    Value result = t.map({a, b}, t.ops().getF32Type(), [&](Scalars &s, ValueRange x) {
      Arithmetic arithmetic(s);
      return body(arithmetic, x[0], x[1]);
    });
    return node.done(quantize(t, result, readScheme(node, 6, node.inType(0))), node.inType(0));
  };
  return needing({0, 1, 3, 4, 6}, typed({bytes(0), reals(1), like(2, 0), bytes(3), reals(4),
                                         like(5, 3), reals(6), like(7, 0)},
                                        handler));
}

/// com.microsoft: a, a scale, a zero, b, b scale, b zero, bias (int32, may be absent), y scale, y
/// zero (absent: the result stays f32).
Status importQGemm(NodeImporter &node) {
  TensorBuilder &t = node.t;
  bool transA = node.getInt("transA", 0) != 0, transB = node.getInt("transB", 0) != 0;
  double alpha = node.getFloat("alpha", 1);
  if (alpha != 1)
    return node.error("alpha " + std::to_string(alpha) + " is not supported; only 1 is");
  Scheme aScheme = readScheme(node, 1, node.inType(0)),
         bScheme = readScheme(node, 4, node.inType(3), transB ? 0 : 1);
  Value a = dequantize(t, node.in(0), aScheme), b = dequantize(t, node.in(3), bScheme);
  int64_t m = shapeOf(a)[transA], n = shapeOf(b)[!transB];
  AffineMap aMap = transA ? t.select(3, {2, 0}) : t.select(3, {0, 2});
  AffineMap bMap = transB ? t.select(3, {1, 2}) : t.select(3, {2, 1});
  Value result = t.contract(a, b, {m, n}, {aMap, bMap, t.select(3, {0, 1})}, {2});
  if (node.has(6)) {
    Value bias =
        dequantize(t, node.in(6), {biasScale(node, aScheme, bScheme), Value(), HostType::Int32, 0});
    result = t.map({result, bias}, t.ops().getF32Type(),
                   [](Scalars &s, ValueRange x) { return Arithmetic(s).add(x[0], x[1]); });
  }
  if (!node.has(7))
    return node.done(result, HostType::Float32);
  HostType type = node.has(8) ? node.inType(8) : node.inType(0);
  return node.done(quantize(t, result, readScheme(node, 7, type)), type);
}

/// com.microsoft: x, x scale, x zero, y scale, y zero.
Handler qlinearUnary(std::function<Expected<Value>(NodeImporter &, Value)> body) {
  const auto handler = [body](NodeImporter &node) -> Status {
    if (node.getInt("channels_last", 0) != 0)
      return node.error("channels_last is not supported");
    Value real = dequantize(node.t, node.in(0), readScheme(node, 1, node.inType(0)));
    Expected<Value> result = body(node, real);
    if (!result)
      return result.takeError();
    return node.done(quantize(node.t, *result, readScheme(node, 3, node.inType(0))));
  };
  return needing({0, 1, 3}, typed({bytes(0), reals(1), like(2, 0), reals(3), like(4, 0)}, handler));
}

Expected<Value> globalAverage(NodeImporter &node, Value x) {
  Shape axes;
  for (int64_t i = 2; i < node.rank(0); ++i)
    axes.push_back(i);
  return node.t.reshape(meanOver(node.t, x, axes), keepDims(node.shape(0), axes));
}

/// A function of one number.
Handler qlinearMap(std::function<Value(NodeImporter &, Arithmetic &, Value)> body) {
  return qlinearUnary([body](NodeImporter &node, Value x) -> Expected<Value> {
    return node.t.map({x}, elementTypeOf(x), [&](Scalars &s, ValueRange v) {
      Arithmetic a(s);
      return body(node, a, v[0]);
    });
  });
}

/// Until opset 13 over all dimensions from `axis` on.
Expected<Value> qlinearSoftmax(NodeImporter &node, Value x) {
  const bool joins = node.getInt("opset", 13) < 13;
  const std::optional<int64_t> axis = normalAxis(node.getInt("axis", joins ? 1 : -1), node.rank(0));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  if (!joins || productOf(node.shape(0)) == 0)
    return softmax(node.t, x, *axis);
  const Shape shape(shapeOf(x));
  const int64_t rows = productOf(ArrayRef(shape).take_front(size_t(*axis)));
  return node.t.reshape(softmax(node.t, node.t.reshape(x, {rows, productOf(shape) / rows}), 1),
                        shape);
}

/// com.microsoft: condition, x, x scale, x zero, y, y scale, y zero, z scale, z zero.
Status importQLinearWhere(NodeImporter &node) {
  TensorBuilder &t = node.t;
  const Value x = dequantize(t, node.in(1), readScheme(node, 2, node.inType(1))),
              y = dequantize(t, node.in(4), readScheme(node, 5, node.inType(4)));
  const Value chosen =
      t.map({node.in(0), x, y}, t.ops().getF32Type(),
            [](Scalars &s, ValueRange v) { return Arithmetic(s).choose(v[0], v[1], v[2]); });
  return node.done(quantize(t, chosen, readScheme(node, 7, node.inType(1))), node.inType(1));
}

/// com.microsoft: y scale, y zero, then (x, x scale, x zero) per part.
Status importQLinearConcat(NodeImporter &node) {
  SmallVector<Value> parts;
  if (node.inputCount() % 3 != 2)
    return node.error("has " + std::to_string(node.inputCount()) +
                      " inputs; give it two, and three of each part");
  for (size_t i = 2; i < node.inputCount(); i += 3) {
    for (const size_t j : {i, i + 1})
      if (!node.has(j))
        return node.error("input " + std::to_string(j) + " is missing");
    if (Status part = checkTypes(node, {bytes(i), reals(i + 1), like(i + 2, i)}); !part)
      return part;
    if (node.rank(i) != node.rank(2))
      return node.error("input " + std::to_string(i) + " has rank " + std::to_string(node.rank(i)) +
                        ", the first part has " + std::to_string(node.rank(2)));
    parts.push_back(dequantize(node.t, node.in(i), readScheme(node, i + 1, node.inType(i))));
  }
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", 0), node.rank(2));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(2)));
  HostType type = node.inType(1);
  return node.done(quantize(node.t, node.t.concat(parts, *axis), readScheme(node, 0, type)), type);
}

Status importDynamicQuantizeLinear(NodeImporter &node) {
  const QuantizedByRange result = quantizeByRange(node.t, node.in(0));
  node.set(1, result.scale, HostType::Float32);
  node.set(2, result.zeroPoint, HostType::UInt8);
  return node.done(result.bytes, HostType::UInt8);
}

} // namespace

void addQuantizationOps(HandlerTable &table) {
  table[":QuantizeLinear"] = table["com.microsoft:QuantizeLinear"] =
      needing({0, 1}, importQuantizeLinear);
  table[":DequantizeLinear"] = table["com.microsoft:DequantizeLinear"] =
      needing({0, 1}, importDequantizeLinear);
  table[":DynamicQuantizeLinear"] = importDynamicQuantizeLinear;
  table[":QLinearConv"] = importQLinearConv;
  table[":QLinearMatMul"] = importQLinearMatMul;
  table["com.microsoft:QGemm"] =
      needing({0, 1, 3, 4}, typed({bytes(0, 2), reals(1), like(2, 0), bytes(3, 2), reals(4),
                                   like(5, 3), reals(7), bytes(8)},
                                  importQGemm));
  table["com.microsoft:QLinearAdd"] =
      qlinearBinary([](Arithmetic &a, Value x, Value y) { return a.add(x, y); });
  table["com.microsoft:QLinearMul"] =
      qlinearBinary([](Arithmetic &a, Value x, Value y) { return a.mul(x, y); });
  table["com.microsoft:QLinearGlobalAveragePool"] = qlinearUnary(globalAverage);
  table["com.microsoft:QLinearAveragePool"] = qlinearUnary(averagePool);
  table["com.microsoft:QLinearSigmoid"] =
      qlinearMap([](NodeImporter &, Arithmetic &a, Value x) { return a.sigmoid(x); });
  table["com.microsoft:QLinearLeakyRelu"] =
      qlinearMap([](NodeImporter &node, Arithmetic &a, Value x) {
        return a.choose(a.compare(Arithmetic::Order::Less, x, a.like(x, 0)),
                        a.mul(x, a.like(x, node.getFloat("alpha", 0.01))), x);
      });
  table["com.microsoft:QLinearSoftmax"] = qlinearUnary(qlinearSoftmax);
  table["com.microsoft:QLinearWhere"] = needing(
      {0, 1, 2, 4, 5, 7},
      typed({bytes(1), reals(2), like(3, 1), bytes(4), reals(5), like(6, 4), reals(7), like(8, 1)},
            importQLinearWhere));
  table["com.microsoft:QLinearConcat"] =
      needing({0, 1, 2, 3, 4}, typed({reals(0), bytes(1)}, importQLinearConcat));
}

} // namespace millrace::onnx_import
