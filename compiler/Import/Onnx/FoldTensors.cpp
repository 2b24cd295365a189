// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/FoldTensors.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

#include <cstring>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// Where the elements of a box lie in a tensor: row-major distances times the box's steps.
struct Box {
  int64_t first = 0;
  SmallVector<int64_t> pitches;
};

Box boxOf(ArrayRef<int64_t> shape, ArrayRef<int64_t> offsets, ArrayRef<int64_t> steps) {
  Box box{0, SmallVector<int64_t>(shape.size())};
  int64_t pitch = 1;
  for (size_t d = shape.size(); d-- > 0; pitch *= shape[d]) {
    box.first += offsets[d] * pitch;
    box.pitches[d] = steps[d] * pitch;
  }
  return box;
}

/// Copies elements of `size` bytes from one box to another, `sizes` in each dimension.
void copyBox(const char *from, const Box &source, char *to, const Box &target,
             ArrayRef<int64_t> sizes, int64_t size) {
  if (llvm::is_contained(sizes, 0))
    return;
  SmallVector<int64_t> point(sizes.size(), 0);
  int64_t read = source.first, written = target.first;
  while (true) {
    std::memcpy(to + written * size, from + read * size, static_cast<size_t>(size));
    size_t d = sizes.size();
    for (; d > 0 && point[d - 1] == sizes[d - 1] - 1; --d) {
      read -= point[d - 1] * source.pitches[d - 1];
      written -= point[d - 1] * target.pitches[d - 1];
      point[d - 1] = 0;
    }
    if (d == 0)
      return;
    ++point[d - 1];
    read += source.pitches[d - 1];
    written += target.pitches[d - 1];
  }
}

/// Copies a tensor, or its only element to each place, into a box of `bytes`.
void copyFrom(const ConstantView &view, Box source, std::vector<char> &bytes, const Box &target,
              ArrayRef<int64_t> sizes) {
  if (view.splat)
    source = {0, SmallVector<int64_t>(sizes.size(), 0)};
  copyBox(view.bytes.data(), source, bytes.data(), target, sizes,
          elementBytes(view.type.getElementType()));
}

RankedTensorType typeOfResult(Operation *op) {
  return cast<RankedTensorType>(op->getResult(0).getType());
}

std::vector<char> bytesOf(RankedTensorType type) {
  return std::vector<char>(static_cast<size_t>(type.getNumElements()) *
                           elementBytes(type.getElementType()));
}

/// The numbers of a tensor, or which of them are unknown.
using ViewOf = llvm::function_ref<ConstantView(Value)>;

std::vector<char> slice(tensor::ExtractSliceOp op, const ConstantView &source) {
  std::vector<char> bytes = bytesOf(op.getType().clone(source.type.getElementType()));
  ArrayRef<int64_t> sizes = op.getStaticSizes();
  const SmallVector<int64_t> none(sizes.size(), 0), ones(sizes.size(), 1);
  copyFrom(source,
           boxOf(op.getSourceType().getShape(), op.getStaticOffsets(), op.getStaticStrides()),
           bytes, boxOf(sizes, none, ones), sizes);
  return bytes;
}

std::vector<char> concatenate(tensor::ConcatOp op, ViewOf viewOf) {
  RankedTensorType type = typeOfResult(op);
  std::vector<char> bytes =
      bytesOf(type.clone(viewOf(op.getInputs().front()).type.getElementType()));
  const SmallVector<int64_t> ones(type.getRank(), 1), none(type.getRank(), 0);
  SmallVector<int64_t> offsets = none;
  for (Value input : op.getInputs()) {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(input.getType()).getShape();
    copyFrom(viewOf(input), boxOf(shape, none, ones), bytes, boxOf(type.getShape(), offsets, ones),
             shape);
    offsets[op.getDim()] += shape[op.getDim()];
  }
  return bytes;
}

/// The value around a padded tensor, as it is stored; nothing if it is not a constant.
std::optional<Row> paddingOf(tensor::PadOp op) {
  Attribute constant;
  Value padding = op.getConstantPaddingValue();
  const std::optional<NumberType> type = NumberType::of(typeOfResult(op).getElementType());
  if (!padding || !type || !matchPattern(padding, m_Constant(&constant)))
    return std::nullopt;
  Row row(*type, 1);
  row.set(constant);
  return row;
}

