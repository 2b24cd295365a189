// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// MatMul, MatMulInteger, Gemm.
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/MatMul.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

template <class Op>
Value createMatMul(TensorBuilder &t, Value a, Value w, ArrayRef<int64_t> shape) {
  Value init = t.filled(shape, t.scalar(t.sumType(elementTypeOf(a)), 0));
  return Op::create(t.ops(), TypeRange(init.getType()), ValueRange{a, w}, ValueRange(init))
      ->getResult(0);
}

/// Batch dimensions that broadcast: a generic with one loop per batch dimension, then m, n, k.
Value broadcastBatches(TensorBuilder &t, Value a, Value w, ArrayRef<int64_t> batch) {
  auto rank = static_cast<unsigned>(batch.size()), loops = rank + 3;
  unsigned m = rank, n = rank + 1, k = rank + 2;
  auto operandMap = [&](Value operand, unsigned row, unsigned column) {
    AffineMap batchMap = t.broadcastMap(shapeOf(operand).drop_back(2), batch);
    SmallVector<AffineExpr> exprs(batchMap.getResults());
    exprs.push_back(t.ops().getAffineDimExpr(row));
    exprs.push_back(t.ops().getAffineDimExpr(column));
    return AffineMap::get(loops, 0, exprs, t.ops().getContext());
  };
  Shape shape(batch);
  shape.push_back(*(shapeOf(a).end() - 2));
  shape.push_back(shapeOf(w).back());
  SmallVector<unsigned> result;
  for (unsigned i = 0; i < rank + 2; ++i)
    result.push_back(i);
  return t.contract(a, w, shape,
                    {operandMap(a, m, k), operandMap(w, k, n), t.select(loops, result)}, {k},
                    t.sumType(elementTypeOf(a)));
}

/// Both of rank >= 2.
Value multiplyMatrices(TensorBuilder &t, Value a, Value w, ArrayRef<int64_t> batch) {
  Shape aShape(shapeOf(a)), wShape(shapeOf(w));
  int64_t k = aShape.back(), n = wShape.back(), m = aShape[aShape.size() - 2];
  Shape shape(batch);
  shape.append({m, n});
  ArrayRef<int64_t> aBatch = ArrayRef(aShape).drop_back(2), wBatch = ArrayRef(wShape).drop_back(2);
  if (productOf(wBatch) == 1) {
    int64_t rows = productOf(aBatch) * m;
    Value result =
        createMatMul<linalg::MatmulOp>(t, t.reshape(a, {rows, k}), t.reshape(w, {k, n}), {rows, n});
    return t.reshape(result, shape);
  }
  if (aBatch != wBatch)
    return broadcastBatches(t, a, w, batch);
  int64_t count = productOf(batch);
  Value result = createMatMul<linalg::BatchMatmulOp>(t, t.reshape(a, {count, m, k}),
                                                     t.reshape(w, {count, k, n}), {count, m, n});
  return t.reshape(result, shape);
}

} // namespace

Expected<Value> multiply(NodeImporter &node, Value a, Value w) {
  Shape aShape(shapeOf(a)), wShape(shapeOf(w));
  if (aShape.empty() || wShape.empty())
    return node.error("multiplies a scalar");
  bool isRow = aShape.size() == 1, isColumn = wShape.size() == 1;
  if (isRow)
    aShape.insert(aShape.begin(), 1);
  if (isColumn)
    wShape.push_back(1);
  if (aShape.back() != wShape[wShape.size() - 2])
    return node.error("the inner dimensions " + std::to_string(aShape.back()) + " and " +
                      std::to_string(wShape[wShape.size() - 2]) + " differ");
  std::optional<Shape> batch =
      broadcastShapes(ArrayRef(aShape).drop_back(2), ArrayRef(wShape).drop_back(2));
  if (!batch)
    return node.error("the batch dimensions do not broadcast");
  Value result =
      multiplyMatrices(node.t, node.t.reshape(a, aShape), node.t.reshape(w, wShape), *batch);
  Shape shape(*batch);
  if (!isRow)
    shape.push_back(aShape[aShape.size() - 2]);
  if (!isColumn)
    shape.push_back(wShape.back());
  return node.t.reshape(result, shape);
}

