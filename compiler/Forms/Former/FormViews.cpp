// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Views change indices and move nothing: reshapes, slices, transpositions, paddings, maps that only
// rename.
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Views.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

namespace millrace::forms {

using namespace mlir;

ArrayRef<int64_t> shapeOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

std::vector<int64_t> tensorShape(Value value) {
  ArrayRef<int64_t> shape = shapeOf(value);
  return shape.empty() ? std::vector<int64_t>{1} : std::vector<int64_t>(shape.begin(), shape.end());
}

/// A parallel generic whose body yields an input: returns its number.
static std::optional<unsigned> renamedInput(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || !isMap(generic))
    return std::nullopt;
  auto argument = dyn_cast<BlockArgument>(generic.getBody()->getTerminator()->getOperand(0));
  if (!argument || argument.getOwner() != generic.getBody() ||
      argument.getArgNumber() >= generic.getNumDpsInputs())
    return std::nullopt;
  return argument.getArgNumber();
}

bool Former::isView(Operation *op) const {
  if (copies.contains(op) || (op->getNumResults() == 1 && hosted.contains(op->getResult(0))))
    return false;
  if (isa<tensor::ExtractSliceOp>(op))
    return !slicePoints.contains(op);
  return isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::PadOp, linalg::TransposeOp>(
             op) ||
         renamedInput(op).has_value();
}

static Value sourceOf(Operation *op) {
  if (auto input = renamedInput(op))
    return op->getOperand(*input);
  return op->getOperand(0);
}

Value Former::baseOf(Value value) const {
  while (Operation *op = value.getDefiningOp()) {
    if (!isView(op))
      break;
    value = sourceOf(op);
  }
  return value;
}

/// Index of the view's source at `index` of its result.
bool Former::stepView(Attempt &attempt, Operation *op, Point &index, Value &source) {
  source = sourceOf(op);
  Point result;
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    auto groups = collapse.getReassociationIndices();
    ArrayRef<int64_t> shape = shapeOf(source);
    if (groups.empty())
      result.resize(shape.size());
    for (auto [group, at] : llvm::zip(groups, index))
      if (!attempt.space.delinearize(at, shape.slice(group.front(), group.size()), result))
        return false;
  } else if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
    ArrayRef<int64_t> shape = shapeOf(expand.getResult());
    for (auto &group : expand.getReassociationIndices()) {
      Linear at;
      for (int64_t dim : group) {
        Linear scaled;
        at = scaled.add(at, shape[dim]).add(index[dim]);
      }
      result.push_back(at);
    }
  } else if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op)) {
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    unsigned next = 0;
    for (unsigned dim = 0; dim < shapeOf(source).size(); ++dim) {
      if (ShapedType::isDynamic(slice.getStaticOffset(dim)))
        return false;
      Linear at = Linear::constant(slice.getStaticOffset(dim));
      if (!dropped[dim])
        at.add(index[next++], slice.getStaticStride(dim));
      result.push_back(at);
    }
  } else if (auto pad = dyn_cast<tensor::PadOp>(op)) {
    for (auto [dim, low] : llvm::enumerate(pad.getStaticLow())) {
      result.push_back(index[dim]);
      result.back().offset -= low;
    }
  } else if (auto transpose = dyn_cast<linalg::TransposeOp>(op)) {
    result.resize(index.size());
    for (auto [to, from] : llvm::enumerate(transpose.getPermutation()))
      result[from] = index[to];
  } else {
    auto generic = cast<linalg::GenericOp>(op);
    AffineMap map = generic.getIndexingMapsArray()[*renamedInput(op)];
    for (AffineExpr expr : map.getResults()) {
      std::optional<Linear> at = attempt.space.evaluate(expr, index);
      if (!at)
        return false;
      result.push_back(*at);
    }
  }
  index = std::move(result);
  return true;
}

