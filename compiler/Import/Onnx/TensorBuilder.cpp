// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/TensorBuilder.h"

#include "compiler/Import/Onnx/Arithmetic.h"
#include "compiler/Support/HostTensor.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/DialectResourceBlobManager.h"

#include <limits>
#include <numeric>

using namespace mlir;

namespace millrace::onnx_import {

RankedTensorType typeOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()); }
ArrayRef<int64_t> shapeOf(Value tensor) { return typeOf(tensor).getShape(); }
Type elementTypeOf(Value tensor) { return typeOf(tensor).getElementType(); }

int64_t productOf(ArrayRef<int64_t> shape) {
  int64_t product = 1;
  for (int64_t extent : shape) {
    if (extent == 0)
      return 0;
    if (__builtin_mul_overflow(product, extent, &product))
      product = std::numeric_limits<int64_t>::max();
  }
  return product;
}

std::optional<Shape> broadcastShapes(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  if (a.size() < b.size())
    std::swap(a, b);
  Shape result(a);
  size_t shift = a.size() - b.size();
  for (size_t i = 0; i < b.size(); ++i) {
    int64_t &extent = result[shift + i];
    if (extent != b[i] && extent != 1 && b[i] != 1)
      return std::nullopt;
    if (extent == 1)
      extent = b[i];
  }
  return result;
}

namespace {

TypedAttr scalarAttribute(Type type, double value) {
  if (auto floatType = dyn_cast<FloatType>(type))
    return FloatAttr::get(floatType, value);
  return IntegerAttr::get(type, static_cast<int64_t>(value));
}

/// The smallest group boundaries at which both shapes have covered the same number of elements.
struct ReshapeGroups {
  SmallVector<ReassociationIndices> source, target;
  Shape common;
};

std::optional<ReshapeGroups> groupShapes(ArrayRef<int64_t> source, ArrayRef<int64_t> target) {
  ReshapeGroups groups;
  size_t i = 0, j = 0;
  while (i < source.size() && j < target.size()) {
    ReassociationIndices from{static_cast<int64_t>(i)}, to{static_cast<int64_t>(j)};
    int64_t left = source[i++], right = target[j++];
    while (left != right) {
      if (left < right) {
        if (i == source.size())
          return std::nullopt;
        from.push_back(static_cast<int64_t>(i));
        left *= source[i++];
      } else {
        if (j == target.size())
          return std::nullopt;
        to.push_back(static_cast<int64_t>(j));
        right *= target[j++];
      }
    }
    groups.source.push_back(from);
    groups.target.push_back(to);
    groups.common.push_back(left);
  }
  if (groups.common.empty())
    return groups;
  // What remains has extent 1 and joins the last group.
  for (; i < source.size(); ++i)
    groups.source.back().push_back(static_cast<int64_t>(i));
  for (; j < target.size(); ++j)
    groups.target.back().push_back(static_cast<int64_t>(j));
  return groups;
}

std::string textOf(ArrayRef<int64_t> shape) { return shapeText({shape.begin(), shape.end()}); }

/// The same elements in another shape; null where `value` is no constant.
TypedAttr reshapeConstant(Value value, RankedTensorType type) {
  auto constant = value.getDefiningOp<arith::ConstantOp>();
  if (!constant)
    return {};
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(constant.getValue()))
    return DenseResourceElementsAttr::get(type, resource.getRawHandle());
  auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
  return dense ? TypedAttr(dense.reshape(type)) : TypedAttr();
}

SmallVector<OpFoldResult> indexAttributes(OpBuilder &builder, ArrayRef<int64_t> values) {
  SmallVector<OpFoldResult> result;
  for (int64_t value : values)
    result.push_back(builder.getIndexAttr(value));
  return result;
}

} // namespace

void TensorBuilder::keepFp32(Value value) {
  value.getDefiningOp()->setAttr(kKeepFp32, b.getUnitAttr());
}

Value TensorBuilder::fail(const std::string &text, ArrayRef<int64_t> shape, Type type) {
  if (firstFailure.empty())
    firstFailure = text;
  Shape valid;
  for (int64_t extent : shape)
    valid.push_back(std::max<int64_t>(extent, 0));
  return splat(valid, type, 0);
}

Value TensorBuilder::scalar(Type type, double value) {
  return arith::ConstantOp::create(b, scalarAttribute(type, value));
}

Value TensorBuilder::lowest(Type type, bool isUnsigned) {
  if (isa<FloatType>(type))
    return scalar(type, -std::numeric_limits<double>::infinity());
  unsigned width = type.getIntOrFloatBitWidth();
  APInt value = isUnsigned ? APInt::getMinValue(width) : APInt::getSignedMinValue(width);
  return arith::ConstantOp::create(b, IntegerAttr::get(type, value));
}

