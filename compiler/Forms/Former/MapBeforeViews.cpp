// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/IR/IRMapping.h"

namespace millrace::forms {

using namespace mlir;

namespace {

/// A map of one tensor, element by element, to as many of the same type.
bool mapsOneTensor(linalg::GenericOp op) {
  return op.getNumDpsInputs() == 1 && op->getNumResults() == 1 && quantKind(op).empty() &&
         !op->hasAttr(kKeepFp32) && op.getNumParallelLoops() == op.getNumLoops() &&
         !op.hasIndexSemantics() && op->getOperand(0).getType() == op->getResult(0).getType() &&
         llvm::all_of(op.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }) &&
         op.getMatchingBlockArgument(op.getDpsInitOperand(0)).use_empty();
}

/// Transposes or cuts dimensions. Where it joins some (groups and their channels), its source has
/// shorter lanes than what it shows.
bool joinsNothing(Operation *view) {
  auto collapse = dyn_cast_or_null<tensor::CollapseShapeOp>(view);
  if (!collapse)
    return isa_and_nonnull<linalg::TransposeOp, tensor::ExpandShapeOp>(view);
  const ArrayRef<int64_t> shape = collapse.getSrcType().getShape();
  return llvm::all_of(collapse.getReassociationIndices(), [&](const ReassociationIndices &group) {
    return llvm::count_if(group, [&](int64_t dim) { return shape[size_t(dim)] > 1; }) <= 1;
  });
}

void mapBeforeViews(linalg::GenericOp map) {
  SmallVector<Operation *> views;
  Value value = map->getOperand(0);
  while (joinsNothing(value.getDefiningOp()) && value.hasOneUse()) {
    views.push_back(value.getDefiningOp());
    value = views.back()->getOperand(0);
  }
  if (views.empty() || !value.getDefiningOp() || !value.hasOneUse() ||
      value.getDefiningOp()->hasTrait<OpTrait::ConstantLike>())
    return;
  OpBuilder builder(map);
  const auto type = cast<RankedTensorType>(value.getType());
  Value init =
      tensor::EmptyOp::create(builder, map.getLoc(), type.getShape(), type.getElementType());
  const SmallVector<AffineMap> same(2, builder.getMultiDimIdentityMap(unsigned(type.getRank())));
  const SmallVector<utils::IteratorType> loops(size_t(type.getRank()),
                                               utils::IteratorType::parallel);
  auto mapped = linalg::GenericOp::create(builder, map.getLoc(), TypeRange{type}, ValueRange{value},
                                          ValueRange{init}, same, loops);
  IRMapping captured;
  map.getRegion().cloneInto(&mapped.getRegion(), captured);
  IRMapping operands;
  operands.map(value, mapped->getResult(0));
  Operation *last = nullptr;
  for (Operation *view : llvm::reverse(views)) {
    last = builder.clone(*view, operands);
    last->removeAttr(kOnnxValue); // the value's image under the map
  }
  handOnValue(map, last);
  map->getResult(0).replaceAllUsesWith(last->getResult(0));
  map->erase();
  for (Operation *view : views)
    view->erase();
}

} // namespace

void mapBeforeViews(func::FuncOp function) {
  SmallVector<linalg::GenericOp> maps;
  function.walk([&](linalg::GenericOp op) {
    if (!op->hasAttr(kDevice) && mapsOneTensor(op))
      maps.push_back(op);
  });
  for (linalg::GenericOp op : maps)
    mapBeforeViews(op);
}

} // namespace millrace::forms