FailureOr<Former::Resolved> Former::resolve(Attempt &attempt, Value value, Point index,
                                            Operation *copied) {
  Resolved at{value, std::move(index), false, {}};
  while (Operation *op = at.base.getDefiningOp()) {
    if (!isView(op) && op != copied)
      break;
    if (auto pad = dyn_cast<tensor::PadOp>(op)) {
      Attribute fill;
      Value scalar = pad.getConstantPaddingValue();
      if (at.padded || !scalar || !matchPattern(scalar, m_Constant(&fill)))
        return failure();
      at.padded = true;
      at.pad = fill;
    }
    Value source;
    if (!stepView(attempt, op, at.index, source))
      return failure();
    at.base = source;
  }
  return at;
}

namespace {

/// Where padding reads a dimension: at indices below 0, or from its extent on.
struct Outside {
  bool below = false, above = false;
  bool any() const { return below || above; }
};
using Outsides = SmallVector<Outside>; ///< per dimension

bool readsOutside(const Outsides &dims) {
  return llvm::any_of(dims, [](const Outside &dim) { return dim.any(); });
}

/// Of the slice's source: what is outside the slice must be outside the source, too.
std::optional<Outsides> outsideSlice(tensor::ExtractSliceOp slice, const Outsides &dims) {
  ArrayRef<int64_t> shape = shapeOf(slice.getSource());
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  Outsides result(shape.size());
  unsigned next = 0;
  for (unsigned dim = 0; dim < shape.size(); ++dim) {
    if (dropped[dim])
      continue;
    const Outside outside = result[dim] = dims[next++];
    const int64_t offset = slice.getStaticOffset(dim), size = slice.getStaticSize(dim),
                  stride = slice.getStaticStride(dim);
    if (outside.any() && (ShapedType::isDynamic(offset) || stride <= 0))
      return std::nullopt;
    if ((outside.below && offset >= stride) ||
        (outside.above && offset + size * stride < shape[dim]))
      return std::nullopt;
  }
  return result;
}

/// Of the source of a reshape that splits dimensions: only the outermost part of one may be left.
std::optional<Outsides> outsideExpanded(tensor::ExpandShapeOp expand, const Outsides &dims) {
  ArrayRef<int64_t> shape = shapeOf(expand.getResult());
  if (expand.getReassociationIndices().empty()) // of a scalar, which has no outside
    return std::nullopt;
  Outsides result;
  for (auto &group : expand.getReassociationIndices()) {
    Outside outside;
    bool isOutermost = true;
    for (int64_t dim : group) {
      if (dims[size_t(dim)].any() && !isOutermost)
        return std::nullopt;
      if (dims[size_t(dim)].any())
        outside = dims[size_t(dim)];
      isOutermost &= shape[size_t(dim)] == 1 && !outside.any();
    }
    result.push_back(outside);
  }
  return result;
}

/// Of the source of a reshape that joins dimensions: all but one of them must be 1.
std::optional<Outsides> outsideCollapsed(tensor::CollapseShapeOp collapse, const Outsides &dims) {
  ArrayRef<int64_t> shape = shapeOf(collapse.getSrc());
  Outsides result(shape.size());
  for (auto [group, outside] : llvm::zip(collapse.getReassociationIndices(), dims)) {
    if (!outside.any())
      continue;
    auto isLong = [&](int64_t dim) { return shape[size_t(dim)] != 1; };
    if (llvm::count_if(group, isLong) != 1)
      return std::nullopt;
    result[size_t(*llvm::find_if(group, isLong))] = outside;
  }
  return result;
}

/// Of the source of a map that only renames.
std::optional<Outsides> outsideRenamed(AffineMap map, const Outsides &dims) {
  Outsides result;
  SmallVector<bool> isKept(dims.size(), false);
  for (AffineExpr expr : map.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    result.push_back(dim ? dims[dim.getPosition()] : Outside());
    if (dim)
      isKept[dim.getPosition()] = true;
  }
  for (auto [dim, kept] : llvm::zip(dims, isKept))
    if (dim.any() && !kept)
      return std::nullopt;
  return result;
}

/// Where the view's source is read outside if its result is read so; nothing if an index outside
/// the one can be inside the other.
std::optional<Outsides> outsideSource(Operation *view, const Outsides &dims) {
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(view))
    return outsideSlice(slice, dims);
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(view))
    return outsideExpanded(expand, dims);
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(view))
    return outsideCollapsed(collapse, dims);
  if (auto transpose = dyn_cast<linalg::TransposeOp>(view)) {
    Outsides result(dims.size());
    for (auto [to, from] : llvm::enumerate(transpose.getPermutation()))
      result[size_t(from)] = dims[to];
    return result;
  }
  if (std::optional<unsigned> input = renamedInput(view))
    return outsideRenamed(cast<linalg::GenericOp>(view).getIndexingMapsArray()[*input], dims);
  return std::nullopt; // a padding of its own
}

