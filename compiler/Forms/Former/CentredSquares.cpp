// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

#include <cmath>

namespace millrace::forms {

using namespace mlir;

namespace {

/// Fewer squares leave the rounding of each to be seen in their sum.
constexpr int64_t kLeastSquares = 64;
/// Sums of so many elements are shorter than what a sum waits for another one, about.
constexpr int64_t kMostAtOnce = 1 << 13;

/// A sum over some loops of one tensor that it reads with a projected permutation.
bool sumsOneTensor(linalg::LinalgOp op) {
  return op && op->getNumResults() == 1 && op.getNumDpsInputs() == 1 && !isMap(op) &&
         isa<linalg::GenericOp>(op) && combinerOf(op) == Combiner::Sum &&
         op.getIndexingMapsArray()[0].isProjectedPermutation() &&
         op.getIndexingMapsArray()[1].isProjectedPermutation() &&
         op.getIndexingMapsArray()[0].getNumResults() == op.getNumLoops();
}

/// Loops of more than one point, as the dimensions of the summed tensor: those that are summed, and
/// the others as the result has them.
struct SummedDims {
  SmallVector<unsigned> summed, kept;
  bool operator==(const SummedDims &) const = default;
};
SummedDims dimsOf(linalg::LinalgOp sum) {
  SummedDims dims;
  const AffineMap read = sum.getIndexingMapsArray()[0];
  SmallVector<unsigned> ofLoop(sum.getNumLoops());
  for (auto [dim, expr] : llvm::enumerate(read.getResults()))
    ofLoop[cast<AffineDimExpr>(expr).getPosition()] = unsigned(dim);
  const auto add = [&](SmallVector<unsigned> &to, unsigned loop) {
    if (shapeOf(sum->getOperand(0))[ofLoop[loop]] > 1)
      to.push_back(ofLoop[loop]);
  };
  for (auto [loop, iterator] : llvm::enumerate(sum.getIteratorTypesArray()))
    if (iterator == utils::IteratorType::reduction)
      add(dims.summed, unsigned(loop));
  llvm::sort(dims.summed);
  for (AffineExpr expr : sum.getIndexingMapsArray()[1].getResults())
    add(dims.kept, cast<AffineDimExpr>(expr).getPosition());
  return dims;
}

/// What the map makes of its arguments, if that is all it does.
Value scalarOf(linalg::LinalgOp map) {
  if (!map || !isa<linalg::GenericOp>(map) || !isMap(map) || map->getNumResults() != 1 ||
      !quantKind(map).empty() || !map.getIndexingMapsArray().back().isIdentity())
    return Value();
  return map.getBlock()->getTerminator()->getOperand(0);
}

/// The operand of the map whose scalar this is.
OpOperand *operandOf(linalg::LinalgOp map, Value scalar) {
  auto argument = dyn_cast<BlockArgument>(scalar);
  return argument && argument.getOwner() == map.getBlock() &&
                 argument.getArgNumber() < map.getNumDpsInputs()
             ? map.getDpsInputOperand(argument.getArgNumber())
             : nullptr;
}

/// The scalar that divides the map's first operand by `count`, all that the map makes of it.
Operation *divisionBy(double count, linalg::LinalgOp map) {
  const BlockArgument argument = map.getBlock()->getArgument(0);
  Operation *op = argument.hasOneUse() ? *argument.user_begin() : nullptr;
  FloatAttr by;
  if (!op || !isa<arith::DivFOp, arith::MulFOp>(op) || op->getOperand(0) != argument ||
      !matchPattern(op->getOperand(1), m_Constant(&by)))
    return nullptr;
  const double factor = by.getValueAsDouble() * (isa<arith::DivFOp>(op) ? 1 / count : count);
  return std::abs(factor - 1) < 1e-6 ? op : nullptr;
}

double countOf(linalg::LinalgOp sum) {
  double count = 1;
  for (const unsigned dim : dimsOf(sum).summed)
    count *= double(shapeOf(sum->getOperand(0))[dim]);
  return count;
}

/// The sum of whose elements this is the mean; null if it is something else.
linalg::LinalgOp sumOfMean(Value mean) {
  linalg::LinalgOp map = formOf(mean);
  const Value scalar = scalarOf(map);
  linalg::LinalgOp sum =
      scalar && map.getNumDpsInputs() == 1 && map.getIndexingMapsArray()[0].isIdentity()
          ? formOf(map->getOperand(0))
          : nullptr;
  return sum && sumsOneTensor(sum) && combinedValue(sum) == sum.getBlock()->getArgument(0) &&
                 scalar.getDefiningOp() && scalar.getDefiningOp() == divisionBy(countOf(sum), map)
             ? sum
             : nullptr;
}

/// Through views that add or drop dimensions of one element.
Value withoutUnitDims(Value value) {
  const auto type = [](Value of) { return dimsBeside1(of).size(); };
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op) ||
        type(op->getOperand(0)) != type(value))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// Is the value rounded when it is stored, as a product adds to it? Inputs and rows of tables may
/// be exact in 16 bits however little they differ from each other, and so may what is moved of
/// them.
bool isRounded(Value value) {
  constexpr size_t kMostOperations = 64; // the nearest first
  SetVector<Operation *> seen;
  const auto add = [&](Value of) {
    if (Operation *op = of.getDefiningOp(); op && seen.size() < kMostOperations)
      seen.insert(op);
  };
  add(value);
  for (size_t i = 0; i < seen.size(); ++i) {
    Operation *op = seen[i];
    linalg::LinalgOp map = formOf(op->getResult(0));
    if (map && isContraction(map))
      return true;
    if (map ? isMap(map) && quantKind(map).empty()
            : isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::ExtractSliceOp,
                  tensor::ConcatOp, tensor::PadOp, linalg::TransposeOp, linalg::BroadcastOp>(op))
      for (const Value operand : op->getOperands())
        add(operand);
  }
  return false;
}

struct CentredSquares {
  linalg::LinalgOp sum;              ///< of the squares
  linalg::LinalgOp square = nullptr; ///< the map that makes them, if the sum does not
  linalg::LinalgOp user = nullptr;   ///< the one map that takes the sum
  Operation *variance = nullptr;     ///< the sum by their number, in the user
  Value x = {}, mean = {};           ///< what the squares are of
};

/// The tensor whose elements the scalar squares, all that the operation takes; null if there is
/// none.
Value squaredBy(linalg::LinalgOp op, Value scalar) {
  auto product = scalar ? scalar.getDefiningOp<arith::MulFOp>() : nullptr;
  OpOperand *x = product ? operandOf(op, product.getLhs()) : nullptr,
            *y = product ? operandOf(op, product.getRhs()) : nullptr;
  return x && y && llvm::all_of(op.getDpsInputs(), [&](Value input) { return input == x->get(); })
             ? x->get()
             : Value();
}

std::optional<CentredSquares> centredSquaresOf(linalg::LinalgOp sum) {
  if (!sumsOneTensor(sum))
    return std::nullopt;
  CentredSquares found{sum};
  Value scalar = combinedValue(sum);
  Value centred = sum->getOperand(0);
  if (scalar == sum.getBlock()->getArgument(0)) {
    found.square = formOf(centred);
    scalar = scalarOf(found.square);
    if (!scalar || !centred.hasOneUse() ||
        !llvm::all_of(found.square.getIndexingMapsArray(),
                      [](AffineMap map) { return map.isIdentity(); }))
      return std::nullopt;
  }
  centred = squaredBy(found.square ? found.square : sum, scalar);
  if (!centred)
    return std::nullopt;
  linalg::LinalgOp difference = formOf(centred);
  const Value less = scalarOf(difference);
  auto minus = less ? less.getDefiningOp<arith::SubFOp>() : nullptr;
  if (!minus || difference.getNumDpsInputs() != 2)
    return std::nullopt;
  OpOperand *from = operandOf(difference, minus.getLhs()),
            *taken = operandOf(difference, minus.getRhs());
  if (!from || !taken || from == taken || !difference.getMatchingIndexingMap(from).isIdentity())
    return std::nullopt;
  found.x = from->get();
  found.mean = withoutUnitDims(taken->get());
  linalg::LinalgOp mean = sumOfMean(found.mean);
  if (!mean || mean->getOperand(0) != found.x ||
      found.mean.getType() != sum->getResult(0).getType())
    return std::nullopt;
  const SummedDims dims = dimsOf(sum);
  if (!(dimsOf(mean) == dims))
    return std::nullopt;
  SmallVector<unsigned> handed; // dimensions of x along which the mean differs
  for (auto [dim, expr] : llvm::enumerate(difference.getMatchingIndexingMap(taken).getResults())) {
    if (shapeOf(taken->get())[dim] == 1)
      continue;
    auto loop = dyn_cast<AffineDimExpr>(expr);
    if (!loop)
      return std::nullopt;
    handed.push_back(loop.getPosition());
  }
  const double count = countOf(sum);
  if (isKept(withoutUnitDims(found.x)) || !isRounded(found.x) || handed != dims.kept ||
      count < kLeastSquares || !sum->getResult(0).hasOneUse())
    return std::nullopt;
  found.user = dyn_cast<linalg::LinalgOp>(*sum->getResult(0).user_begin());
  if (!scalarOf(found.user) || found.user.getNumDpsInputs() != 1 ||
      !found.user.getIndexingMapsArray()[0].isIdentity() ||
      found.user->getResult(0).getType() != found.mean.getType())
    return std::nullopt;
  found.variance = divisionBy(count, found.user);
  return found.variance ? std::optional(found) : std::nullopt;
}

/// The operation on another tensor.
Value cloneOn(OpBuilder &builder, linalg::LinalgOp op, Value input) {
  Operation *clone = builder.clone(*op);
  for (OpOperand *operand : op.getDpsInputOperands())
    clone->setOperand(operand->getOperandNumber(), input);
  clone->removeAttr(kOnnxValue);
  return clone->getResult(0);
}

/// Where the view has the dimension, whole and alone.
std::optional<unsigned> dimInView(Operation *view, unsigned dim) {
  if (isa<tensor::PadOp>(view))
    return dim;
  auto collapse = dyn_cast<tensor::CollapseShapeOp>(view);
  auto expand = dyn_cast<tensor::ExpandShapeOp>(view);
  if (!collapse && !expand)
    return std::nullopt;
  const int64_t extent = shapeOf(view->getOperand(0))[dim];
  const ArrayRef<int64_t> shape = shapeOf(view->getResult(0));
  for (const auto &[merged, group] : llvm::enumerate(collapse ? collapse.getReassociationIndices()
                                                              : expand.getReassociationIndices())) {
    if (collapse ? !llvm::is_contained(group, int64_t(dim)) : merged != dim)
      continue;
    for (const int64_t to : collapse ? ReassociationIndices{int64_t(merged)} : group)
      if (shape[size_t(to)] == extent)
        return unsigned(to);
  }
  return std::nullopt;
}

/// Does a product take the value, or what maps and views make of it, along other dimensions than
/// `dim`? Then the value lies along those.
bool isReadAcross(Value value, unsigned dim) {
  constexpr size_t kMostValues = 64; // the nearest first
  SetVector<std::pair<Value, unsigned>> seen;
  seen.insert({value, dim});
  for (size_t i = 0; i < seen.size() && seen.size() < kMostValues; ++i) {
    const auto [of, at] = seen[i];
    for (OpOperand &use : of.getUses()) {
      auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
      if (!op || op->getNumResults() != 1) {
        if (const auto to = dimInView(use.getOwner(), at))
          seen.insert({use.getOwner()->getResult(0), *to});
        continue;
      }
      const AffineExpr expr = op.getMatchingIndexingMap(&use).getResult(at);
      const AffineMap result = op.getIndexingMapsArray().back();
      for (auto [number, iterator] : llvm::enumerate(op.getIteratorTypesArray())) {
        if (iterator != utils::IteratorType::parallel || !expr.isFunctionOfDim(unsigned(number)))
          continue;
        if (isContraction(op) && !isDepthwise(op))
          return true;
        if (const auto to =
                result.getResultPosition(getAffineDimExpr(unsigned(number), op.getContext())))
          seen.insert({op->getResult(0), *to});
      }
    }
  }
  return false;
}

/// Are both sums of the normalisation better made at once?
bool areMadeAtOnce(const CentredSquares &centred) {
  const Value differences =
      centred.square ? centred.square->getOperand(0) : centred.sum->getOperand(0);
  const SummedDims dims = dimsOf(centred.sum);
  return cast<RankedTensorType>(differences.getType()).getNumElements() <= kMostAtOnce ||
         (dims.summed.size() == 1 && isReadAcross(differences, dims.summed.front()));
}

/// Does the sum add up many squares to a number of which a root is taken, at once or after other
/// maps, and nothing else?
bool isUnderRoot(linalg::LinalgOp sum) {
  constexpr unsigned kMostMaps = 4; // a mean, an epsilon, a view of either
  if (!sumsOneTensor(sum) || countOf(sum) < kLeastSquares)
    return false;
  const Value input = sum->getOperand(0);
  const bool isSquare = combinedValue(sum) == sum.getBlock()->getArgument(0)
                            ? bool(squaredBy(formOf(input), scalarOf(formOf(input))))
                            : bool(squaredBy(sum, combinedValue(sum)));
  Operation *op = sum;
  for (unsigned maps = 0; isSquare && maps < kMostMaps && op->getResult(0).hasOneUse(); ++maps) {
    op = *op->getResult(0).user_begin();
    auto map = dyn_cast<linalg::LinalgOp>(op);
    if (map ? !scalarOf(map) : !isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op))
      return false;
    if (map && llvm::any_of(*map.getBlock(),
                            [](Operation &each) { return isa<math::SqrtOp, math::RsqrtOp>(each); }))
      return true;
  }
  return false;
}