Value TensorBuilder::highest(Type type, bool isUnsigned) {
  if (isa<FloatType>(type))
    return scalar(type, std::numeric_limits<double>::infinity());
  unsigned width = type.getIntOrFloatBitWidth();
  APInt value = isUnsigned ? APInt::getMaxValue(width) : APInt::getSignedMaxValue(width);
  return arith::ConstantOp::create(b, IntegerAttr::get(type, value));
}

Value TensorBuilder::splat(ArrayRef<int64_t> shape, Type type, double value) {
  auto tensor = RankedTensorType::get(shape, type);
  return arith::ConstantOp::create(
      b, DenseElementsAttr::get(tensor, Attribute(scalarAttribute(type, value))));
}

Value TensorBuilder::integers(ArrayRef<int64_t> values) {
  auto tensor = RankedTensorType::get({static_cast<int64_t>(values.size())}, b.getI64Type());
  return arith::ConstantOp::create(b, DenseElementsAttr::get(tensor, values));
}

Value TensorBuilder::reals(ArrayRef<int64_t> shape, ArrayRef<float> values, Type type) {
  auto tensor = RankedTensorType::get(shape, type);
  if (type.isF32())
    return arith::ConstantOp::create(b, DenseElementsAttr::get(tensor, values));
  const SmallVector<double> wide(values);
  return arith::ConstantOp::create(b, DenseElementsAttr::get(tensor, ArrayRef(wide)));
}

Value TensorBuilder::empty(ArrayRef<int64_t> shape, Type type) {
  return tensor::EmptyOp::create(b, shape, type);
}

Value TensorBuilder::filled(ArrayRef<int64_t> shape, Value scalar) {
  return linalg::FillOp::create(b, ValueRange(scalar), ValueRange(empty(shape, scalar.getType())))
      .getResult(0);
}

AffineMap TensorBuilder::select(unsigned rank, ArrayRef<unsigned> loops) {
  SmallVector<AffineExpr> results;
  for (unsigned loop : loops)
    results.push_back(b.getAffineDimExpr(loop));
  return AffineMap::get(rank, 0, results, b.getContext());
}

AffineMap TensorBuilder::broadcastMap(ArrayRef<int64_t> shape, ArrayRef<int64_t> result) {
  SmallVector<AffineExpr> exprs;
  if (shape.size() > result.size()) {
    fail("shape " + textOf(shape) + " does not broadcast to " + textOf(result), {}, b.getF32Type());
    shape = shape.take_back(result.size());
  }
  size_t shift = result.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    bool repeats = shape[i] == 1 && result[shift + i] != 1;
    exprs.push_back(repeats ? b.getAffineConstantExpr(0)
                            : b.getAffineDimExpr(static_cast<unsigned>(shift + i)));
  }
  return AffineMap::get(static_cast<unsigned>(result.size()), 0, exprs, b.getContext());
}

AffineMap TensorBuilder::withoutAxes(unsigned rank, ArrayRef<int64_t> axes) {
  SmallVector<unsigned> kept;
  for (unsigned i = 0; i < rank; ++i)
    if (!llvm::is_contained(axes, static_cast<int64_t>(i)))
      kept.push_back(i);
  return select(rank, kept);
}

Value TensorBuilder::map(ArrayRef<Value> inputs, Type elementType, MapBody body) {
  Shape shape(shapeOf(inputs.front()));
  for (Value input : inputs.drop_front()) {
    std::optional<Shape> merged = broadcastShapes(shape, shapeOf(input));
    if (!merged)
      return fail("shapes " + textOf(shape) + " and " + textOf(shapeOf(input)) +
                      " do not broadcast",
                  shape, elementType);
    shape = *merged;
  }
  SmallVector<AffineMap> maps;
  for (Value input : inputs)
    maps.push_back(broadcastMap(shapeOf(input), shape));
  return map(shape, inputs, maps, elementType, body);
}

