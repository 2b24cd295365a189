// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations whose results are known at import: constants, shapes, ranges.
#include "compiler/Import/Onnx/Handlers.h"

#include <cmath>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

Value constantTensor(NodeImporter &node, ElementsAttr elements) {
  return arith::ConstantOp::create(node.t.ops(), cast<TypedAttr>(elements));
}

Status importConstant(NodeImporter &node) {
  TensorBuilder &t = node.t;
  if (const onnx::AttributeProto *value = node.attribute("value")) {
    Expected<ElementsAttr> elements = importTensor(value->t(), t.ops().getContext());
    if (!elements)
      return node.error(elements.error());
    return node.done(constantTensor(node, *elements), *hostTypeOf(value->t().data_type()));
  }
  if (node.attribute("value_float"))
    return node.done(t.splat({}, t.ops().getF32Type(), node.getFloat("value_float", 0)),
                     HostType::Float32);
  if (node.attribute("value_int"))
    return node.done(t.reshape(t.integers({node.getInt("value_int", 0)}), {}), HostType::Int64);
  if (node.attribute("value_ints"))
    return node.done(t.integers(node.getInts("value_ints")), HostType::Int64);
  if (const onnx::AttributeProto *reals = node.attribute("value_floats")) {
    SmallVector<float> values(reals->floats().begin(), reals->floats().end());
    return node.done(t.reals({static_cast<int64_t>(values.size())}, values, t.ops().getF32Type()),
                     HostType::Float32);
  }
  return node.error("sparse and string constants are not supported");
}

/// Stays a splat, whatever its size.
Status importConstantOfShape(NodeImporter &node) {
  std::optional<Shape> shape = node.constantIntegers(0);
  if (!shape)
    return node.error("its shape is not constant");
  const onnx::AttributeProto *value = node.attribute("value");
  if (!value)
    return node.done(node.t.splat(*shape, node.t.ops().getF32Type(), 0), HostType::Float32);
  Expected<ElementsAttr> element = importTensor(value->t(), node.t.ops().getContext());
  if (!element)
    return node.error(element.error());
  auto dense = dyn_cast<DenseElementsAttr>(*element);
  if (!dense || dense.getNumElements() != 1)
    return node.error("its value has " + std::to_string((*element).getNumElements()) +
                      " elements; it must have one");
  auto type = RankedTensorType::get(*shape, dense.getElementType());
  auto splat = DenseElementsAttr::get(type, *dense.getValues<Attribute>().begin());
  return node.done(constantTensor(node, splat), *hostTypeOf(value->t().data_type()));
}

Status importShape(NodeImporter &node) {
  int64_t rank = node.rank(0);
  auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  int64_t start = clamp(node.getInt("start", 0)), end = clamp(node.getInt("end", rank));
  ArrayRef<int64_t> shape = node.shape(0);
  return node.done(
      node.t.integers(start < end ? shape.slice(start, end - start) : ArrayRef<int64_t>()),
      HostType::Int64);
}

Status importSize(NodeImporter &node) {
  return node.done(node.t.reshape(node.t.integers({productOf(node.shape(0))}), {}),
                   HostType::Int64);
}

Status importRange(NodeImporter &node) {
  std::optional<double> start = node.constantReal(0), limit = node.constantReal(1),
                        delta = node.constantReal(2);
  if (!start || !limit || !delta || *delta == 0)
    return node.error("its start, limit and delta are not constant, or delta is 0");
  auto count = static_cast<int64_t>(std::max(0.0, std::ceil((*limit - *start) / *delta)));
  Type type = elementTypeOf(node.in(0));
  SmallVector<Attribute> elements;
  for (int64_t i = 0; i < count; ++i) {
    double value = *start + static_cast<double>(i) * *delta;
    elements.push_back(isa<FloatType>(type) ? Attribute(FloatAttr::get(type, value))
                                            : IntegerAttr::get(type, static_cast<int64_t>(value)));
  }
  return node.done(
      constantTensor(node, DenseElementsAttr::get(RankedTensorType::get({count}, type), elements)));
}

/// 1 on diagonal k.
Status importEyeLike(NodeImporter &node) {
  int64_t k = node.getInt("k", 0);
  const onnx::AttributeProto *dtype = node.attribute("dtype");
  std::optional<HostType> type = dtype ? hostTypeOf(static_cast<int>(dtype->i())) : node.inType(0);
  if (!type)
    return node.error("its element type is not supported");
  Type elementType = computeType(*type, node.t.ops().getContext());
  Value none = node.t.splat(node.shape(0), elementType, 0);
  Value result = node.t.map({none}, elementType, [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    Value row = linalg::IndexOp::create(s, 0), column = linalg::IndexOp::create(s, 1);
    Value offset = arith::ConstantIndexOp::create(s, k);
    return a.choose(a.compare(Arithmetic::Order::Equal, a.add(row, offset), column),
                    a.like(x[0], 1), x[0]);
  });
  return node.done(result, *type);
}

} // namespace

void addConstantOps(HandlerTable &table) {
  table[":Constant"] = importConstant;
  table[":ConstantOfShape"] = importConstantOfShape;
  table[":Shape"] = importShape;
  table[":Size"] = importSize;
  table[":Range"] = importRange;
  table[":EyeLike"] = importEyeLike;
}

} // namespace millrace::onnx_import
