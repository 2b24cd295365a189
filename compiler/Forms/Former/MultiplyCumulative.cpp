// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/LaneProduct.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace millrace::forms {

using namespace mlir;

namespace {

/// The longest dimension: a matrix of its extent squared becomes a constant.
constexpr int64_t kMostExtent = 2048;

Value transposed(OpBuilder &builder, Location loc, Value value, ArrayRef<int64_t> order) {
  const auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape;
  for (const int64_t dim : order)
    shape.push_back(type.getDimSize(unsigned(dim)));
  Value init = tensor::EmptyOp::create(builder, loc, shape, type.getElementType());
  return linalg::TransposeOp::create(builder, loc, value, init, order)->getResult(0);
}

void multiply(linalg::GenericOp op) {
  const ArrayRef<int64_t> how = op->getAttrOfType<DenseI64ArrayAttr>(kCumulative).asArrayRef();
  const auto type = cast<RankedTensorType>(op->getResult(0).getType());
  const int64_t axis = how[0], extent = type.getDimSize(unsigned(axis));
  const bool isExclusive = how[1], isReversed = how[2];
  std::vector<float> matrix(size_t(extent * extent));
  for (int64_t from = 0; from < extent; ++from)
    for (int64_t to = 0; to < extent; ++to)
      matrix[size_t(from * extent + to)] =
          (isReversed ? from > to : from < to) || (from == to && !isExclusive);
  SmallVector<int64_t> order; // its own inverse
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    order.push_back(dim);
  std::swap(order[size_t(axis)], order.back());
  OpBuilder builder(op);
  const Location loc = op.getLoc();
  const bool isLast = axis + 1 == type.getRank();
  Value rows = op->getOperand(0);
  if (!isLast)
    rows = transposed(builder, loc, rows, order);
  linalg::GenericOp product = multiplyLanes(builder, loc, rows, matrix, extent, "sums");
  Value sums = product->getResult(0);
  if (!isLast)
    sums = transposed(builder, loc, sums, order);
  handOnValue(op, sums.getDefiningOp());
  op->getResult(0).replaceAllUsesWith(sums);
  op->erase();
}

/// What lies `distance` before each element, or behind it, along the axis; 0 where nothing does.
Value moved(OpBuilder &builder, Location loc, Value value, unsigned axis, int64_t distance,
            bool isReversed) {
  const auto type = cast<RankedTensorType>(value.getType());
  const Value zero =
      arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type.getElementType()));
  const Value padded = padAlong(builder, loc, value, axis, isReversed ? 0 : distance,
                                isReversed ? distance : 0, zero);
  SmallVector<int64_t> offsets(size_t(type.getRank()), 0);
  offsets[axis] = isReversed ? distance : 0;
  const SmallVector<OpFoldResult> steps(offsets.size(), builder.getIndexAttr(1));
  return tensor::ExtractSliceOp::create(
      builder, loc, padded, getAsIndexOpFoldResult(builder.getContext(), offsets),
      getAsIndexOpFoldResult(builder.getContext(), type.getShape()), steps);
}

/// In steps: after the k-th each element is a sum of up to 2^k.
void sumInSteps(linalg::GenericOp op) {
  const ArrayRef<int64_t> how = op->getAttrOfType<DenseI64ArrayAttr>(kCumulative).asArrayRef();
  const auto type = cast<RankedTensorType>(op->getResult(0).getType());
  const int64_t axis = how[0], extent = type.getDimSize(unsigned(axis));
  OpBuilder builder(op);
  const Location loc = op.getLoc();
  const auto before = [&](Value value, int64_t distance) {
    return moved(builder, loc, value, unsigned(axis), distance, how[2] != 0);
  };
  Value sums = op->getOperand(0);
  if (how[1] != 0)
    sums = before(sums, 1);
  const AffineMap each = builder.getMultiDimIdentityMap(unsigned(type.getRank()));
  const SmallVector<utils::IteratorType> loops(size_t(type.getRank()),
                                               utils::IteratorType::parallel);
  for (int64_t distance = 1; distance < extent; distance *= 2) {
    Value init = tensor::EmptyOp::create(builder, loc, type.getShape(), type.getElementType());
    sums = linalg::GenericOp::create(builder, loc, TypeRange(type),
                                     ValueRange{sums, before(sums, distance)}, ValueRange(init),
                                     {each, each, each}, loops,
                                     [](OpBuilder &b, Location at, ValueRange x) {
                                       Value sum = arith::AddFOp::create(b, at, x[0], x[1]);
                                       linalg::YieldOp::create(b, at, sum);
                                     })
               ->getResult(0);
  }
  if (sums != op->getOperand(0))
    handOnValue(op, sums.getDefiningOp());
  op->getResult(0).replaceAllUsesWith(sums);
  op->erase();
}

} // namespace

void multiplyCumulative(func::FuncOp function, ElementType stored) {
  SmallVector<linalg::GenericOp> found;
  function.walk([&](linalg::GenericOp op) {
    const auto how = op->getAttrOfType<DenseI64ArrayAttr>(kCumulative);
    const auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    if (how && !op->hasAttr(kDevice) && type && type.getElementType().isF32() &&
        type.getDimSize(unsigned(how[0])) <= kMostExtent)
      found.push_back(op);
  });
  if (found.empty())
    return;
  const Ranges ranges(function, stored), ofFinite(function, stored, /*givesFinite=*/true);
  SmallVector<bool> areFinite;
  for (linalg::GenericOp op : found) {
    const Value summed = op->getOperand(0);
    areFinite.push_back(ranges.of(summed).isFinite() ||
                        (isComputed(summed) && ofFinite.of(summed).isFinite()));
  }
  for (auto [op, isFinite] : llvm::zip(found, areFinite))
    isFinite ? multiply(op) : sumInSteps(op);
}

} // namespace millrace::forms
