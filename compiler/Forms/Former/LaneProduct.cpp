// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/LaneProduct.h"

#include "compiler/Forms/Former/Former.h"
#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace millrace::forms {

using namespace mlir;

linalg::GenericOp multiplyLanes(OpBuilder &builder, Location loc, Value rows,
                                std::span<const float> matrix, int64_t extent, StringRef name,
                                ArrayRef<unsigned> by) {
  const auto type = cast<RankedTensorType>(rows.getType());
  const auto rank = unsigned(type.getRank());
  const auto bytes = ArrayRef(reinterpret_cast<const char *>(matrix.data()), matrix.size() * 4);
  SmallVector<int64_t> factorShape;
  for (unsigned dim : by)
    factorShape.push_back(type.getDimSize(dim));
  factorShape.append({type.getShape().back(), extent});
  const auto matrixType = RankedTensorType::get(factorShape, type.getElementType());
  Value factors = arith::ConstantOp::create(builder, loc, makeConstant(matrixType, bytes, name));

  // [..., from], [from, to] -> [..., to]; `from` is the last loop.
  SmallVector<AffineExpr> dims;
  for (unsigned dim = 0; dim <= rank; ++dim)
    dims.push_back(builder.getAffineDimExpr(dim));
  const auto mapOf = [&](ArrayRef<AffineExpr> exprs) {
    return AffineMap::get(rank + 1, 0, exprs, builder.getContext());
  };
  SmallVector<AffineExpr> read(dims.begin(), dims.begin() + rank - 1);
  read.push_back(dims[rank]);
  SmallVector<AffineExpr> factor;
  for (unsigned dim : by)
    factor.push_back(dims[dim]);
  factor.append({dims[rank], dims[rank - 1]});
  SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::parallel);
  loops.push_back(utils::IteratorType::reduction);
  SmallVector<int64_t> shape(type.getShape());
  shape.back() = extent;
  Value zero = arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(0));
  Value empty = tensor::EmptyOp::create(builder, loc, shape, type.getElementType());
  Value init =
      linalg::FillOp::create(builder, loc, ValueRange(zero), ValueRange(empty)).getResult(0);
  auto product = linalg::GenericOp::create(
      builder, loc, TypeRange(init.getType()), ValueRange{rows, factors}, ValueRange(init),
      {mapOf(read), mapOf(factor), mapOf(ArrayRef(dims).take_front(rank))}, loops,
      [&](OpBuilder &b, Location at, ValueRange x) {
        Value multiplied = arith::MulFOp::create(b, at, x[0], x[1]);
        Value added = arith::AddFOp::create(b, at, x[2], multiplied);
        linalg::YieldOp::create(b, at, added);
      });
  product->setAttr(kUncounted, builder.getUnitAttr());
  return product;
}

bool isComputed(Value value) {
  Operation *op = value.getDefiningOp();
  while (isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::ExtractSliceOp,
                         linalg::TransposeOp>(op))
    op = op->getOperand(0).getDefiningOp();
  return isa_and_nonnull<linalg::LinalgOp>(op);
}

} // namespace millrace::forms