/// Whether all that takes the value, padded or not, cuts dimensions of it into those of `shape`.
bool isCutInto(Value value, ArrayRef<int64_t> shape) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (auto pad = dyn_cast<tensor::PadOp>(user))
      return isCutInto(pad.getResult(), shape);
    auto cut = dyn_cast<tensor::ExpandShapeOp>(user);
    return cut && cut.getResultType().getShape().take_front(3) == shape.take_front(3);
  });
}

/// Whether the view joins the groups of a convolution with the channels of each, of which a row
/// would else hold one group, for others than the one map that is computed with the sums, or a
/// convolution in the same groups.
bool joinsGroups(tensor::CollapseShapeOp view) {
  linalg::LinalgOp sums = formOf(view.getSrc());
  if (!sums || !isContraction(sums) || !view.getSrc().hasOneUse() ||
      llvm::none_of(sums.getDpsInputs(), areWeights))
    return false;
  const ArrayRef<int64_t> shape = view.getSrcType().getShape();
  const auto joins = [&](const ReassociationIndices &dims) {
    return llvm::count_if(dims, [&](int64_t dim) { return shape[size_t(dim)] > 1; }) > 1;
  };
  const auto isMapped = [](Operation *user) {
    auto map = dyn_cast<linalg::LinalgOp>(user);
    return map && isMap(map);
  };
  return llvm::any_of(view.getReassociationIndices(), joins) &&
         !(view->hasOneUse() && isMapped(*view->user_begin())) &&
         !isCutInto(view.getResult(), shape);
}

} // namespace

/// Padding over a view finds what the view leaves out, or a neighbour, where the view's indices
/// outside are inside its source: such a view is stored as it is. So is one that is cut again where
/// its parts do not end, and one that joins groups.
void Former::findStoredViews() {
  function.walk([&](tensor::ExpandShapeOp expand) {
    if (Operation *view = joinedOtherwise(expand))
      setCopied(view);
  });
  function.walk([&](tensor::CollapseShapeOp view) {
    if (joinsGroups(view))
      setCopied(view);
  });
  function.walk([&](tensor::PadOp pad) {
    Outsides dims;
    for (auto [low, high] : llvm::zip(pad.getStaticLow(), pad.getStaticHigh()))
      dims.push_back({low != 0, high != 0});
    Value value = pad.getSource();
    while (readsOutside(dims)) {
      Operation *view = value.getDefiningOp();
      if (options.precision == Precision::Int8 && quantKind(view) == "dequantize") {
        value = view->getOperand(0); // a product takes the integers, and pads them
        continue;
      }
      if (!view || !isView(view))
        return;
      std::optional<Outsides> source = outsideSource(view, dims);
      if (!source) {
        setCopied(view);
        return;
      }
      dims = std::move(*source);
      value = sourceOf(view);
    }
  });
}

