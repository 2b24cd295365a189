// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Attention/TensorBuffers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <optional>

namespace millrace::gpu {

using namespace mlir;

namespace {

/// Groups of neighbouring dimensions of the one shape that are a dimension of the other.
std::optional<SmallVector<ReassociationIndices>> groups(ArrayRef<int64_t> fine,
                                                        ArrayRef<int64_t> coarse) {
  SmallVector<ReassociationIndices> all(coarse.size());
  size_t next = 0;
  for (auto [size, group] : llvm::zip(coarse, all)) {
    int64_t product = 1;
    do {
      if (next == fine.size())
        return std::nullopt;
      product *= fine[next];
      group.push_back(int64_t(next++));
    } while (product < size);
    if (product != size)
      return std::nullopt;
  }
  while (next < fine.size() && !all.empty()) // of size one
    all.back().push_back(int64_t(next++));
  return all;
}

Value reshaped(OpBuilder &b, Location place, Value tensor, ArrayRef<int64_t> shape) {
  const auto type = cast<RankedTensorType>(tensor.getType());
  if (type.getShape() == shape)
    return tensor;
  const auto wanted = RankedTensorType::get(shape, type.getElementType());
  if (int64_t(shape.size()) > type.getRank())
    if (const auto grouped = groups(shape, type.getShape()))
      return tensor::ExpandShapeOp::create(b, place, wanted, tensor, *grouped);
  if (int64_t(shape.size()) < type.getRank())
    if (const auto grouped = groups(type.getShape(), shape))
      return tensor::CollapseShapeOp::create(b, place, wanted, tensor, *grouped);
  // Neither shape is the other one cut: by way of one dimension.
  const int64_t flat[] = {type.getNumElements()};
  return reshaped(b, place, reshaped(b, place, tensor, flat), shape);
}

Value converted(OpBuilder &b, Location place, Value tensor, Type element) {
  const auto type = cast<RankedTensorType>(tensor.getType());
  if (type.getElementType() == element)
    return tensor;
  Value init = tensor::EmptyOp::create(b, place, type.getShape(), element);
  const AffineMap identity = b.getMultiDimIdentityMap(unsigned(type.getRank()));
  return linalg::GenericOp::create(
             b, place, TypeRange(init.getType()), ValueRange{tensor}, ValueRange{init},
             ArrayRef<AffineMap>{identity, identity},
             SmallVector<utils::IteratorType>(size_t(type.getRank()),
                                              utils::IteratorType::parallel),
             [&](OpBuilder &inner, Location at, ValueRange values) {
               Value value = values[0];
               if (value.getType().isInteger(1)) {
                 value = arith::ExtUIOp::create(inner, at, element, value);
               } else {
                 const unsigned wanted = element.getIntOrFloatBitWidth();
                 if (value.getType().getIntOrFloatBitWidth() == wanted) // of the other 16-bit type
                   value = arith::ExtFOp::create(inner, at, inner.getF32Type(), value);
                 value = value.getType().getIntOrFloatBitWidth() > wanted
                             ? Value(arith::TruncFOp::create(inner, at, element, value))
                             : Value(arith::ExtFOp::create(inner, at, element, value));
               }
               linalg::YieldOp::create(inner, at, value);
             })
      .getResult(0);
}

} // namespace

Value bufferOf(OpBuilder &b, Location place, Value tensor, MemRefType memory) {
  tensor = converted(b, place, tensor, memory.getElementType());
  tensor = reshaped(b, place, tensor, memory.getShape());
  return bufferization::ToBufferOp::create(b, place, memory, tensor, /*read_only=*/true);
}

Value tensorOf(OpBuilder &b, Location place, Value buffer, ArrayRef<int64_t> shape) {
  const auto memory = cast<MemRefType>(buffer.getType());
  Value tensor = bufferization::ToTensorOp::create(
      b, place, RankedTensorType::get(memory.getShape(), memory.getElementType()), buffer,
      /*restrict=*/true, /*writable=*/true);
  return reshaped(b, place, tensor, shape);
}

} // namespace millrace::gpu
