// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Views of the function's arguments that the host writes as they show: patches of an image as rows,
// which no layout of the image gives where their elements lie apart in it.
#include "compiler/Forms/Former/Former.h"

namespace millrace::forms {

using namespace mlir;

namespace {

/// The steps of one dimension of a view through the tensor behind it, outermost first.
struct Step {
  int64_t extent = 1, dim = 0, stride = 1; ///< of the tensor behind
};
using Steps = SmallVector<SmallVector<Step>>; ///< per dimension of the view

/// Steps through what `dims` of the tensor behind are joined to, as steps through those; nothing
/// where a step would not move one of them evenly.
std::optional<SmallVector<Step>> throughJoined(Step step, ArrayRef<int64_t> dims,
                                               ArrayRef<int64_t> shape) {
  SmallVector<Step> inner; // innermost first
  int64_t below = 1;       // elements that one of the dimension spans
  for (int64_t dim : llvm::reverse(dims)) {
    const int64_t extent = shape[size_t(dim)], span = below * extent;
    if (step.extent > 1 && step.stride < span && extent > 1) {
      if (step.stride % below != 0 || span % step.stride != 0)
        return std::nullopt;
      const int64_t here = std::min(step.extent, span / step.stride);
      if (step.extent % here != 0)
        return std::nullopt;
      inner.push_back({here, dim, step.stride / below});
      step = {step.extent / here, step.dim, span};
    }
    below = span;
  }
  if (step.extent > 1)
    return std::nullopt;
  std::reverse(inner.begin(), inner.end());
  return inner;
}

/// The steps through the source of a view.
std::optional<Steps> behind(Operation *view, const Steps &steps) {
  Steps result;
  for (const SmallVector<Step> &dim : steps) {
    SmallVector<Step> its;
    for (const Step &step : dim) {
      if (auto transpose = dyn_cast<linalg::TransposeOp>(view)) {
        its.push_back({step.extent, transpose.getPermutation()[size_t(step.dim)], step.stride});
      } else if (auto expand = dyn_cast<tensor::ExpandShapeOp>(view)) {
        ArrayRef<int64_t> shape = shapeOf(expand.getResult());
        for (auto [source, group] : llvm::enumerate(expand.getReassociationIndices())) {
          const auto at = llvm::find(group, step.dim);
          if (at == group.end())
            continue;
          int64_t below = 1;
          for (int64_t inner : llvm::make_range(std::next(at), group.end()))
            below *= shape[size_t(inner)];
          its.push_back({step.extent, int64_t(source), step.stride * below});
        }
      } else if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(view)) {
        std::optional<SmallVector<Step>> through = throughJoined(
            step, collapse.getReassociationIndices()[size_t(step.dim)], shapeOf(collapse.getSrc()));
        if (!through)
          return std::nullopt;
        its.append(*through);
      } else {
        return std::nullopt;
      }
    }
    result.push_back(its);
  }
  return result;
}

/// What the value shows by reshapes and transposes alone, and its steps through that.
std::optional<std::pair<Value, Steps>> behindMoves(Value value) {
  Steps steps;
  for (auto [dim, extent] : llvm::enumerate(shapeOf(value)))
    steps.push_back({Step{extent, int64_t(dim), 1}});
  for (Operation *view = value.getDefiningOp();
       isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp, linalg::TransposeOp>(view);
       view = value.getDefiningOp()) {
    std::optional<Steps> next = behind(view, steps);
    if (!next)
      return std::nullopt;
    steps = std::move(*next);
    value = view->getOperand(0);
  }
  return std::pair(value, steps);
}

/// Do neighbours of the view's last dimension lie apart in what it shows?
bool isScattered(const SmallVector<Step> &last, ArrayRef<int64_t> shape) {
  int64_t next = 0; // where the step outside has to go on
  for (const Step &step : llvm::reverse(last)) {
    int64_t below = step.stride;
    for (int64_t size : shape.drop_front(size_t(step.dim) + 1))
      below *= size;
    if (next && below != next)
      return true;
    next = below * step.extent;
  }
  return false;
}

/// Are elements along the last dimension summed, or reduced otherwise, but not by products?
bool isSummedAlong(Value view) {
  return llvm::any_of(view.getUses(), [&](OpOperand &use) {
    auto op = dyn_cast<linalg::LinalgOp>(use.getOwner());
    if (!op || isContraction(op) || op.getNumReductionLoops() == 0)
      return false;
    const auto last = dyn_cast<AffineDimExpr>(op.getMatchingIndexingMap(&use).getResults().back());
    return last && op.getIteratorTypesArray()[last.getPosition()] == utils::IteratorType::reduction;
  });
}

} // namespace