/// Whether the reduction's result is the same without elements of this value.
static bool isNeutral(linalg::LinalgOp op, Value value) {
  Attribute constant;
  if (!value || !matchPattern(value, m_Constant(&constant)))
    return false;
  auto real = dyn_cast<FloatAttr>(constant);
  auto integer = dyn_cast<IntegerAttr>(constant);
  const bool isPlain = combinedValue(op) == op.getBlock()->getArgument(0);
  switch (combinerOf(op)) {
  case Combiner::SumOfProducts:
    return real ? real.getValue().isZero() : integer.getValue().isZero();
  case Combiner::Sum:
    return isPlain && (real ? real.getValue().isZero() : integer.getValue().isZero());
  case Combiner::Max:
    return isPlain && (real ? real.getValue().isInfinity() && real.getValue().isNegative()
                            : integer.getValue().isMinSignedValue());
  case Combiner::Min:
    return isPlain && (real ? real.getValue().isInfinity() && !real.getValue().isNegative()
                            : integer.getValue().isMaxSignedValue());
  case Combiner::None:
    break;
  }
  return false;
}

bool isNeutralPadding(linalg::LinalgOp op, unsigned operand) {
  auto pad = op->getOperand(operand).getDefiningOp<tensor::PadOp>();
  return pad && isNeutral(op, pad.getConstantPaddingValue());
}

std::pair<int64_t, int64_t> insidePadding(LoopSpace &space, linalg::LinalgOp op, unsigned operand,
                                          const Point &dims, unsigned loop) {
  std::pair<int64_t, int64_t> all = {0, op.getStaticLoopRanges()[loop]};
  auto pad = op->getOperand(operand).getDefiningOp<tensor::PadOp>();
  AffineMap map = op.getIndexingMapsArray()[operand];
  if (!pad || !isNeutral(op, pad.getConstantPaddingValue()))
    return all;
  for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
    if (!expr.isFunctionOfDim(loop))
      continue;
    Point point = dims;
    point[loop] = Linear::constant(0);
    std::optional<Linear> first = space.evaluate(expr, point);
    point[loop] = Linear::constant(1);
    std::optional<Linear> second = space.evaluate(expr, point);
    if (!first || !second || !first->terms.empty() || second->offset != first->offset + 1)
      return all;
    int64_t shift = pad.getStaticLow()[dim] - first->offset;
    int64_t from = std::max<int64_t>(0, shift);
    int64_t to = std::min(all.second, shift + shapeOf(pad.getSource())[dim]);
    return from < to ? std::pair(from, to - from) : all;
  }
  return all;
}

static bool isMaximum(Operation *op) {
  auto form = dyn_cast<linalg::LinalgOp>(op);
  return form && combinerOf(form) == Combiner::Max && !isMap(form);
}

/// Whether the slice takes one of several along a dimension.
static bool takesOne(tensor::ExtractSliceOp slice) {
  return llvm::any_of(llvm::zip(slice.getStaticSizes(), slice.getSourceType().getShape()),
                      [](auto its) { return std::get<0>(its) == 1 && std::get<1>(its) > 1; });
}

/// Whether the product takes windows of the operand, which want as many points of it in a row as fit.
static bool takesWindows(linalg::LinalgOp op, OpOperand &operand) {
  const SmallVector<int64_t> extents = op.getStaticLoopRanges();
  return llvm::any_of(op.getMatchingIndexingMap(&operand).getResults(), [&](AffineExpr expr) {
    unsigned steps = 0;
    for (unsigned loop = 0; loop < extents.size(); ++loop)
      steps += extents[loop] > 1 && expr.isFunctionOfDim(loop);
    return steps > 1;
  });
}

/// Whether all that takes the value, or what views show of it, multiplies points of it by constants.
/// A row of all of it serves each, whose weights leave out the rest; of one channel none is summed,
/// and nothing says that it lies along them.
bool Former::isOnlyWeighed(Value value) const {
  return llvm::all_of(value.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user); slice && takesOne(slice))
      return false;
    if (isView(user))
      return sourceOf(user) == value && isOnlyWeighed(user->getResult(0));
    linalg::LinalgOp op =
        user->getNumResults() == 1 ? formOf(user->getResult(0)) : linalg::LinalgOp();
    return op && isContraction(op) && !isDepthwise(op) && !takesWindows(op, use) &&
           llvm::any_of(op.getDpsInputs(), isConstantValue);
  });
}

