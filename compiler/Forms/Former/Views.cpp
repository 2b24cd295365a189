// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Views.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/IR/IRMapping.h"

namespace millrace::forms {

using namespace mlir;

SmallVector<int64_t> withoutOnes(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> core(shape);
  llvm::erase(core, 1);
  return core;
}

Value reshaped(OpBuilder &builder, Location loc, Value value, ArrayRef<int64_t> shape) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getShape() == shape)
    return value;
  const auto become = [&](ArrayRef<int64_t> next) {
    auto from = cast<RankedTensorType>(value.getType());
    const RankedTensorType to = type.clone(next);
    if (from == to)
      return;
    const auto groups = *getReassociationIndicesForReshape(from, to);
    value = from.getRank() > to.getRank()
                ? tensor::CollapseShapeOp::create(builder, loc, to, value, groups).getResult()
                : tensor::ExpandShapeOp::create(builder, loc, to, value, groups).getResult();
  };
  become(withoutOnes(type.getShape()));
  become(withoutOnes(shape));
  become(shape);
  return value;
}

Value asRows(OpBuilder &builder, Location loc, Value value, RankedTensorType like) {
  const auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape(like.getShape());
  shape.back() = type.getShape().back();
  if (type.getShape() == ArrayRef<int64_t>(shape))
    return value;
  // By way of one dimension for all rows.
  const auto joined = [](int64_t rank) {
    SmallVector<ReassociationIndices> groups(2);
    for (int64_t dim = 0; dim + 1 < rank; ++dim)
      groups[0].push_back(dim);
    groups[1].push_back(rank - 1);
    return groups;
  };
  if (type.getRank() > 2)
    value = tensor::CollapseShapeOp::create(builder, loc, value, joined(type.getRank()));
  if (shape.size() > 2)
    value = tensor::ExpandShapeOp::create(builder, loc,
                                          RankedTensorType::get(shape, type.getElementType()),
                                          value, joined(int64_t(shape.size())));
  return value;
}

Value viewOf(OpBuilder &builder, Operation *view, Value source) {
  if (auto transpose = dyn_cast<linalg::TransposeOp>(view)) {
    auto type = cast<RankedTensorType>(source.getType());
    SmallVector<int64_t> shape;
    for (int64_t dim : transpose.getPermutation())
      shape.push_back(type.getDimSize(unsigned(dim)));
    Value init = tensor::EmptyOp::create(builder, view->getLoc(), shape, type.getElementType());
    return linalg::TransposeOp::create(builder, view->getLoc(), source, init,
                                       transpose.getPermutation())
        ->getResult(0);
  }
  const auto type =
      RankedTensorType::get(cast<RankedTensorType>(view->getResult(0).getType()).getShape(),
                            getElementTypeOrSelf(source));
  IRMapping operands;
  operands.map(view->getOperand(0), source);
  Operation *made = builder.clone(*view, operands);
  made->getResult(0).setType(type);
  return made->getResult(0);
}

Value padAlong(OpBuilder &builder, Location loc, Value input, unsigned dim, int64_t low,
               int64_t high, Value scalar) {
  if (low == 0 && high == 0)
    return input;
  auto type = cast<RankedTensorType>(input.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] += low + high;
  SmallVector<OpFoldResult> lows(shape.size(), builder.getIndexAttr(0)), highs = lows;
  lows[dim] = builder.getIndexAttr(low);
  highs[dim] = builder.getIndexAttr(high);
  return tensor::PadOp::create(builder, loc, RankedTensorType::get(shape, type.getElementType()),
                               input, lows, highs, scalar);
}

} // namespace millrace::forms
