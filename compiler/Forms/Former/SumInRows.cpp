// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Weighted sums over few elements that are compared with the greatest of them (the expectation of a
// softmax over channels). The greatest runs over rows, and so can the sum; a product would want the
// elements along the lanes.
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

namespace millrace::forms {

using namespace mlir;

namespace {

/// result[..] = sum over k of a[.., k, ..] * weights[k].
struct Weighted {
  linalg::LinalgOp product;
  unsigned dim = 0; ///< of a: k
  ConstantView weights;
};

/// The loop of more than one step that the expression is, alone.
std::optional<unsigned> longLoop(linalg::LinalgOp op, AffineExpr expr) {
  std::optional<unsigned> found;
  for (auto [loop, extent] : llvm::enumerate(op.getStaticLoopRanges()))
    if (extent > 1 && expr.isFunctionOfDim(unsigned(loop))) {
      if (found)
        return std::nullopt;
      found = unsigned(loop);
    }
  return found;
}

std::optional<Weighted> weightedOf(linalg::LinalgOp op, int64_t lanes) {
  llvm::APFloat zero(0.0f);
  auto fill = op.getNumDpsInits() == 1
                  ? op.getDpsInitOperand(0)->get().getDefiningOp<linalg::FillOp>()
                  : linalg::FillOp();
  if (op->hasAttr(kDevice) || op.getNumDpsInputs() != 2 || op->getNumResults() != 1 ||
      !isContraction(op) || !getElementTypeOrSelf(op->getResult(0)).isF32() || !fill ||
      !matchPattern(fill.getInputs()[0], m_ConstantFloat(&zero)) || !zero.isZero())
    return std::nullopt;
  const std::optional<ConstantView> weights = viewConstant(op->getOperand(1));
  if (!weights)
    return std::nullopt;
  const Value a = op->getOperand(0);
  const auto steps = op.getStaticLoopRanges();
  std::optional<unsigned> dim;
  SmallVector<unsigned> kept, made; // loops, in the order of a and of the result
  for (auto [d, expr] : llvm::enumerate(op.getIndexingMapsArray()[0].getResults())) {
    if (shapeOf(a)[d] == 1)
      continue;
    const std::optional<unsigned> loop = longLoop(op, expr);
    if (!loop || steps[*loop] != shapeOf(a)[d]) // each element once
      return std::nullopt;
    if (op.getIteratorTypesArray()[*loop] != utils::IteratorType::reduction)
      kept.push_back(*loop);
    else if (dim)
      return std::nullopt;
    else
      dim = unsigned(d);
  }
  for (AffineExpr expr : op.getIndexingMapsArray()[2].getResults())
    if (const std::optional<unsigned> loop = longLoop(op, expr))
      made.push_back(*loop);
  if (!dim || kept != made ||
      cast<RankedTensorType>(op->getOperand(1).getType()).getNumElements() != shapeOf(a)[*dim] ||
      !isComparedAlong(a, *dim, lanes))
    return std::nullopt;
  return Weighted{op, *dim, *weights};
}

void sumInRows(const Weighted &weighted) {
  linalg::LinalgOp product = weighted.product;
  OpBuilder builder(product);
  const Location loc = product.getLoc();
  const Value a = product->getOperand(0);
  auto type = cast<RankedTensorType>(a.getType());
  const auto rank = unsigned(type.getRank());
  SmallVector<float> factors;
  for (int64_t k = 0; k < type.getDimSize(weighted.dim); ++k)
    factors.push_back(float(weighted.weights.real(weighted.weights.splat ? 0 : k)));
  const Value constant = arith::ConstantOp::create(
      builder, loc,
      DenseElementsAttr::get(RankedTensorType::get({int64_t(factors.size())}, builder.getF32Type()),
                             ArrayRef<float>(factors)));
  const AffineMap all = builder.getMultiDimIdentityMap(rank),
                  along = AffineMap::get(rank, 0, builder.getAffineDimExpr(weighted.dim));
  const Value none = tensor::EmptyOp::create(builder, loc, type.getShape(), builder.getF32Type());
  auto times = linalg::GenericOp::create(
      builder, loc, TypeRange(none.getType()), ValueRange{a, constant}, ValueRange(none),
      ArrayRef<AffineMap>{all, along, all},
      SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel),
      [](OpBuilder &b, Location at, ValueRange x) {
        linalg::YieldOp::create(b, at, arith::MulFOp::create(b, at, x[0], x[1]).getResult());
      });
  SmallVector<int64_t> shape;
  SmallVector<AffineExpr> kept;
  SmallVector<utils::IteratorType> kinds(rank, utils::IteratorType::parallel);
  kinds[weighted.dim] = utils::IteratorType::reduction;
  for (unsigned d = 0; d < rank; ++d)
    if (d != weighted.dim) {
      shape.push_back(type.getDimSize(d));
      kept.push_back(builder.getAffineDimExpr(d));
    }
  auto fill = product.getDpsInitOperand(0)->get().getDefiningOp<linalg::FillOp>();
  const Value empty = tensor::EmptyOp::create(builder, loc, shape, builder.getF32Type());
  const Value begin =
      linalg::FillOp::create(builder, loc, fill.getInputs(), ValueRange(empty)).getResult(0);
  auto sum = linalg::GenericOp::create(
      builder, loc, TypeRange(begin.getType()), ValueRange{times.getResult(0)}, ValueRange(begin),
      ArrayRef<AffineMap>{all, AffineMap::get(rank, 0, kept, builder.getContext())}, kinds,
      [](OpBuilder &b, Location at, ValueRange x) {
        linalg::YieldOp::create(b, at, arith::AddFOp::create(b, at, x[1], x[0]).getResult());
      });
  const Value view = reshaped(builder, loc, sum.getResult(0), shapeOf(product->getResult(0)));
  handOnValue(product, view.getDefiningOp());
  product->getResult(0).replaceAllUsesWith(view);
  product->erase();
}

} // namespace

