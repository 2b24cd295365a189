// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Poolings over windows and over everything.
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/Pooling.h"
#include "compiler/Import/Onnx/Quantization.h"
#include "compiler/Import/Onnx/Window.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

Shape poolShape(Value input, const Window &window) {
  Shape shape{shapeOf(input)[0], shapeOf(input)[1]};
  shape.append(window.outputs);
  return shape;
}

template <class Op>
Value createPooling(NodeImporter &node, Value input, const Window &window, Value initial) {
  Value init = node.t.filled(poolShape(input, window), initial);
  Value kernel = node.t.empty(window.kernel, elementTypeOf(input));
  auto op = Op::create(node.t.ops(), TypeRange(init.getType()), ValueRange{input, kernel},
                       ValueRange(init), windowAttribute(node, window.strides),
                       windowAttribute(node, window.dilations));
  return op->getResult(0);
}

/// The same as a generic, for what has no named operation: loops n, c, positions, taps.
Value genericPooling(NodeImporter &node, Value input, const Window &window, Value initial,
                     ReduceBody body) {
  Scalars &b = node.t.ops();
  auto rank = static_cast<unsigned>(window.rank()), loops = 2 + 2 * rank;
  SmallVector<AffineExpr> in{b.getAffineDimExpr(0), b.getAffineDimExpr(1)}, taps;
  SmallVector<unsigned> out{0, 1};
  SmallVector<utils::IteratorType> iterators(loops, utils::IteratorType::parallel);
  for (unsigned i = 0; i < rank; ++i) {
    in.push_back(windowIndex(node, 2 + i, 2 + rank + i, window.strides[i], window.dilations[i]));
    taps.push_back(b.getAffineDimExpr(2 + rank + i));
    out.push_back(2 + i);
    iterators[2 + rank + i] = utils::IteratorType::reduction;
  }
  Value init = node.t.filled(poolShape(input, window), initial);
  Value kernel = node.t.empty(window.kernel, elementTypeOf(input));
  SmallVector<AffineMap> maps{AffineMap::get(loops, 0, in, b.getContext()),
                              AffineMap::get(loops, 0, taps, b.getContext()),
                              node.t.select(loops, out)};
  auto generic = linalg::GenericOp::create(b, TypeRange(init.getType()), ValueRange{input, kernel},
                                           ValueRange(init), maps, iterators,
                                           [&](OpBuilder &builder, Location loc, ValueRange x) {
                                             Scalars s(loc, builder);
                                             Value result = body(s, x[0], x[2]);
                                             linalg::YieldOp::create(s, result);
                                           });
  return generic.getResult(0);
}

Value poolMax(NodeImporter &node, Value input, const Window &window) {
  Value initial = node.t.lowest(elementTypeOf(input), /*isUnsigned=*/false);
  if (window.rank() == 1)
    return createPooling<linalg::PoolingNcwMaxOp>(node, input, window, initial);
  if (window.rank() == 2)
    return createPooling<linalg::PoolingNchwMaxOp>(node, input, window, initial);
  return genericPooling(node, input, window, initial,
                        [](Scalars &s, Value element, Value greatest) {
                          return Arithmetic(s).max(greatest, element);
                        });
}

Value poolSum(NodeImporter &node, Value input, const Window &window) {
  Value initial = node.t.scalar(elementTypeOf(input), 0);
  if (window.rank() == 1)
    return createPooling<linalg::PoolingNcwSumOp>(node, input, window, initial);
  if (window.rank() == 2)
    return createPooling<linalg::PoolingNchwSumOp>(node, input, window, initial);
  return genericPooling(node, input, window, initial, [](Scalars &s, Value element, Value sum) {
    return Arithmetic(s).add(sum, element);
  });
}

Expected<Window> readPooling(NodeImporter &node) {
  if (node.rank(0) < 3 || node.rank(0) > 5)
    return node.error("pools a tensor of rank " + std::to_string(node.rank(0)) +
                      "; 1 to 3 spatial dimensions are supported");
  return readWindow(node, node.shape(0).drop_front(2), {});
}

Status importMaxPool(NodeImporter &node) {
  if (node.wants(1))
    return node.error("its output Indices is not supported");
  Expected<Window> window = readPooling(node);
  if (!window)
    return window.takeError();
  const bool isByte = node.inType(0) == HostType::UInt8;
  Value input = isByte ? flipSign(node.t, node.in(0)) : node.in(0);
  Value lowest = node.t.lowest(elementTypeOf(input), /*isUnsigned=*/false);
  Value result = poolMax(node, padWindow(node, input, *window, lowest), *window);
  return node.done(isByte ? flipSign(node.t, result) : result);
}

/// How many elements that count lie in each window along one dimension.
SmallVector<float> countAlong(const Window &window, size_t i, int64_t extent, bool includesPad) {
  int64_t from = includesPad ? -window.low[i] : 0,
          to = includesPad ? extent + window.high[i] : extent;
  SmallVector<float> counts;
  for (int64_t position = 0; position < window.outputs[i]; ++position) {
    int64_t begin = position * window.strides[i] - window.low[i], count = 0;
    for (int64_t tap = 0; tap < window.kernel[i]; ++tap) {
      int64_t at = begin + tap * window.dilations[i];
      count += at >= from && at < to;
    }
    counts.push_back(static_cast<float>(count));
  }
  return counts;
}

/// Do all windows along the dimension hold all their elements?
bool isFull(const Window &window, size_t i, int64_t extent, bool includesPad) {
  const int64_t last = (window.outputs[i] - 1) * window.strides[i] - window.low[i] +
                       (window.kernel[i] - 1) * window.dilations[i];
  return last < extent + (includesPad ? window.high[i] : 0) && (includesPad || window.low[i] == 0);
}