/// Values of which slices are all that is read are computed slice by slice. Slices of what maps make
/// of values in memory would be copies: only where attention multiplies them with each other.
void Former::findSlicePoints() {
  function.walk([&](Operation *op) {
    for (Value value : op->getResults()) {
      unsigned slices = 0, others = 0;
      for (Operation *user : value.getUsers())
        ++(isa<tensor::ExtractSliceOp>(user) ? slices : others);
      if (slices > 1 && others == 0 && formOf(baseOf(value)) && !isOnlyWeighed(value) &&
          (computesSum(baseOf(value), /*orProduct=*/true) || isMultiplied(value, /*two=*/true)))
        for (Operation *user : value.getUsers())
          slicePoints.insert(user);
    }
  });
}

void Former::collectUsers(Value value, SetVector<Operation *> &users) {
  for (Operation *user : value.getUsers()) {
    if (slicePoints.contains(user)) {
      users.insert(value.getDefiningOp()); // the slices together are one consumer
    } else if (isView(user)) {
      if (sourceOf(user) == value)
        collectUsers(user->getResult(0), users);
    } else {
      users.insert(user);
    }
  }
}

unsigned Former::demand(Value base) {
  SetVector<Operation *> users;
  collectUsers(base, users);
  if (isRunTimeScores(base)) // the maximum over their lanes takes a transposed copy
    users.remove_if([](Operation *user) { return isMaximum(user); });
  return unsigned(users.size());
}

/// The program's input that `value` shows, as it is or dequantised; null when it shows none.
Value Former::inputBehind(Value value) const {
  Value base = baseOf(value);
  linalg::LinalgOp op = formOf(base);
  if (op && quantKind(op) == "dequantize" && !stored.count(base))
    base = baseOf(op->getOperand(0));
  return isa<BlockArgument>(base) ? base : Value();
}

/// The dimension that lies along the lanes if no consumer says otherwise.
unsigned Former::preferredLane(Value base) { return chooseLane(base).dim; }

/// Of the dimensions `group` of a shape, one after the other: the one whose neighbours are
/// neighbours of all of them together.
static unsigned innermostOf(ArrayRef<int64_t> shape, ArrayRef<int64_t> group) {
  for (int64_t dim : llvm::reverse(group))
    if (shape[size_t(dim)] > 1)
      return unsigned(dim);
  return unsigned(group.back());
}

/// The dimension of a view's result that shows dimension `dim` of its source, or its neighbours;
/// where parts are dealt in turn, also one in which others lie between these.
static std::optional<unsigned> dimOfView(Operation *view, unsigned dim, bool orPart = false,
                                         bool isDealt = false) {
  if (auto transpose = dyn_cast<linalg::TransposeOp>(view)) {
    const ArrayRef<int64_t> from = transpose.getPermutation();
    return unsigned(llvm::find(from, int64_t(dim)) - from.begin());
  }
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(view)) {
    for (auto [to, group] : llvm::enumerate(collapse.getReassociationIndices()))
      if (llvm::is_contained(group, int64_t(dim)) &&
          (isDealt || innermostOf(shapeOf(collapse.getSrc()), group) == dim))
        return unsigned(to);
    return std::nullopt;
  }
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(view)) {
    const SmallVector<ReassociationIndices> groups = expand.getReassociationIndices();
    return dim < groups.size()
               ? std::optional(innermostOf(shapeOf(expand.getResult()), groups[dim]))
               : std::nullopt;
  }
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(view)) {
    const llvm::SmallBitVector dropped = slice.getDroppedDims();
    unsigned to = 0;
    for (unsigned d = 0; d < dim; ++d)
      to += !dropped[d];
    return !dropped[dim] && (orPart || shapeOf(slice)[to] == shapeOf(slice.getSource())[dim])
               ? std::optional(to)
               : std::nullopt;
  }
  if (isa<tensor::PadOp>(view))
    return dim;
  auto renaming = cast<linalg::GenericOp>(view);
  const auto from = renaming.getIndexingMapsArray()[*renamedInput(view)];
  const auto to = renaming.getIndexingMapsArray().back();
  for (auto [d, expr] : llvm::enumerate(to.getResults()))
    if (isa<AffineDimExpr>(expr) && from.getResult(dim) == expr)
      return unsigned(d);
  return std::nullopt;
}