Value TensorBuilder::map(ArrayRef<int64_t> shape, ArrayRef<Value> inputs, ArrayRef<AffineMap> maps,
                         Type elementType, MapBody body) {
  SmallVector<Value> tensors, arguments(inputs.size());
  SmallVector<AffineMap> tensorMaps;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto constant = inputs[i].getDefiningOp<arith::ConstantOp>();
    auto dense = constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
    if (dense) {
      arguments[i] =
          arith::ConstantOp::create(b, cast<TypedAttr>(dense.getSplatValue<Attribute>()));
      continue;
    }
    tensors.push_back(inputs[i]);
    tensorMaps.push_back(maps[i]);
  }
  auto rank = static_cast<unsigned>(shape.size());
  tensorMaps.push_back(b.getMultiDimIdentityMap(rank));
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  Value init = empty(shape, elementType);
  auto generic = linalg::GenericOp::create(
      b, TypeRange(init.getType()), tensors, ValueRange(init), tensorMaps, iterators,
      [&](OpBuilder &builder, Location location, ValueRange blockArguments) {
        size_t next = 0;
        for (Value &argument : arguments)
          if (!argument)
            argument = blockArguments[next++];
        Scalars scalars(location, builder);
        Value result = body(scalars, arguments);
        linalg::YieldOp::create(scalars, result);
      });
  return generic.getResult(0);
}

Value TensorBuilder::reduce(Value input, ArrayRef<int64_t> axes, Value initial, ReduceBody body) {
  auto rank = static_cast<unsigned>(shapeOf(input).size());
  SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
  Shape shape;
  for (unsigned i = 0; i < rank; ++i) {
    if (llvm::is_contained(axes, static_cast<int64_t>(i)))
      iterators[i] = utils::IteratorType::reduction;
    else
      shape.push_back(shapeOf(input)[i]);
  }
  Value init = filled(shape, initial);
  SmallVector<AffineMap> maps{b.getMultiDimIdentityMap(rank), withoutAxes(rank, axes)};
  auto generic = linalg::GenericOp::create(
      b, TypeRange(init.getType()), ValueRange(input), ValueRange(init), maps, iterators,
      [&](OpBuilder &builder, Location location, ValueRange arguments) {
        Scalars scalars(location, builder);
        Value result = body(scalars, arguments[0], arguments[1]);
        linalg::YieldOp::create(scalars, result);
      });
  return generic.getResult(0);
}

Value TensorBuilder::reduceSum(Value input, ArrayRef<int64_t> axes) {
  return reduce(
      input, axes, scalar(elementTypeOf(input), 0),
      [](Scalars &s, Value element, Value sum) { return Arithmetic(s).add(sum, element); });
}

Value TensorBuilder::reduceMax(Value input, ArrayRef<int64_t> axes, bool isUnsigned) {
  return reduce(input, axes, lowest(elementTypeOf(input), isUnsigned),
                [&](Scalars &s, Value element, Value greatest) {
                  return Arithmetic(s, isUnsigned).max(greatest, element);
                });
}

Value TensorBuilder::contract(Value a, Value w, ArrayRef<int64_t> resultShape,
                              ArrayRef<AffineMap> maps, ArrayRef<unsigned> contracted, Type sum) {
  SmallVector<utils::IteratorType> iterators(maps.front().getNumDims(),
                                             utils::IteratorType::parallel);
  for (unsigned loop : contracted)
    iterators[loop] = utils::IteratorType::reduction;
  if (!sum)
    sum = elementTypeOf(a);
  Value init = filled(resultShape, scalar(sum, 0));
  auto generic = linalg::GenericOp::create(
      b, TypeRange(init.getType()), ValueRange{a, w}, ValueRange(init), maps, iterators,
      [&](OpBuilder &builder, Location location, ValueRange arguments) {
        Scalars scalars(location, builder);
        Arithmetic arithmetic(scalars);
        Value product = arithmetic.mul(arithmetic.cast(arguments[0], sum, false),
                                       arithmetic.cast(arguments[1], sum, false));
        linalg::YieldOp::create(scalars, arithmetic.add(arguments[2], product));
      });
  return generic.getResult(0);
}

Value TensorBuilder::reshape(Value input, ArrayRef<int64_t> shape) {
  if (shapeOf(input) == shape)
    return input;
  auto isNegative = [](int64_t extent) { return extent < 0; };
  if (llvm::any_of(shape, isNegative) || productOf(shape) != productOf(shapeOf(input)))
    return fail("cannot reshape " + textOf(shapeOf(input)) + " to " + textOf(shape), shape,
                elementTypeOf(input));
  if (productOf(shape) == 0)
    return splat(shape, elementTypeOf(input), 0);
  auto target = RankedTensorType::get(shape, elementTypeOf(input));
  if (TypedAttr constant = reshapeConstant(input, target))
    return arith::ConstantOp::create(b, constant);
  if (shape.empty())
    return tensor::CollapseShapeOp::create(b, target, input, ArrayRef<ReassociationIndices>());
  if (shapeOf(input).empty())
    return tensor::ExpandShapeOp::create(b, target, input, ArrayRef<ReassociationIndices>());
  std::optional<ReshapeGroups> groups = groupShapes(shapeOf(input), shape);
  if (groups->common.size() != shapeOf(input).size())
    input = tensor::CollapseShapeOp::create(
        b, RankedTensorType::get(groups->common, elementTypeOf(input)), input, groups->source);
  if (groups->common.size() != shape.size())
    input = tensor::ExpandShapeOp::create(b, target, input, groups->target);
  return input;
}