/// Products take the view's elements from the argument by their weights' rows. What computes with
/// them first, in the view's own shape, would take them piece by piece.
void Former::findShownArguments() {
  function.walk([&](Operation *op) {
    if (!isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, linalg::TransposeOp>(op) ||
        !isView(op))
      return;
    const bool isComputedWith = llvm::any_of(op->getUsers(), [&](Operation *user) {
      linalg::LinalgOp form = user->getNumResults() == 1 ? formOf(user->getResult(0)) : nullptr;
      return form && !isContraction(form);
    });
    if (!isComputedWith || !isa<FloatType>(getElementTypeOrSelf(op->getResult(0).getType())))
      return;
    const std::optional<std::pair<Value, Steps>> shown = behindMoves(op->getResult(0));
    if (!shown || shown->second.empty() ||
        !isScattered(shown->second.back(), shapeOf(shown->first)))
      return;
    // A step of the host has to be worth it, the argument itself comes from there anyway.
    constexpr int64_t kMany = 1 << 14; // elements
    const bool isArgument = isa<BlockArgument>(shown->first);
    if (!isArgument &&
        (!isMoved(shown->first) || !isSummedAlong(op->getResult(0)) ||
         cast<RankedTensorType>(op->getResult(0).getType()).getNumElements() < kMany))
      return;
    setCopied(op);
    if (!isArgument)
      ofHost.insert(op);
  });
}

/// Whether the host writes the view of an argument as it shows: a step of the host takes the
/// argument.
bool Former::isShown(Operation *view) const {
  if (!copies.contains(view) || ofHost.contains(view))
    return false;
  const std::optional<std::pair<Value, Steps>> shown = behindMoves(view->getResult(0));
  return shown && isa<BlockArgument>(shown->first);
}

/// A view of an argument, as the host writes it, or of parts of arguments that it puts together.
FailureOr<Stored> Former::storeShown(Value view, unsigned lane) {
  Operation *op = view.getDefiningOp();
  if (!op || !copies.contains(op))
    return failure();
  const std::optional<std::pair<Value, Steps>> shown = behindMoves(view);
  if (ofHost.contains(op))
    return storeByHost(view, lane);
  auto argument = shown ? dyn_cast<BlockArgument>(shown->first) : BlockArgument();
  if (!argument)
    return failure();
  const FailureOr<ElementType> type = memoryType(view);
  if (failed(type))
    return failure();
  const unsigned number =
      addTensor(graph, "input", tensorShape(view), *type, lane, TensorRole::Input);
  Tensor &tensor = graph.tensors[number];
  nameArgument(tensor, argument);
  for (auto [dim, steps] : llvm::enumerate(shown->second)) {
    int64_t below = shapeOf(view)[dim];
    for (const Step &step : steps) {
      below /= step.extent;
      tensor.hostLoops.push_back(
          {step.extent, unsigned(dim), below, unsigned(step.dim), step.stride});
    }
  }
  tensor.hostStart.assign(shapeOf(shown->first).size(), 0);
  noteRange(number, view);
  return Stored{number, 0};
}

} // namespace millrace::forms
