// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/LaneProduct.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Support/OnnxValue.h"

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
  llvm::erase_if(found, [&](linalg::GenericOp op) {
    const Value summed = op->getOperand(0);
    return !ranges.of(summed).isFinite() && !(isComputed(summed) && ofFinite.of(summed).isFinite());
  });
  for (linalg::GenericOp op : found)
    multiply(op);
}

} // namespace millrace::forms