Value TensorBuilder::transpose(Value input, ArrayRef<int64_t> permutation) {
  Shape shape;
  bool identity = true;
  for (auto [i, axis] : llvm::enumerate(permutation)) {
    shape.push_back(shapeOf(input)[axis]);
    identity &= axis == static_cast<int64_t>(i);
  }
  if (identity)
    return input;
  Value init = empty(shape, elementTypeOf(input));
  return linalg::TransposeOp::create(b, input, init, permutation).getResult().front();
}

Value TensorBuilder::broadcast(Value input, ArrayRef<int64_t> shape) {
  if (shapeOf(input) == shape)
    return input;
  return map(shape, {input}, {broadcastMap(shapeOf(input), shape)}, elementTypeOf(input),
             [](Scalars &, ValueRange arguments) { return arguments[0]; });
}

Value TensorBuilder::repeat(Value input, int64_t axis, int64_t times) {
  Shape single(shapeOf(input)), repeated(single), result(single);
  single.insert(single.begin() + axis + 1, 1);
  repeated.insert(repeated.begin() + axis + 1, times);
  result[axis] *= times;
  return reshape(broadcast(reshape(input, single), repeated), result);
}

Value TensorBuilder::pad(Value input, ArrayRef<int64_t> low, ArrayRef<int64_t> high, Value scalar) {
  auto isZero = [](int64_t amount) { return amount == 0; };
  if (llvm::all_of(low, isZero) && llvm::all_of(high, isZero))
    return input;
  Shape shape(shapeOf(input));
  for (size_t i = 0; i < shape.size(); ++i)
    shape[i] += low[i] + high[i];
  if (productOf(shapeOf(input)) == 0)
    return filled(shape, scalar);
  return tensor::PadOp::create(b, RankedTensorType::get(shape, elementTypeOf(input)), input,
                               indexAttributes(b, low), indexAttributes(b, high), scalar);
}

Value TensorBuilder::slice(Value input, ArrayRef<int64_t> offsets, ArrayRef<int64_t> sizes,
                           ArrayRef<int64_t> strides) {
  Shape steps(strides);
  if (steps.empty())
    steps.assign(sizes.size(), 1);
  for (auto [offset, size, step, extent] : llvm::zip_equal(offsets, sizes, steps, shapeOf(input)))
    if (offset < 0 || size < 0 || (size > 0 && offset + (size - 1) * step >= extent))
      return fail("a slice of " + std::to_string(size) + " elements from " +
                      std::to_string(offset) + " leaves extent " + std::to_string(extent),
                  sizes, elementTypeOf(input));
  if (shapeOf(input) == sizes)
    return input;
  if (productOf(sizes) == 0)
    return splat(sizes, elementTypeOf(input), 0);
  return tensor::ExtractSliceOp::create(b, input, indexAttributes(b, offsets),
                                        indexAttributes(b, sizes), indexAttributes(b, steps));
}

Value TensorBuilder::sliceAxis(Value input, int64_t axis, int64_t offset, int64_t size) {
  Shape offsets(shapeOf(input).size(), 0), sizes(shapeOf(input));
  offsets[axis] = offset;
  sizes[axis] = size;
  return slice(input, offsets, sizes);
}

Value TensorBuilder::concat(ArrayRef<Value> inputs, int64_t axis) {
  ArrayRef<int64_t> first = shapeOf(inputs.front());
  for (Value input : inputs)
    if (shapeOf(input).size() != first.size() || axis < 0 ||
        axis >= static_cast<int64_t>(first.size()))
      return fail("cannot join " + textOf(first) + " and " + textOf(shapeOf(input)) +
                      " along dimension " + std::to_string(axis),
                  first, elementTypeOf(inputs.front()));
  SmallVector<Value> parts;
  for (Value input : inputs)
    if (shapeOf(input)[axis] != 0)
      parts.push_back(input);
  if (parts.empty())
    return inputs.front();
  return parts.size() == 1 ? parts.front() : tensor::ConcatOp::create(b, axis, parts).getResult();
}

} // namespace millrace::onnx_import