bool comparesAlong(linalg::LinalgOp map, unsigned dim) {
  const AffineExpr along = map.getMatchingIndexingMap(map.getDpsInitOperand(0)).getResult(dim);
  return llvm::any_of(map.getDpsInputOperands(), [&](OpOperand *input) {
    linalg::LinalgOp most = formOf(behindUnitDims(input->get()));
    const Combiner combiner = most && !isMap(most) ? combinerOf(most) : Combiner::None;
    return (combiner == Combiner::Max || combiner == Combiner::Min) &&
           most.getNumDpsInputs() == 1 &&
           !map.getMatchingIndexingMap(input).isFunctionOfDim(
               cast<AffineDimExpr>(along).getPosition());
  });
}

std::optional<unsigned> longestBeside(ArrayRef<int64_t> shape, unsigned dim, int64_t lanes) {
  constexpr int64_t kFew = 4; // elements along `dim` that a vector holds so often are few
  const auto longest = unsigned(llvm::max_element(shape) - shape.begin());
  return kFew * shape[dim] <= lanes && shape[longest] >= lanes ? std::optional(longest)
                                                               : std::nullopt;
}

bool isComparedAlong(Value value, unsigned dim, int64_t lanes) {
  constexpr int kLongestChain = 8; // of maps
  if (!longestBeside(shapeOf(value), dim, lanes))
    return false;
  for (int depth = 0; depth < kLongestChain; ++depth) {
    linalg::LinalgOp map = formOf(value);
    if (!map || !isMap(map) || map.getNumDpsInputs() == 0 ||
        !map.getIndexingMapsArray()[0].isIdentity())
      return false;
    if (comparesAlong(map, dim))
      return true;
    value = map->getOperand(0);
  }
  return false;
}

void sumInRows(func::FuncOp function, int64_t lanes) {
  std::vector<Weighted> all;
  function.walk([&](linalg::LinalgOp op) {
    if (std::optional<Weighted> weighted = weightedOf(op, lanes))
      all.push_back(std::move(*weighted));
  });
  for (const Weighted &weighted : all)
    sumInRows(weighted);
}

} // namespace millrace::forms