/// Where the lanes that are chosen for the value's base lie in the value, which may be a view of
/// it; nothing if they are not all of a dimension of it, or `orPart` some, or, `isDealt`, lie in one
/// with others between them.
std::optional<Former::LaneChoice> Former::shownLane(Value value, bool orPart, bool isDealt) {
  Operation *op = value.getDefiningOp();
  if (!op || !isView(op))
    return chooseLane(value);
  std::optional<LaneChoice> lane = shownLane(sourceOf(op), orPart, isDealt);
  if (!lane || lane->dim >= shapeOf(sourceOf(op)).size())
    return std::nullopt; // of a scalar
  const std::optional<unsigned> dim = dimOfView(op, lane->dim, orPart, isDealt);
  return dim ? std::optional(LaneChoice{*dim, lane->hasReason}) : std::nullopt;
}

/// Of a map of what is compared with the greatest of few elements along `dim` (a softmax over
/// channels): the longest of the other dimensions, if that fills vectors. Along it the greatest and
/// the sum run over rows, and there are fewer rows; along `dim` each maximum would have to be laid
/// out along the lanes again.
std::optional<unsigned> Former::laneBesideMaximum(linalg::LinalgOp op, unsigned dim) {
  const std::optional<unsigned> longest =
      longestBeside(shapeOf(op->getResult(0)), dim, options.lanes);
  return longest && isMap(op) && comparesAlong(op, dim) && !isRunTimeScores(op->getOperand(0)) &&
                 !isMultiplied(op->getResult(0))
             ? longest
             : std::nullopt;
}

void Former::setCopied(Operation *view, bool isCopied) {
  if (isCopied ? copies.insert(view).second : copies.erase(view))
    laneChoices.clear();
}

void Former::noteStored(Value value, const Stored &place) {
  SmallVector<Stored> &places = stored[value];
  places.push_back(place);
  linalg::LinalgOp op = formOf(value);
  const auto known = laneChoices.find(value);
  const bool isAsChosen = places.front().laneSplit || known == laneChoices.end() ||
                          (known->second.hasReason &&
                           known->second.dim == graph.tensors[places.front().tensor].laneDim);
  if (!isAsChosen || (op && quantKind(op) == "dequantize")) // inputBehind() asks for those
    laneChoices.clear();
}

Former::LaneChoice Former::chooseLane(Value base) {
  if (const auto known = laneChoices.find(base); known != laneChoices.end())
    return known->second;
  const LaneChoice choice = chooseLaneAnew(base);
  laneChoices[base] = choice;
  return choice;
}

