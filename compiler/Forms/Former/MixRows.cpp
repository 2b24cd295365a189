// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products that mix a few rows with each other, as talking heads mix the scores of heads: what is
// contracted lies in rows, and turning it along the lanes for a product would leave a few lanes to
// each vector.
#include "compiler/Forms/Former/ChannelMap.h"
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/LaneProduct.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace millrace::forms {

using namespace mlir;

namespace {

/// result[.., n, .., lanes] = sum over k of rows[.., k, .., lanes] * factors[k * results + n].
struct Mix {
  Operation *product;
  Value rows;
  unsigned dim = 0; ///< of the rows: mixed
  int64_t results = 0;
  std::vector<float> factors;
  linalg::TransposeOp turn; ///< which the product has moved dim behind the lanes; null if none
  linalg::GenericOp map;    ///< of the rows' elements, such as dequantises them; null if none
};

/// The constants of a product of `count` rows and so many results.
bool setFactors(Mix &mix, Value constants, int64_t count, bool resultsFirst) {
  const std::optional<std::vector<double>> reals = constantReals(constants);
  if (!reals)
    return false;
  for (int64_t k = 0; k < count; ++k)
    for (int64_t n = 0; n < mix.results; ++n)
      mix.factors.push_back(
          float((*reals)[size_t(resultsFirst ? n * count + k : k * mix.results + n)]));
  return true;
}

/// Of a matrix product, whose rows are turned to have along the lanes what it mixes.
std::optional<Mix> mixOfTurned(linalg::LinalgOp op, int64_t mostRows) {
  if (op.getNumDpsInputs() != 2 || !isContraction(op) || op.getNumReductionLoops() != 1)
    return std::nullopt;
  const AffineMap a = op.getIndexingMapsArray()[0], w = op.getIndexingMapsArray()[1],
                  to = op.getIndexingMapsArray()[2];
  // a: rows and what is mixed; the result: rows and results, both last.
  if (!a.isProjectedPermutation() || !w.isProjectedPermutation() || !to.isProjectedPermutation() ||
      w.getNumResults() != 2 || to.getNumResults() + 1 != unsigned(op.getNumLoops()) ||
      a.getNumResults() != to.getNumResults())
    return std::nullopt;
  const AffineExpr k = a.getResults().back(), n = to.getResults().back();
  if (a.getResults().drop_back() != to.getResults().drop_back() ||
      !llvm::is_contained(w.getResults(), k) || !llvm::is_contained(w.getResults(), n) ||
      op.getIteratorTypesArray()[cast<AffineDimExpr>(k).getPosition()] !=
          utils::IteratorType::reduction)
    return std::nullopt;
  Value source = op->getOperand(0), factors = op->getOperand(1);
  const auto beforeCollapse = [](Value value) {
    auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>();
    return collapse && collapse.getReassociationIndices().back().size() == 1 ? collapse.getSrc()
                                                                             : value;
  };
  source = beforeCollapse(source);
  linalg::GenericOp map;
  if (Operation *its = source.getDefiningOp();
      isMapOfElements(its) && source.hasOneUse() && !isNamedByUser(its)) {
    map = cast<linalg::GenericOp>(source.getDefiningOp());
    source = beforeCollapse(map->getOperand(0));
  }
  Mix mix{
      op, {}, 0, shapeOf(op->getResult(0)).back(), {}, source.getDefiningOp<linalg::TransposeOp>(),
      map};
  if (!mix.turn)
    return std::nullopt;
  mix.rows = mix.turn.getInput();
  mix.dim = unsigned(mix.turn.getPermutation().back());
  const ArrayRef<int64_t> shape = shapeOf(mix.rows);
  constexpr int64_t kLanes = 4;    // as many lanes as rows are mixed would do as well
  constexpr int64_t kInstalls = 4; // of the rows themselves, for all that are mixed together
  const int64_t others = ShapedType::getNumElements(shape) / shape[mix.dim] / shape.back();
  auto turned = factors.getDefiningOp<linalg::TransposeOp>(); // of a matrix
  if (mix.dim + 1 == shape.size() || shape[mix.dim] > mostRows || others < kInstalls ||
      shape.back() < kLanes * std::max(shape[mix.dim], mix.results) ||
      !setFactors(mix, turned ? turned.getInput() : factors, shape[mix.dim],
                  (w.getResult(0) == n) != bool(turned)))
    return std::nullopt;
  return mix;
}

/// Of a convolution of single points, whose images are scores: a row for each head and query.
std::optional<Mix> mixOfScores(linalg::Conv2DNchwFchwOp op, int64_t mostRows) {
  const ArrayRef<int64_t> weights = shapeOf(op->getOperand(1));
  const auto isOne = [](int64_t step) { return step == 1; };
  Mix mix{op, op->getOperand(0), 1, weights[0], {}, {}, {}};
  if (weights[2] != 1 || weights[3] != 1 || weights[1] > mostRows ||
      !llvm::all_of(op.getStrides().getValues<int64_t>(), isOne) || !isProductOfTwo(mix.rows) ||
      !setFactors(mix, op->getOperand(1), weights[1], /*resultsFirst=*/true))
    return std::nullopt;
  return mix;
}

std::optional<Mix> mixOf(linalg::LinalgOp op, int64_t mostRows) {
  if (op->hasAttr(kDevice) || op->getNumResults() != 1 ||
      !getElementTypeOrSelf(op->getResult(0)).isF32())
    return std::nullopt;
  auto conv = dyn_cast<linalg::Conv2DNchwFchwOp>(op.getOperation());
  return conv ? mixOfScores(conv, mostRows) : mixOfTurned(op, mostRows);
}

void mixInRows(Mix &mix) {
  OpBuilder builder(mix.product);
  const Location loc = mix.product->getLoc();
  const Value rows = mix.map ? mapAgain(builder, mix.map, mix.rows) : mix.rows;
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
    const auto factors = ArrayRef(mix.factors).slice(size_t(k * mix.results), size_t(mix.results));
    inputs.push_back(
        arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(factorType, factors)));
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
  Value view = mixed->getResult(0);
  if (mix.turn)
    view = viewOf(builder, mix.turn, view);
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
  SmallVector<linalg::LinalgOp> products;
  function.walk([&](linalg::LinalgOp op) {
    if (isContraction(op) || isa<linalg::Conv2DNchwFchwOp>(op.getOperation()))
      products.push_back(op);
  });
  for (linalg::LinalgOp op : products)
    if (std::optional<Mix> mix = mixOf(op, mostRows))
      mixInRows(*mix);
}

} // namespace millrace::forms
