// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scores of pixels that are cut into rows and columns for what is added to them there, and joined
// again: the addends are joined instead, and the scores lie along all of the pixels.
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace millrace::forms {

using namespace mlir;

namespace {

/// A map of `value`, element by element, and of what it is repeated beside, or a rounding of it.
bool mapsBeside(linalg::GenericOp op, Value value) {
  const bool isRounding = !quantKind(op).empty();
  return op->getNumResults() == 1 && !op->hasAttr(kDevice) &&
         op.getNumParallelLoops() == op.getNumLoops() && !op.hasIndexSemantics() &&
         llvm::count(op.getDpsInputs(), value) == 1 &&
         op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity() &&
         op.getMatchingBlockArgument(op.getDpsInitOperand(0)).use_empty() &&
         llvm::all_of(op.getDpsInputOperands(), [&](OpOperand *input) {
           const AffineMap map = op.getMatchingIndexingMap(input);
           return input->get() == value ? map.isIdentity()
                  : isRounding          ? map.getNumResults() == 0
                                        : map.isProjectedPermutation(/*allowZeroInResults=*/true);
         });
}

using Operations = SmallPtrSet<Operation *, 16>;

/// What rewritings left behind that nobody takes any more.
Operations deadOf(Block &block) {
  Operations dead;
  for (Operation &op : llvm::reverse(block))
    if (op.getNumResults() > 0 && isMemoryEffectFree(&op) &&
        llvm::all_of(op.getUsers(), [&](Operation *user) { return dead.contains(user); }))
      dead.insert(&op);
  return dead;
}

/// What alone takes the value, dead operations aside; null if several do.
Operation *onlyUser(Value value, const Operations &dead) {
  Operation *only = nullptr;
  for (OpOperand &use : value.getUses()) {
    if (dead.contains(use.getOwner()))
      continue;
    if (only)
      return nullptr;
    only = use.getOwner();
  }
  return only;
}

/// With all that takes what is made, which is dead. What is made later may have its address.
void eraseWithUsers(Operation *op, Operations &dead, Operations &erased) {
  while (!op->use_empty())
    eraseWithUsers(*op->user_begin(), dead, erased);
  dead.erase(op);
  erased.insert(op);
  op->erase();
}

/// Maps from what cuts to what joins again as it was; none where something else is between.
SmallVector<linalg::GenericOp> mapsBetween(tensor::ExpandShapeOp cut, tensor::CollapseShapeOp &join,
                                           const Operations &dead) {
  SmallVector<linalg::GenericOp> maps;
  Value value = cut.getResult();
  while (Operation *user = onlyUser(value, dead)) {
    join = dyn_cast<tensor::CollapseShapeOp>(user);
    if (join)
      return withoutOnes(shapeOf(join)) == withoutOnes(shapeOf(cut.getSrc()))
                 ? maps
                 : SmallVector<linalg::GenericOp>();
    auto map = dyn_cast<linalg::GenericOp>(user);
    if (!map || !mapsBeside(map, value))
      break;
    maps.push_back(map);
    value = map->getResult(0);
  }
  return {};
}

Value joined(OpBuilder &builder, Value value, tensor::CollapseShapeOp join) {
  return tensor::CollapseShapeOp::create(builder, value.getLoc(), value,
                                         join.getReassociationIndices());
}

/// The map's operand in all places of its loops, joined.
Value joinedOperand(OpBuilder &builder, linalg::GenericOp map, OpOperand *operand,
                    tensor::CollapseShapeOp join) {
  const auto all = cast<RankedTensorType>(map->getResult(0).getType());
  const Type element = getElementTypeOrSelf(operand->get().getType());
  const Location loc = operand->get().getLoc();
  const Value init = tensor::EmptyOp::create(builder, loc, all.getShape(), element);
  const auto rank = unsigned(all.getRank());
  auto repeated = linalg::GenericOp::create(
      builder, loc, TypeRange(init.getType()), ValueRange{operand->get()}, ValueRange(init),
      ArrayRef<AffineMap>{map.getMatchingIndexingMap(operand),
                          builder.getMultiDimIdentityMap(rank)},
      SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel),
      [](OpBuilder &b, Location at, ValueRange x) { linalg::YieldOp::create(b, at, x[0]); });
  return joined(builder, repeated.getResult(0), join);
}

void joinBesideScores(tensor::ExpandShapeOp cut, Operations &dead, Operations &erased) {
  tensor::CollapseShapeOp join;
  const SmallVector<linalg::GenericOp> maps = mapsBetween(cut, join, dead);
  const bool isBeside = llvm::any_of(maps, [](linalg::GenericOp map) {
    return llvm::any_of(map.getDpsInputOperands(), [&](OpOperand *input) {
      return !map.getMatchingIndexingMap(input).isIdentity() &&
             map.getMatchingIndexingMap(input).getNumResults() > 0;
    });
  });
  if (!isBeside || !isProductOfTwo(cut.getSrc()))
    return;
  OpBuilder at(cut);
  Value from = cut.getResult(), to = reshaped(at, cut.getLoc(), cut.getSrc(), shapeOf(join));
  const auto rank = unsigned(join.getResultType().getRank());
  for (linalg::GenericOp map : maps) {
    OpBuilder builder(map);
    const AffineMap same = builder.getMultiDimIdentityMap(rank);
    SmallVector<Value> inputs;
    SmallVector<AffineMap> places;
    for (OpOperand *input : map.getDpsInputOperands()) {
      const bool isScalar = map.getMatchingIndexingMap(input).getNumResults() == 0;
      inputs.push_back(input->get() == from ? to
                       : isScalar           ? input->get()
                                            : joinedOperand(builder, map, input, join));
      places.push_back(isScalar ? AffineMap::get(rank, 0, builder.getContext()) : same);
    }
    places.push_back(same);
    const auto type = cast<RankedTensorType>(map->getResult(0).getType())
                          .clone(cast<RankedTensorType>(to.getType()).getShape());
    const Value init =
        tensor::EmptyOp::create(builder, map.getLoc(), type.getShape(), type.getElementType());
    auto beside = linalg::GenericOp::create(
        builder, map.getLoc(), TypeRange(type), inputs, ValueRange(init), places,
        SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel));
    IRMapping captured;
    map.getRegion().cloneInto(&beside.getRegion(), captured);
    if (!quantKind(map).empty())
      beside->setDiscardableAttrs(map->getDiscardableAttrDictionary());
    beside->removeAttr(kOnnxValue);
    from = map->getResult(0);
    to = beside->getResult(0);
  }
  handOnValue(join, to.getDefiningOp());
  join.getResult().replaceAllUsesWith(to);
  eraseWithUsers(cut, dead, erased);
}

} // namespace

void joinBesideScores(func::FuncOp function) {
  SmallVector<tensor::ExpandShapeOp> cuts;
  function.walk([&](tensor::ExpandShapeOp cut) { cuts.push_back(cut); });
  Operations dead = deadOf(function.getBody().front()), erased;
  for (tensor::ExpandShapeOp cut : cuts)
    if (!erased.contains(cut))
      joinBesideScores(cut, dead, erased);
}

} // namespace millrace::forms
