// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/LaneProduct.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Support/OnnxValue.h"

namespace millrace::forms {

using namespace mlir;

namespace {

/// The tensor whose blocks `broadcast` hands their sums to: [..., parts, block], summed along
/// `block`. Null if it does something else.
Value blocksOf(linalg::GenericOp broadcast) {
  const auto type = dyn_cast<RankedTensorType>(broadcast->getResult(0).getType());
  if (!isMap(broadcast) || !type || type.getRank() < 2 || !type.getElementType().isF32() ||
      broadcast.getNumDpsInputs() != 1 ||
      broadcast.getBody()->getTerminator()->getOperand(0) != broadcast.getBody()->getArgument(0))
    return Value();
  const auto last = unsigned(type.getRank()) - 1;
  const AffineMap read = broadcast.getIndexingMapsArray()[0];
  if (!broadcast.getIndexingMapsArray()[1].isIdentity() || read.isFunctionOfDim(last) ||
      read.getNumResults() < last)
    return Value();
  for (auto [i, expr] : llvm::enumerate(read.getResults()))
    if (expr != (i < last ? getAffineDimExpr(unsigned(i), broadcast.getContext())
                          : getAffineConstantExpr(0, broadcast.getContext())))
      return Value();
  Value sums = broadcast->getOperand(0);
  if (auto expanded = sums.getDefiningOp<tensor::ExpandShapeOp>()) // by a dimension of 1
    sums = expanded.getSrc();
  linalg::LinalgOp sum = formOf(sums);
  if (!sum || combinerOf(sum) != Combiner::Sum || sum.getNumReductionLoops() != 1 ||
      sum.getNumDpsInputs() != 1 || !sum->getResult(0).hasOneUse() ||
      !sum.getIndexingMapsArray()[0].isIdentity() ||
      sum.getIteratorTypesArray().back() != utils::IteratorType::reduction ||
      combinedValue(sum) != sum.getBlock()->getArgument(0) ||
      sum->getOperand(0).getType() != Type(type))
    return Value();
  return sum->getOperand(0);
}

void multiplyBlocks(linalg::GenericOp broadcast, Value blocks) {
  const auto type = cast<RankedTensorType>(blocks.getType());
  const ArrayRef<int64_t> shape = type.getShape();
  const int64_t block = shape.back(), extent = block * shape[shape.size() - 2];
  OpBuilder builder(broadcast);
  const Location loc = broadcast.getLoc();
  SmallVector<ReassociationIndices> joined;
  for (int64_t dim = 0; dim + 1 < type.getRank(); ++dim)
    joined.push_back({dim});
  joined.back().push_back(type.getRank() - 1);
  Value rows = builder.createOrFold<tensor::CollapseShapeOp>(loc, blocks, joined);
  std::vector<float> ones(size_t(extent * extent));
  for (int64_t i = 0; i < extent; ++i)
    for (int64_t j = i / block * block; j < (i / block + 1) * block; ++j)
      ones[size_t(i * extent + j)] = 1;
  auto product = multiplyLanes(builder, loc, rows, ones, extent, "blocks");
  product->setAttr(kKeepFp32, builder.getUnitAttr());
  Value result = tensor::ExpandShapeOp::create(builder, loc, type, product.getResult(0), joined);
  for (Operation *user : llvm::make_early_inc_range(broadcast->getUsers()))
    if (auto view = dyn_cast<tensor::CollapseShapeOp>(user);
        view && view.getType() == product.getResult(0).getType())
      view.replaceAllUsesWith(product.getResult(0));
  broadcast->getResult(0).replaceAllUsesWith(result);
}

} // namespace

void multiplyBlocks(func::FuncOp function, ElementType stored) {
  SmallVector<std::pair<linalg::GenericOp, Value>> found;
  function.walk([&](linalg::GenericOp op) {
    if (Value blocks = blocksOf(op))
      found.push_back({op, blocks});
  });
  if (found.empty())
    return;
  const Ranges ranges(function, stored);
  for (auto [broadcast, blocks] : found)
    if (ranges.of(blocks).isFinite())
      multiplyBlocks(broadcast, blocks);
}

} // namespace millrace::forms
