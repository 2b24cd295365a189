// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values of which no one kernel can be formed, since a view takes a dimension apart that does not
// begin or end where the view's parts do: rows 3 to 55 of an image that is stored in windows of 7.
// Boxes that do, each by a kernel of its own, write one tensor.
#include "compiler/Forms/Former/Former.h"

namespace millrace::forms {

using namespace mlir;

/// What keeps the view, if it is one, from being resolved on the whole box.
std::optional<Ragged> Former::raggedView(Value root, const Box &box) {
  Operation *view = root.getDefiningOp();
  if (!view || shapeOf(root).empty() ||
      (!isView(view) && !slicePoints.contains(view) && !copies.contains(view)))
    return std::nullopt;
  constexpr int kTries = 12; // as many cuts as a kernel's
  Splits splits;
  for (int i = 0; i < kTries; ++i) {
    Attempt attempt(graph, splits);
    Point point;
    for (unsigned dim = 0; dim < box.size.size(); ++dim) {
      point.push_back(attempt.space.dimension({nullptr, dim}, box.size[dim], LoopKind::Parallel));
      point.back().offset += box.begin[dim];
    }
    if (succeeded(resolve(attempt, root, point, view)))
      return std::nullopt;
    if (!attempt.space.wanted)
      return attempt.space.ragged;
    splits = *attempt.space.wanted;
  }
  return std::nullopt;
}

/// Stores the sum, if it is one, that the view shows and that boxes are made of: a kernel of each
/// box would take weights of its own.
void Former::storeBehindRagged(Value root) {
  const std::vector<int64_t> shape = tensorShape(root);
  const Box all{SmallVector<int64_t>(shape.size(), 0),
                SmallVector<int64_t>(shape.begin(), shape.end())};
  if (!raggedView(root, all))
    return;
  const Value base = baseOf(root.getDefiningOp()->getOperand(0));
  if (!stored.count(base) && computesSum(base))
    (void)store(base, std::nullopt); // where it fails, boxes may be computed all the same
}

/// What lies before, in and behind whole periods; nothing where that is all one, or of lanes.
SmallVector<Former::Box, 3> Former::cutRagged(const Box &box, const Ragged &ragged, unsigned lane) {
  const unsigned dim = ragged.key.dim;
  if (ragged.key.op || dim == lane)
    return {};
  const int64_t extent = box.size[dim], first = std::min(ragged.first % ragged.period, extent),
                last = extent - (extent - first) % ragged.period;
  SmallVector<Box, 3> boxes;
  for (auto [from, to] : {std::pair(int64_t(0), first), {first, last}, {last, extent}}) {
    if (from == to)
      continue;
    boxes.push_back(box);
    boxes.back().begin[dim] += from;
    boxes.back().size[dim] = to - from;
  }
  return boxes.size() > 1 ? boxes : SmallVector<Box, 3>();
}

LogicalResult Former::emitBoxes(Value root, const Box &box, unsigned tensor,
                                ArrayRef<int64_t> offsets, unsigned lane, int64_t &laneSplit,
                                bool isStored, int depth) {
  constexpr int kDeepest = 3; // dimensions, or views of one: at most 27 kernels
  const bool isCuttable = depth < kDeepest && !laneSplit;
  std::optional<Ragged> cut = isCuttable && !isStored ? raggedView(root, box) : std::nullopt;
  SmallVector<Box, 3> boxes;
  if (cut)
    boxes = cutRagged(box, *cut, lane);
  if (depth == 0 && !boxes.empty())
    storeBehindRagged(root);
  if (boxes.empty()) {
    if (succeeded(emitBox(root, box, tensor, offsets, lane, laneSplit, isStored)))
      return success();
    if (isCuttable && ragged)
      boxes = cutRagged(box, *ragged, lane);
  }
  const SmallVector<int64_t> zeros(box.size.size(), 0);
  for (const Box &part : boxes)
    if (failed(emitBoxes(root, part, tensor, offsets.empty() ? ArrayRef(zeros) : offsets, lane,
                         laneSplit, isStored, depth + 1)))
      return failure();
  return success(!boxes.empty());
}

/// Writes the value into `tensor` at `offsets`: computed, or as it is stored already.
LogicalResult Former::emit(Value root, unsigned tensor, ArrayRef<int64_t> offsets, unsigned lane,
                           int64_t &laneSplit, bool isStored) {
  const std::vector<int64_t> shape = tensorShape(root);
  const Box all{SmallVector<int64_t>(shape.size(), 0),
                SmallVector<int64_t>(shape.begin(), shape.end())};
  return emitBoxes(root, all, tensor, offsets, lane, laneSplit, isStored, 0);
}

/// Elements from one step of each part of a dimension to the next, the last part's (1) left out.
static SmallVector<int64_t> stepsOf(ArrayRef<int64_t> parts) {
  SmallVector<int64_t> steps;
  int64_t step = 1;
  for (const int64_t extent : llvm::reverse(parts.drop_front()))
    steps.push_back(step *= extent);
  return steps;
}

Operation *joinedOtherwise(tensor::ExpandShapeOp expand) {
  const auto groups = expand.getReassociationIndices();
  for (auto [dim, group] : llvm::enumerate(groups)) {
    const SmallVector<int64_t> steps =
        stepsOf(ArrayRef(expand.getStaticOutputShape()).slice(size_t(group.front()), group.size()));
    Value value = expand.getSrc();
    size_t at = dim;
    while (auto turned = value.getDefiningOp<linalg::TransposeOp>()) {
      at = size_t(turned.getPermutation()[at]);
      value = turned.getInput();
    }
    auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>();
    if (!collapse || steps.empty())
      continue;
    const ReassociationIndices parts = collapse.getReassociationIndices()[at];
    for (const int64_t x : steps)
      for (const int64_t y :
           stepsOf(collapse.getSrcType().getShape().slice(size_t(parts.front()), parts.size())))
        if (x % y && y % x)
          return collapse;
  }
  return nullptr;
}

} // namespace millrace::forms