Value linear(NodeImporter &node, Value x, Value weights, Value bias) {
  Value result = multiplyMatrices(node.t, x, weights, shapeOf(x).drop_back(2));
  if (!bias)
    return result;
  return node.t.map({result, bias}, elementTypeOf(result),
                    [](Scalars &s, ValueRange v) { return Arithmetic(s).add(v[0], v[1]); });
}

/// For each column of each of the matrices, the sum of its rows: ... x 1 x N.
static Value columnSums(TensorBuilder &t, const CentredConstant &matrices) {
  Shape shape(matrices.shape());
  const int64_t columns = shape.back(), rows = shape[shape.size() - 2];
  shape[shape.size() - 2] = 1;
  std::vector<int32_t> sums(size_t(productOf(shape)), 0);
  for (int64_t i = 0, all = productOf(matrices.shape()); i < all; ++i)
    sums[size_t(i / (rows * columns) * columns + i % columns)] += int32_t(matrices[i]);
  return int32Constant(t, shape, sums);
}

Expected<Value> multiplyBytes(NodeImporter &node, SignedBytes a, size_t b, size_t zeroAt) {
  TensorBuilder &t = node.t;
  const size_t rank = size_t(node.rank(b));
  const std::optional<CentredConstant> constant =
      shapeOf(a.bytes).size() >= 2 && rank >= 2 ? CentredConstant::of(node, b, zeroAt, rank - 1)
                                                : std::nullopt;
  if (!constant)
    return Value();
  const SmallVector<Value> parts = constant->parts(t);
  if (Expected<Value> fits = multiply(node, a.bytes, parts.front()); !fits)
    return fits.takeError();
  if (a.zero && shapeOf(a.zero).size() == 1) // one per row, if several
    a.zero = t.reshape(a.zero, {productOf(shapeOf(a.zero)), 1});
  return integerProduct(
      t, a.zero, parts, [&](Value part) { return *multiply(node, a.bytes, part); },
      a.zero ? columnSums(t, *constant) : Value());
}

Expected<Value> scaledProduct(NodeImporter &node, SignedBytes a, size_t b, size_t zeroAt,
                              Value aScale, Value bScale, Value bias) {
  TensorBuilder &t = node.t;
  Expected<Value> product = multiplyBytes(node, std::move(a), b, zeroAt);
  if (!product)
    return product.takeError();
  if (!*product)
    return node.error("its second operand is no constant of 8 bits with two dimensions, or the "
                      "first has one dimension, which is not supported");
  for (Value *scale : {&aScale, &bScale})
    if (productOf(shapeOf(*scale)) == 1)
      *scale = t.reshape(*scale, {});
  for (const Value operand : {aScale, bScale, bias})
    if (const auto shape =
            operand ? broadcastShapes(shapeOf(operand), shapeOf(*product)) : std::nullopt;
        operand && (!shape || ArrayRef(*shape) != shapeOf(*product)))
      return node.error("its scales or its bias do not fit its product");
  const Type f32 = t.ops().getF32Type();
  Value result = t.map({*product, aScale, bScale}, f32, [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    return a.mul(a.cast(x[0], f32, false), a.mul(x[1], x[2]));
  });
  if (!bias)
    return result;
  return t.map({result, bias}, f32,
               [](Scalars &s, ValueRange x) { return Arithmetic(s).add(x[0], x[1]); });
}