/// A choice with a reason holds for a dimension of extent 1 too: the scores of one token for one
/// token lie along the tokens, not along the heads that happen to be more than one.
Former::LaneChoice Former::chooseLaneAnew(Value base) {
  ArrayRef<int64_t> shape = shapeOf(base);
  if (shape.empty())
    return {0, false};
  unsigned last = unsigned(shape.size() - 1);
  while (last > 0 && shape[last] == 1)
    --last;
  if (auto found = stored.find(base); found != stored.end() && !found->second.front().laneSplit)
    return {graph.tensors[found->second.front().tensor].laneDim, true};
  if (Operation *view = base.getDefiningOp();
      view && (copies.contains(view) || slicePoints.contains(view))) {
    const Value source = sourceOf(view);
    for (const bool isDealt : {false, true})
      if (const auto lane = shownLane(source, /*orPart=*/true, isDealt);
          lane && lane->dim < shapeOf(source).size())
        if (const auto dim = dimOfView(view, lane->dim, /*orPart=*/true, isDealt))
          return {*dim, lane->hasReason};
    return {last, false};
  }
  if (auto concat = base.getDefiningOp<tensor::ConcatOp>()) {
    for (const bool isPart : {false, true}) // one that has a reason, whole or as it shows some
      for (Value input : concat.getInputs())
        if (const auto lane = shownLane(input, isPart, isPart); lane && lane->hasReason)
          return *lane;
    return shownLane(concat.getInputs()[0]).value_or(LaneChoice{last, false});
  }
  linalg::LinalgOp op = formOf(base);
  if (!op || op.getNumDpsInputs() == 0)
    return {last, false};
  if (std::optional<LookupForm> lookup = lookupOf(op))
    return {lookup->loops[lookup->lane], true};
  AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  if (isContraction(op) &&
      !isDepthwise(op)) { // the loop of the weights, which the last operand carries
    AffineMap a = op.getIndexingMapsArray()[0], w = op.getIndexingMapsArray()[1];
    int64_t best = 0;
    for (auto [dim, expr] : llvm::enumerate(result.getResults()))
      if (w.isFunctionOfDim(cast<AffineDimExpr>(expr).getPosition()) &&
          !a.isFunctionOfDim(cast<AffineDimExpr>(expr).getPosition()) && shape[dim] > best)
        best = shape[dim], last = unsigned(dim);
    return {last, best > 0};
  }
  AffineMap first = op.getIndexingMapsArray()[0];
  const bool isWindow = llvm::any_of(first.getResults(),
                                     [](AffineExpr expr) { return isa<AffineBinaryOpExpr>(expr); });
  std::optional<unsigned> beside; // the longest of the dimensions over which a window does not move
  for (auto [dim, expr] : llvm::enumerate(result.getResults()))
    if (llvm::is_contained(first.getResults(), expr) && shape[dim] > (beside ? shape[*beside] : 0))
      beside = unsigned(dim);
  if (beside && (isDepthwise(op) || (inputBehind(op->getOperand(0)) && isWindow)))
    return {*beside, true};
  // As an operand shows its lanes; if none shows them whole, as one shows a part that is long enough.
  for (const bool isPart : {false, true})
    for (auto [i, operand] : llvm::enumerate(op.getDpsInputs())) {
      if (!isa<RankedTensorType>(operand.getType()) || areWeights(operand))
        continue;
      AffineMap map = op.getIndexingMapsArray()[i];
      std::optional<LaneChoice> shown = shownLane(operand, isPart);
      // A shuffle leaves its lanes no dimension of their own: windows beside them keep theirs.
      if (const Value base = baseOf(operand); !shown && operand.getDefiningOp<tensor::PadOp>() &&
                                              shapeOf(base).size() == shapeOf(operand).size())
        shown = chooseLane(base);
      if (!shown && baseOf(operand).getDefiningOp<tensor::ConcatOp>()) // dealt in turn
        shown = shownLane(operand, /*orPart=*/false, /*isDealt=*/true);
      if (!shown || shown->dim >= map.getNumResults())
        continue;
      const LaneChoice lane = *shown;
      for (auto [dim, expr] : llvm::enumerate(result.getResults()))
        if (map.getResult(lane.dim) == expr &&
            (isPart ? shape[dim] >= kLongPart : shape[dim] > 1 || lane.hasReason)) {
          if (const std::optional<unsigned> along = laneBesideMaximum(op, unsigned(dim)))
            return {*along, true};
          return {unsigned(dim), lane.hasReason};
        }
    }
  return {isWindow && beside ? *beside : last, false};
}

} // namespace millrace::forms
