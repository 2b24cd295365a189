// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products that mix a few rows with each other, as talking heads mix the scores of heads: what is
// contracted lies in rows, and turning it along the lanes for a product would leave a few lanes to
// each vector.
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace millrace::forms {

using namespace mlir;

namespace {

/// result[.., n] = sum over k of rows[.., k, .., lanes] * weights[n, k], where `turn` moves k last.
struct Mix {
  linalg::LinalgOp product;
  linalg::TransposeOp turn;
  Value joined;     ///< the product's operand, a view of what is turned
  unsigned dim = 0; ///< of what is turned: mixed
  ConstantView weights;
  int64_t results = 0;
  bool resultsFirst = false; ///< weights are [n, k]
};

std::optional<Mix> mixOf(linalg::LinalgOp op, int64_t mostRows) {
  if (op->hasAttr(kDevice) || op.getNumDpsInputs() != 2 || op->getNumResults() != 1 ||
      !isContraction(op) || op.getNumReductionLoops() != 1 ||
      !getElementTypeOrSelf(op->getResult(0)).isF32())
    return std::nullopt;
  const AffineMap a = op.getIndexingMapsArray()[0], w = op.getIndexingMapsArray()[1],
                  to = op.getIndexingMapsArray()[2];
  const unsigned loops = unsigned(op.getNumLoops());
  Value factors = op->getOperand(1);
  auto turned = factors.getDefiningOp<linalg::TransposeOp>(); // of a matrix
  const std::optional<ConstantView> weights = viewConstant(turned ? turned.getInput() : factors);
  // a: rows and what is mixed; the result: rows and results, both last.
  if (!weights || !a.isProjectedPermutation() || !w.isProjectedPermutation() ||
      !to.isProjectedPermutation() || w.getNumResults() != 2 || to.getNumResults() + 1 != loops ||
      a.getNumResults() != to.getNumResults())
    return std::nullopt;
  const AffineExpr k = a.getResults().back(), n = to.getResults().back();
  if (a.getResults().drop_back() != to.getResults().drop_back() ||
      !llvm::is_contained(w.getResults(), k) || !llvm::is_contained(w.getResults(), n) ||
      op.getIteratorTypesArray()[cast<AffineDimExpr>(k).getPosition()] !=
          utils::IteratorType::reduction)
    return std::nullopt;
  Mix mix{op, {}, op->getOperand(0), 0, *weights, 0, (w.getResult(0) == n) != bool(turned)};
  Value source = mix.joined;
  if (auto collapse = source.getDefiningOp<tensor::CollapseShapeOp>();
      collapse && collapse.getReassociationIndices().back().size() == 1)
    source = collapse.getSrc();
  mix.turn = source.getDefiningOp<linalg::TransposeOp>();
  if (!mix.turn)
    return std::nullopt;
  const ArrayRef<int64_t> shape = shapeOf(mix.turn.getInput());
  mix.dim = unsigned(mix.turn.getPermutation().back());
  mix.results = shapeOf(op->getResult(0)).back();
  constexpr int64_t kLanes = 4;    // as many lanes as rows are mixed would do as well
  constexpr int64_t kInstalls = 4; // of the rows themselves, for all that are mixed together
  const int64_t others = ShapedType::getNumElements(shape) / shape[mix.dim] / shape.back();
  if (mix.dim + 1 == shape.size() || shape[mix.dim] > mostRows || others < kInstalls ||
      shape.back() < kLanes * std::max(shape[mix.dim], mix.results))
    return std::nullopt;
  return mix;
}

void mixInRows(Mix &mix) {
  OpBuilder builder(mix.product);
  const Location loc = mix.product.getLoc();
  const Value rows = mix.turn.getInput();
  auto type = cast<RankedTensorType>(rows.getType());
  const auto rank = unsigned(type.getRank());
  const int64_t count = type.getDimSize(mix.dim);
  SmallVector<OpFoldResult> offsets(rank, builder.getIndexAttr(0)), sizes,
      strides(rank, builder.getIndexAttr(1));
  for (int64_t extent : type.getShape())
    sizes.push_back(builder.getIndexAttr(extent));
  sizes[mix.dim] = builder.getIndexAttr(1);
  SmallVector<AffineExpr> row;
  for (unsigned dim = 0; dim < rank; ++dim)
    row.push_back(dim == mix.dim ? builder.getAffineConstantExpr(0)
                                 : builder.getAffineDimExpr(dim));
  const AffineMap one = AffineMap::get(rank, 0, row, builder.getContext()),
                  result = AffineMap::get(rank, 0, builder.getAffineDimExpr(mix.dim));
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  for (int64_t k = 0; k < count; ++k) {
    offsets[mix.dim] = builder.getIndexAttr(k);
    inputs.push_back(tensor::ExtractSliceOp::create(builder, loc, rows, offsets, sizes, strides));
    maps.push_back(one);
  }
  const auto factorType = RankedTensorType::get({mix.results}, builder.getF32Type());
  for (int64_t k = 0; k < count; ++k) {
    SmallVector<float> factors;
    for (int64_t n = 0; n < mix.results; ++n) {
      const int64_t at = mix.resultsFirst ? n * count + k : k * mix.results + n;
      factors.push_back(float(mix.weights.real(mix.weights.splat ? 0 : at)));
    }
    inputs.push_back(arith::ConstantOp::create(
        builder, loc, DenseElementsAttr::get(factorType, ArrayRef<float>(factors))));
    maps.push_back(result);
  }
  SmallVector<int64_t> shape(type.getShape());
  shape[mix.dim] = mix.results;
  maps.push_back(builder.getMultiDimIdentityMap(rank));
  const Value empty = tensor::EmptyOp::create(builder, loc, shape, type.getElementType());
  auto mixed = linalg::GenericOp::create(
      builder, loc, TypeRange(type.clone(shape)), inputs, ValueRange(empty), maps,
      SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel),
      [&](OpBuilder &b, Location at, ValueRange x) {
        Value sum;
        for (int64_t k = 0; k < count; ++k) {
          const Value term =
              arith::MulFOp::create(b, at, x[size_t(k)], x[size_t(count + k)]).getResult();
          sum = sum ? arith::AddFOp::create(b, at, sum, term).getResult() : term;
        }
        linalg::YieldOp::create(b, at, sum);
      });
  Value view = viewOf(builder, mix.turn, mixed->getResult(0));
  view = reshaped(builder, loc, view, shapeOf(mix.product->getResult(0)));
  if (view.getDefiningOp() != mixed.getOperation())
    handOnValue(mix.product, view.getDefiningOp());
  mix.product->getResult(0).replaceAllUsesWith(view);
  mix.product->erase();
  if (auto joined = view.getDefiningOp<tensor::CollapseShapeOp>())
    expandJoined(joined); // a bias is added to rows as they lie, too
}

} // namespace

void mixRows(func::FuncOp function, int64_t mostRows) {
  std::vector<Mix> all;
  function.walk([&](linalg::LinalgOp op) {
    if (std::optional<Mix> mix = mixOf(op, mostRows))
      all.push_back(std::move(*mix));
  });
  for (Mix &mix : all)
    mixInRows(mix);
}

} // namespace millrace::forms
