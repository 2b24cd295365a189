// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/IntegerProduct.h"

#include "compiler/Import/Onnx/Quantization.h"

#include <utility>

using namespace mlir;

namespace millrace::onnx_import {

SignedBytes signedBytes(NodeImporter &node, size_t i, size_t zeroAt) {
  SignedBytes result{node.in(i), node.has(zeroAt) ? node.in(zeroAt) : Value()};
  if (node.inType(i) == HostType::UInt8) {
    result.bytes = flipSign(node.t, result.bytes);
    result.zero = result.zero ? flipSign(node.t, result.zero)
                              : node.t.splat({}, node.t.ops().getI8Type(), -128);
  }
  return result;
}

std::optional<CentredConstant> CentredConstant::of(NodeImporter &node, size_t i, size_t zeroAt,
                                                   size_t axis) {
  CentredConstant result;
  const std::optional<ConstantView> view = viewConstant(node.in(i));
  if (!view || (node.inType(i) != HostType::Int8 && node.inType(i) != HostType::UInt8))
    return std::nullopt;
  result.bytes = *view;
  result.isUnsigned = node.inType(i) == HostType::UInt8;
  if (!node.has(zeroAt))
    return result;
  result.zero = viewConstant(node.in(zeroAt));
  if (!result.zero)
    return std::nullopt;
  const int64_t zeros = result.zero->type.getNumElements();
  if (zeros == 1)
    return result;
  const ArrayRef<int64_t> shape = result.shape();
  if (axis >= shape.size() || zeros != shape[axis])
    return std::nullopt;
  result.count = zeros;
  for (const int64_t extent : shape.drop_front(axis + 1))
    result.inner *= extent;
  return result;
}

int64_t CentredConstant::operator[](int64_t element) const {
  const auto read = [&](const ConstantView &view, int64_t at) {
    const int64_t value = view.integer(view.splat ? 0 : at);
    return isUnsigned ? value & 0xFF : value;
  };
  return read(bytes, element) - (zero ? read(*zero, element / inner % count) : 0);
}

SmallVector<Value> CentredConstant::parts(TensorBuilder &t) const {
  const int64_t elements = bytes.type.getNumElements();
  std::vector<int16_t> rest(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i)
    rest[size_t(i)] = int16_t((*this)[i]);
  const auto type = RankedTensorType::get(shape(), t.ops().getI8Type());
  SmallVector<Value> parts;
  for (const std::vector<char> &part : int8Parts(std::move(rest)))
    parts.push_back(
        arith::ConstantOp::create(t.ops(), cast<TypedAttr>(makeConstant(type, part, "centred"))));
  return parts;
}

Value integerProduct(TensorBuilder &t, Value zero, ArrayRef<Value> parts,
                     llvm::function_ref<Value(Value)> product, Value sums) {
  const Type i32 = t.ops().getI32Type();
  Value result = product(parts.front());
  for (const Value part : parts.drop_front())
    result = t.map({result, product(part)}, i32,
                   [](Scalars &s, ValueRange x) { return Arithmetic(s).add(x[0], x[1]); });
  if (!zero)
    return result;
  return t.map({result, zero, sums}, i32, [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    return a.sub(x[0], a.mul(a.cast(x[1], i32, false), x[2]));
  });
}

Value int32Constant(TensorBuilder &t, ArrayRef<int64_t> shape, ArrayRef<int32_t> values) {
  const auto type = RankedTensorType::get(shape, t.ops().getI32Type());
  const auto *bytes = reinterpret_cast<const char *>(values.data());
  return arith::ConstantOp::create(
      t.ops(), cast<TypedAttr>(makeConstant(type, {bytes, values.size() * 4}, "sums")));
}

} // namespace millrace::onnx_import