/// `padding` is an element, around `source`.
std::vector<char> pad(tensor::PadOp op, const ConstantView &source, ArrayRef<char> padding) {
  RankedTensorType type = typeOfResult(op);
  std::vector<char> bytes = bytesOf(type.clone(source.type.getElementType()));
  for (size_t i = 0; i < bytes.size(); i += padding.size())
    std::memcpy(&bytes[i], padding.data(), padding.size());
  const SmallVector<int64_t> ones(type.getRank(), 1), none(type.getRank(), 0);
  ArrayRef<int64_t> shape = source.type.getShape();
  copyFrom(source, boxOf(shape, none, ones), bytes, boxOf(type.getShape(), op.getStaticLow(), ones),
           shape);
  return bytes;
}

bool isStatic(ArrayRef<int64_t> values) { return llvm::none_of(values, ShapedType::isDynamic); }

/// Do slices and paddings say where they lie, and do paddings widen?
bool hasKnownPlace(Operation *op) {
  const auto isNegative = [](int64_t value) { return value < 0; };
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return isStatic(slice.getStaticOffsets()) && isStatic(slice.getStaticSizes()) &&
           isStatic(slice.getStaticStrides());
  if (auto pad = dyn_cast<tensor::PadOp>(op))
    return isStatic(pad.getStaticLow()) && isStatic(pad.getStaticHigh()) &&
           llvm::none_of(pad.getStaticLow(), isNegative) &&
           llvm::none_of(pad.getStaticHigh(), isNegative) && paddingOf(pad);
  return true;
}

} // namespace

std::optional<FoldableOp> FoldableOp::create(Operation *op) {
  if (op->getNumResults() != 1)
    return std::nullopt;
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!type || !type.hasStaticShape() || type.getNumElements() == 0 ||
      !NumberType::of(type.getElementType()))
    return std::nullopt;
  FoldableOp foldable;
  foldable.op = op;
  if (auto map = dyn_cast<linalg::LinalgOp>(op)) {
    foldable.body = FoldBody::create(map);
    if (!foldable.body)
      return std::nullopt;
    foldable.tensors.assign(foldable.body->reads().begin(), foldable.body->reads().end());
    return foldable;
  }
  if (!isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::ExtractSliceOp, tensor::ConcatOp,
           tensor::PadOp>(op) ||
      !hasKnownPlace(op))
    return std::nullopt;
  foldable.tensors.assign(op->getOperands().begin(), isa<tensor::ConcatOp>(op)
                                                         ? op->getOperands().end()
                                                         : op->getOperands().begin() + 1);
  return foldable;
}

int64_t FoldableOp::work() const { return body ? body->work() : typeOfResult(op).getNumElements(); }

bool FoldableOp::onlyMoves() const { return body ? body->onlyMoves() : !isa<tensor::ConcatOp>(op); }

bool FoldableOp::isCostly() const { return body ? body->isCostly() : isa<tensor::ConcatOp>(op); }

std::optional<FoldedTensor> FoldableOp::evaluate(ConstantOf constantOf) const {
  if (body)
    return body->evaluate(constantOf);
  RankedTensorType type = typeOfResult(op);
  const auto move = [&](ViewOf viewOf, ArrayRef<char> padding) -> ConstantView {
    const ConstantView source = viewOf(tensors.front());
    RankedTensorType moved = type.clone(source.type.getElementType());
    if (auto concat = dyn_cast<tensor::ConcatOp>(op))
      return ownConstant(moved, concatenate(concat, viewOf));
    if (auto piece = dyn_cast<tensor::ExtractSliceOp>(op))
      return ownConstant(moved, slice(piece, source));
    if (auto padded = dyn_cast<tensor::PadOp>(op))
      return ownConstant(moved, pad(padded, source, padding));
    ConstantView reshaped = source;
    reshaped.type = moved;
    return reshaped;
  };
  std::vector<char> padding;
  if (auto padded = dyn_cast<tensor::PadOp>(op)) {
    padding.resize(elementBytes(type.getElementType()));
    paddingOf(padded)->store(padding.data(), {0, 1, 0, 0});
  }
  FoldedTensor result{move([&](Value tensor) { return constantOf(tensor).numbers; }, padding),
                      std::nullopt};
  const char zero = 0;
  if (llvm::any_of(tensors, [&](Value tensor) { return constantOf(tensor).unknown.has_value(); }))
    result.unknown = move(
        [&](Value tensor) {
          const FoldedTensor &source = constantOf(tensor);
          RankedTensorType tensorType = source.numbers.type,
                           flags = tensorType.clone(IntegerType::get(type.getContext(), 8));
          return source.unknown.value_or(ConstantView{flags, ArrayRef(&zero, 1), true, nullptr});
        },
        ArrayRef(&zero, 1));
  if (result.unknown && !llvm::is_contained(result.unknown->bytes, 1))
    result.unknown.reset();
  return result;
}

} // namespace millrace::onnx_import