void expand(CentredSquares found) {
  OpBuilder builder(found.user);
  const Location loc = found.user.getLoc();
  const auto type = cast<RankedTensorType>(found.mean.getType());
  Value squares = found.x;
  for (linalg::LinalgOp op : {found.square, found.sum})
    if (op)
      squares = cloneOn(builder, op, squares);
  const Value init =
      tensor::EmptyOp::create(builder, loc, type.getShape(), type.getElementType()).getResult();
  const SmallVector<AffineMap> maps(3, builder.getMultiDimIdentityMap(unsigned(type.getRank())));
  const SmallVector<utils::IteratorType> loops(size_t(type.getRank()),
                                               utils::IteratorType::parallel);
  auto map = linalg::GenericOp::create(
      builder, loc, TypeRange(type), ValueRange{squares, found.mean}, ValueRange(init), maps, loops,
      [&](OpBuilder &b, Location at, ValueRange x) {
        IRMapping known;
        known.map(found.user.getBlock()->getArgument(0), x[0]);
        for (Operation &op : *found.user.getBlock()) {
          Operation *clone = b.clone(op, known);
          if (&op != found.variance)
            continue;
          const Value less = arith::SubFOp::create(
              b, at, clone->getResult(0), arith::MulFOp::create(b, at, x[1], x[1]).getResult());
          const Value none =
              arith::ConstantOp::create(b, at, FloatAttr::get(less.getType(), 0.0)).getResult();
          known.map(op.getResult(0), arith::MaximumFOp::create(b, at, less, none).getResult());
        }
      });
  handOnValue(found.user, map);
  // What is squared, and what scales a whole row, is not rounded.
  for (Operation *row : {found.mean.getDefiningOp(), map.getOperation()})
    row->setAttr(kKeepFp32, builder.getUnitAttr());
  found.user->getResult(0).replaceAllUsesWith(map.getResult(0));
  for (linalg::LinalgOp op : {found.user, found.sum, found.square})
    if (op)
      op->erase();
}

} // namespace

void prepareSquares(func::FuncOp function) {
  SmallVector<CentredSquares> all;
  function.walk([&](linalg::GenericOp op) {
    if (op->hasAttr(kDevice))
      return;
    const std::optional<CentredSquares> centred = centredSquaresOf(op);
    if (centred && areMadeAtOnce(*centred))
      all.push_back(*centred);
    else if (isUnderRoot(op))
      op->setAttr(kRoundedSquares, UnitAttr::get(op.getContext()));
    if (centred && op->hasAttr(kRoundedSquares)) // what all of a row is less is not rounded
      centred->mean.getDefiningOp()->setAttr(kKeepFp32, UnitAttr::get(op.getContext()));
  });
  for (const CentredSquares &found : all)
    expand(found);
}

} // namespace millrace::forms