/// The number of elements in each window, as a constant over the output positions.
Expected<Value> windowCounts(NodeImporter &node, const Window &window, bool includesPad,
                             Type type) {
  bool allFull = true;
  for (size_t i = 0; i < window.rank(); ++i)
    allFull &= isFull(window, i, node.shape(0)[2 + i], includesPad);
  if (allFull)
    return node.t.splat(window.outputs, type, double(productOf(window.kernel)));
  if (productOf(window.outputs) > kMostMade)
    return node.error("averages " + std::to_string(productOf(window.outputs)) +
                      " windows over padding, more than 2^26; use smaller extents");
  SmallVector<float> counts{1};
  for (size_t i = 0; i < window.rank(); ++i) {
    SmallVector<float> along = countAlong(window, i, node.shape(0)[2 + i], includesPad), next;
    for (float outer : counts)
      for (float inner : along)
        next.push_back(outer * inner);
    counts = next;
  }
  return node.t.reals(window.outputs, counts, type);
}

Value divide(NodeImporter &node, Value sum, Value counts) {
  return node.t.map({sum, counts}, elementTypeOf(sum),
                    [](Scalars &s, ValueRange x) { return Arithmetic(s).div(x[0], x[1]); });
}

Status importAveragePool(NodeImporter &node) {
  Expected<Value> result = averagePool(node, node.in(0));
  return result ? node.done(*result) : Status(result.takeError());
}

/// |x|^p, for sums of which a root is taken.
Value powerOf(TensorBuilder &t, Value x, int64_t p) {
  return t.map({x}, elementTypeOf(x), [&](Scalars &s, ValueRange v) -> Value {
    Arithmetic a(s);
    if (p == 2)
      return a.mul(v[0], v[0]);
    const Value size = a.abs(v[0]);
    return p == 1 ? size : math::PowFOp::create(s, size, a.like(size, double(p)));
  });
}

Value rootOf(TensorBuilder &t, Value x, int64_t p) {
  if (p == 1)
    return x;
  return t.map({x}, elementTypeOf(x), [&](Scalars &s, ValueRange v) -> Value {
    Arithmetic a(s);
    return p == 2 ? a.call<math::SqrtOp>(v[0])
                  : math::PowFOp::create(s, v[0], a.like(v[0], 1.0 / double(p)));
  });
}

Expected<int64_t> readNorm(NodeImporter &node) {
  const int64_t p = node.getInt("p", 2);
  if (p < 1)
    return node.error("its p is " + std::to_string(p) + "; it must be at least 1");
  return p;
}

/// (sum of |x|^p)^(1/p) over each window.
Status importLpPool(NodeImporter &node) {
  Expected<Window> window = readPooling(node);
  if (!window)
    return window.takeError();
  Expected<int64_t> p = readNorm(node);
  if (!p)
    return p.takeError();
  const Value powers = powerOf(node.t, node.in(0), *p),
              padded = padWindow(node, powers, *window, node.t.scalar(elementTypeOf(powers), 0));
  return node.done(rootOf(node.t, poolSum(node, padded, *window), *p));
}

/// Reduces all spatial dimensions, which stay with extent 1.
enum class GlobalPooling { Average, Max, Norm };

Status importGlobalPool(NodeImporter &node, GlobalPooling kind) {
  if (node.rank(0) < 2)
    return node.error("pools a tensor of rank " + std::to_string(node.rank(0)) +
                      "; the rank must be at least 2");
  TensorBuilder &t = node.t;
  Shape axes, shape{node.shape(0)[0], node.shape(0)[1]};
  for (int64_t i = 2; i < node.rank(0); ++i) {
    axes.push_back(i);
    shape.push_back(1);
  }
  Value result;
  if (kind == GlobalPooling::Max) {
    result = t.reduceMax(node.in(0), axes);
  } else if (kind == GlobalPooling::Norm) {
    Expected<int64_t> p = readNorm(node);
    if (!p)
      return p.takeError();
    result = rootOf(t, t.reduceSum(powerOf(t, node.in(0), *p), axes), *p);
  } else {
    const auto count = static_cast<double>(productOf(node.shape(0).drop_front(2)));
    const Value sum = t.reduceSum(node.in(0), axes);
    result = divide(node, sum, t.splat(shapeOf(sum), elementTypeOf(sum), count));
  }
  return node.done(t.reshape(result, shape));
}

} // namespace

Expected<Value> averagePool(NodeImporter &node, Value input) {
  Expected<Window> window = readPooling(node);
  if (!window)
    return window.takeError();
  Value padded = padWindow(node, input, *window, node.t.scalar(elementTypeOf(input), 0));
  bool includesPad = node.getInt("count_include_pad", 0) != 0;
  Expected<Value> counts = windowCounts(node, *window, includesPad, elementTypeOf(input));
  if (!counts)
    return counts.takeError();
  return divide(node, poolSum(node, padded, *window), *counts);
}

void addPoolingOps(HandlerTable &table) {
  table[":MaxPool"] = importMaxPool;
  table[":AveragePool"] = importAveragePool;
  table[":LpPool"] = importLpPool;
  const auto global = [](GlobalPooling kind) {
    return [kind](NodeImporter &node) { return importGlobalPool(node, kind); };
  };
  table[":GlobalAveragePool"] = global(GlobalPooling::Average);
  table[":GlobalMaxPool"] = global(GlobalPooling::Max);
  table[":GlobalLpPool"] = global(GlobalPooling::Norm);
}

} // namespace millrace::onnx_import