namespace {

Status importMatMul(NodeImporter &node) {
  Expected<Value> result = multiply(node, node.in(0), node.in(1));
  return result ? node.done(*result) : Status(result.takeError());
}

/// alpha * op(A) op(B) + beta * C, where op transposes if transA, transB say so: by the maps, not
/// by moving data.
Status importGemm(NodeImporter &node) {
  bool transA = node.getInt("transA", 0) != 0, transB = node.getInt("transB", 0) != 0;
  if (node.rank(0) != 2 || node.rank(1) != 2)
    return node.error("multiplies tensors of rank " + std::to_string(node.rank(0)) + " and " +
                      std::to_string(node.rank(1)) + "; both must be matrices");
  ArrayRef<int64_t> a = node.shape(0), w = node.shape(1);
  int64_t m = a[transA], k = a[!transA], n = w[!transB];
  if (w[transB] != k)
    return node.error("the inner dimensions " + std::to_string(k) + " and " +
                      std::to_string(w[transB]) + " differ");
  TensorBuilder &t = node.t;
  Value result;
  if (!transA && !transB) {
    result = createMatMul<linalg::MatmulOp>(t, node.in(0), node.in(1), {m, n});
  } else {
    AffineMap aMap = transA ? t.select(3, {2, 0}) : t.select(3, {0, 2});
    AffineMap wMap = transB ? t.select(3, {1, 2}) : t.select(3, {2, 1});
    result = t.contract(node.in(0), node.in(1), {m, n}, {aMap, wMap, t.select(3, {0, 1})}, {2});
  }
  double alpha = node.getFloat("alpha", 1), beta = node.getFloat("beta", 1);
  SmallVector<Value> inputs{result};
  bool adds = node.has(2) && beta != 0;
  if (adds)
    inputs.push_back(node.in(2));
  if (!adds && alpha == 1)
    return node.done(result);
  return node.done(t.map(inputs, elementTypeOf(result), [&](Scalars &s, ValueRange x) {
    Arithmetic arithmetic(s);
    Value sum = alpha == 1 ? x[0] : arithmetic.mul(x[0], arithmetic.like(x[0], alpha));
    if (!adds)
      return sum;
    Value term = beta == 1 ? x[1] : arithmetic.mul(x[1], arithmetic.like(x[1], beta));
    return arithmetic.add(sum, term);
  }));
}

/// Input `i` as int32 minus its zero point: a scalar, or one per row (inputs 0) or per column
/// (input 1).
Value centre(NodeImporter &node, size_t i, size_t zeroPoint) {
  Type i32 = node.t.ops().getI32Type();
  SmallVector<Value> inputs{node.in(i)};
  if (node.has(zeroPoint)) {
    Value zero = node.in(zeroPoint);
    bool perRow = i == 0 && shapeOf(zero).size() == 1 && productOf(shapeOf(zero)) > 1;
    inputs.push_back(perRow ? node.t.reshape(zero, {productOf(shapeOf(zero)), 1}) : zero);
  }
  return node.t.map(inputs, i32, [&](Scalars &s, ValueRange x) {
    Arithmetic a(s, isUnsigned(node.inType(i)));
    Value wide = a.cast(x[0], i32, false);
    return x.size() == 2 ? a.sub(wide, a.cast(x[1], i32, false)) : wide;
  });
}

/// int32 sums of (a - zero point) * (b - zero point); exact.
Status importMatMulInteger(NodeImporter &node) {
  const bool isOfBytes = node.inType(0) == HostType::Int8 || node.inType(0) == HostType::UInt8;
  Expected<Value> result =
      isOfBytes ? multiplyBytes(node, signedBytes(node, 0, 2), 1, 3) : Expected<Value>(Value());
  if (result && !*result)
    result = multiply(node, centre(node, 0, 2), centre(node, 1, 3));
  return result ? node.done(*result, HostType::Int32) : Status(result.takeError());
}

} // namespace

void addMatMulOps(HandlerTable &table) {
  table[":MatMul"] = importMatMul;
  table[":Gemm"] = importGemm;
  table[":MatMulInteger"] = importMatMulInteger;
}

} // namespace millrace::onnx_import
