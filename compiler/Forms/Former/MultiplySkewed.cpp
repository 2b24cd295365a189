// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows that are moved along their lanes by as much as their number says, as relative positions of
// attention are: exporters write it as padding, reshaping to rows that are longer by one, and
// cutting.
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/LaneProduct.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"

namespace millrace::forms {

using namespace mlir;

bool isMapOfElements(Operation *op) {
  auto map = dyn_cast_or_null<linalg::GenericOp>(op);
  if (!map || !isMap(map) || map.getNumDpsInputs() == 0 || map->getNumResults() != 1 ||
      map.hasIndexSemantics() ||
      !map.getMatchingIndexingMap(map.getDpsInputOperand(0)).isIdentity())
    return false;
  return llvm::all_of(llvm::drop_begin(map.getDpsInputs()), [](Value constant) {
    return areWeights(constant) && cast<RankedTensorType>(constant.getType()).getNumElements() == 1;
  });
}

namespace {

constexpr int64_t kMostElements = 1 << 22; // of what is followed, and of matrices

bool isView(Operation *op) {
  return isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::ExtractSliceOp,
                         tensor::PadOp, tensor::ConcatOp>(op);
}

/// What a chain of views shows: for each element where it lies in `source`, in row-major order; -1:
/// it is put beside. Maps of elements between the views come behind what the views do: of elements
/// that are not put beside they make the same.
struct Shown {
  Value source;
  std::vector<int64_t> places;
  SmallVector<linalg::GenericOp, 2> maps; ///< the first that is applied first
};

/// Calls f(element of the box, element of the whole), both in row-major order, for a box in the
/// whole.
template <class F>
void forEachInBox(ArrayRef<int64_t> box, ArrayRef<int64_t> whole, ArrayRef<int64_t> first,
                  ArrayRef<int64_t> step, F f) {
  SmallVector<int64_t> index(box.size(), 0);
  const int64_t count = ShapedType::getNumElements(box);
  for (int64_t at = 0; at < count; ++at) {
    int64_t place = 0;
    for (size_t dim = 0; dim < box.size(); ++dim)
      place = place * whole[dim] + first[dim] + index[dim] * step[dim];
    f(size_t(at), size_t(place));
    for (size_t dim = box.size(); dim-- > 0 && ++index[dim] == box[dim];)
      index[dim] = 0;
  }
}

std::optional<Shown> follow(Value value);

std::optional<Shown> followSlice(tensor::ExtractSliceOp slice) {
  std::optional<Shown> shown = follow(slice.getSource());
  if (!shown)
    return std::nullopt;
  std::vector<int64_t> places(size_t(slice.getResultType().getNumElements()));
  forEachInBox(slice.getStaticSizes(), slice.getSourceType().getShape(), slice.getStaticOffsets(),
               slice.getStaticStrides(),
               [&](size_t at, size_t place) { places[at] = shown->places[place]; });
  return Shown{shown->source, std::move(places), std::move(shown->maps)};
}

/// `part` in a larger tensor of nothing else.
std::optional<Shown> followPart(Value part, ArrayRef<int64_t> whole, ArrayRef<int64_t> first) {
  std::optional<Shown> shown = follow(part);
  if (!shown)
    return std::nullopt;
  const ArrayRef<int64_t> shape = cast<RankedTensorType>(part.getType()).getShape();
  std::vector<int64_t> places(size_t(ShapedType::getNumElements(whole)), -1);
  forEachInBox(shape, whole, first, SmallVector<int64_t>(shape.size(), 1),
               [&](size_t at, size_t place) { places[place] = shown->places[at]; });
  return Shown{shown->source, std::move(places), std::move(shown->maps)};
}

/// Of a concatenation that puts constants beside one other part.
std::optional<Shown> followConcat(tensor::ConcatOp concat) {
  Value part;
  SmallVector<int64_t> first(size_t(concat.getRank()), 0);
  int64_t begin = 0;
  for (Value input : concat.getInputs()) {
    const bool isConstant = input.getDefiningOp<linalg::FillOp>() || viewConstant(input);
    if (!isConstant && part)
      return std::nullopt;
    if (!isConstant) {
      part = input;
      first[size_t(concat.getDim())] = begin;
    }
    begin += cast<RankedTensorType>(input.getType()).getDimSize(unsigned(concat.getDim()));
  }
  return part ? followPart(part, concat.getResultType().getShape(), first) : std::nullopt;
}

/// Whether all of the source is shown in its order, in rows as long: what maps it has moved
/// nothing, and moves as it is, rounded if the map rounds.
bool showsAll(const Shown &shown, RankedTensorType type) {
  const auto from = cast<RankedTensorType>(shown.source.getType());
  if (from.getNumElements() != type.getNumElements() || from.getRank() == 0 ||
      type.getRank() == 0 || from.getShape().back() != type.getShape().back())
    return false;
  for (size_t at = 0; at < shown.places.size(); ++at)
    if (shown.places[at] != int64_t(at))
      return false;
  return true;
}

std::optional<Shown> follow(Value value) {
  const auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.hasStaticShape() || type.getNumElements() > kMostElements)
    return std::nullopt;
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op))
    return follow(op->getOperand(0));
  if (auto slice = dyn_cast_or_null<tensor::ExtractSliceOp>(op))
    return followSlice(slice);
  if (auto pad = dyn_cast_or_null<tensor::PadOp>(op))
    return followPart(pad.getSource(), type.getShape(), pad.getStaticLow());
  if (auto concat = dyn_cast_or_null<tensor::ConcatOp>(op))
    return followConcat(concat);
  if (isMapOfElements(op))
    if (std::optional<Shown> shown = follow(op->getOperand(0)); shown && !showsAll(*shown, type)) {
      shown->maps.push_back(cast<linalg::GenericOp>(op));
      return shown;
    }
  std::vector<int64_t> places(size_t(type.getNumElements()));
  std::iota(places.begin(), places.end(), 0);
  return Shown{value, std::move(places), {}};
}

/// Result [..., j] of the view is lane j + first + sum of step * index of the same row of a source
/// of `lanes` lanes.
struct Skew {
  Operation *view; ///< the last of a chain
  Value source;
  SmallVector<linalg::GenericOp, 2> maps;
  int64_t lanes = 0, first = 0;
  SmallVector<int64_t> step;             ///< per dimension of the result but the last
  SmallVector<unsigned> movers() const { ///< dimensions that move lanes
    SmallVector<unsigned> dims;
    for (auto [dim, its] : llvm::enumerate(step))
      if (its != 0)
        dims.push_back(unsigned(dim));
    return dims;
  }
};

std::optional<Skew> skewOf(Operation *view) {
  const Value value = view->getResult(0);
  const auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || !type.hasStaticShape() || type.getRank() < 2 || type.getShape().back() < 2)
    return std::nullopt;
  std::optional<Shown> shown = follow(value);
  if (!shown)
    return std::nullopt;
  const std::vector<int64_t> &places = shown->places;
  const ArrayRef<int64_t> shape = type.getShape();
  const auto from = cast<RankedTensorType>(shown->source.getType());
  if (from.getRank() < 1 || from.getShape().back() < 2 ||
      !(from.getElementType().isF32() || from.getElementType().isInteger(8)))
    return std::nullopt;
  Skew skew{view, shown->source, std::move(shown->maps), from.getShape().back(), 0, {}};
  // Places are affine in the index; steps are whole rows and lanes, in every row the same.
  SmallVector<int64_t> stride(shape.size(), 1), step(shape.size(), 0);
  for (size_t dim = shape.size() - 1; dim-- > 0;)
    stride[dim] = stride[dim + 1] * shape[dim + 1];
  for (size_t dim = 0; dim < shape.size(); ++dim)
    step[dim] = shape[dim] > 1 ? places[size_t(stride[dim])] - places[0] : 0;
  if (places[0] < 0 || step.back() != 1)
    return std::nullopt;
  int64_t low = places[0] % skew.lanes, high = low + shape.back() - 1, rows = 1;
  skew.first = low;
  skew.step.assign(shape.size() - 1, 0);
  for (size_t dim = shape.size() - 1; dim-- > 0;) {
    if (shape[dim] > 1) {
      skew.step[dim] = step[dim] - rows * skew.lanes;
      (skew.step[dim] < 0 ? low : high) += skew.step[dim] * (shape[dim] - 1);
    }
    rows *= shape[dim];
  }
  if (places[0] >= skew.lanes || low < 0 || high >= skew.lanes ||
      from.getNumElements() != rows * skew.lanes)
    return std::nullopt;
  bool isAffine = true;
  SmallVector<int64_t> index(shape.size(), 0);
  for (size_t at = 0; at < places.size() && isAffine; ++at) {
    int64_t place = places[0];
    for (size_t dim = 0; dim < shape.size(); ++dim)
      place += step[dim] * index[dim];
    isAffine = places[at] == place;
    for (size_t dim = shape.size(); dim-- > 0 && ++index[dim] == shape[dim];)
      index[dim] = 0;
  }
  return isAffine ? std::optional(std::move(skew)) : std::nullopt;
}

/// What `body` makes of each element, and of constants that are one number each.
Value mapElements(OpBuilder &builder, Location loc, ValueRange inputs, Type element,
                  llvm::function_ref<Value(OpBuilder &, Location, ValueRange)> body) {
  const auto type = cast<RankedTensorType>(inputs[0].getType()).clone(element);
  const auto rank = unsigned(type.getRank());
  SmallVector<AffineMap> maps{builder.getMultiDimIdentityMap(rank)};
  for (Value constant : inputs.drop_front())
    maps.push_back(AffineMap::get(
        rank, 0,
        SmallVector<AffineExpr>(size_t(cast<RankedTensorType>(constant.getType()).getRank()),
                                builder.getAffineConstantExpr(0)),
        builder.getContext()));
  maps.push_back(maps[0]);
  const Value init = tensor::EmptyOp::create(builder, loc, type.getShape(), element);
  return linalg::GenericOp::create(
             builder, loc, TypeRange(type), inputs, ValueRange(init), maps,
             SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel),
             [&](OpBuilder &b, Location at, ValueRange x) {
               linalg::YieldOp::create(b, at, body(b, at, x));
             })
      .getResult(0);
}

template <class Cast> Value castTo(OpBuilder &builder, Location loc, Value value, Type element) {
  return mapElements(builder, loc, value, element,
                     [&](OpBuilder &b, Location at, ValueRange x) -> Value {
                       return Cast::create(b, at, element, x[0]);
                     });
}

} // namespace

Value mapAgain(OpBuilder &builder, linalg::GenericOp map, Value of) {
  SmallVector<Value> inputs(map.getDpsInputs());
  inputs[0] = of;
  const Value made =
      mapElements(builder, map.getLoc(), inputs, getElementTypeOrSelf(map->getResult(0)),
                  [&](OpBuilder &b, Location, ValueRange x) {
                    IRMapping known;
                    known.map(map.getBody()->getArguments(), x);
                    for (Operation &inner : map.getBody()->without_terminator())
                      b.clone(inner, known);
                    return known.lookupOrDefault(map.getBody()->getTerminator()->getOperand(0));
                  });
  for (const NamedAttribute &attribute : map->getDiscardableAttrs())
    if (attribute.getName() != kOnnxValue)
      made.getDefiningOp()->setDiscardableAttr(attribute.getName(), attribute.getValue());
  return made;
}

namespace {

/// One product with a matrix for each index of the dimensions that move lanes.
void multiply(const Skew &skew) {
  const auto type = cast<RankedTensorType>(skew.view->getResult(0).getType());
  const ArrayRef<int64_t> shape = type.getShape();
  OpBuilder builder(skew.view);
  const Location loc = skew.view->getLoc();
  const SmallVector<unsigned> by = skew.movers();
  SmallVector<int64_t> counts;
  for (unsigned dim : by)
    counts.push_back(shape[dim]);
  const int64_t matrices = ShapedType::getNumElements(counts), lanes = skew.lanes,
                extent = shape.back();
  if (matrices * lanes * extent > kMostElements)
    return;
  std::vector<float> matrix(size_t(matrices * lanes * extent));
  SmallVector<int64_t> index(by.size(), 0);
  for (int64_t m = 0; m < matrices; ++m) {
    int64_t first = skew.first;
    for (size_t d = 0; d < by.size(); ++d)
      first += index[d] * skew.step[by[d]];
    for (int64_t to = 0; to < extent; ++to)
      matrix[size_t((m * lanes + first + to) * extent + to)] = 1;
    for (size_t d = by.size(); d-- > 0 && ++index[d] == counts[d];)
      index[d] = 0;
  }
  const Type element = getElementTypeOrSelf(skew.source), real = builder.getF32Type();
  const bool isInteger = element.isInteger(8); // which 16 bits hold exactly
  const Value source =
      isInteger ? castTo<arith::SIToFPOp>(builder, loc, skew.source, real) : skew.source;
  const Value rows = asRows(builder, loc, source, RankedTensorType::get(shape, real));
  Value moved = multiplyLanes(builder, loc, rows, matrix, extent, "skew", by)->getResult(0);
  if (isInteger)
    moved = castTo<arith::FPToSIOp>(builder, loc, moved, element);
  for (linalg::GenericOp map : skew.maps)
    moved = mapAgain(builder, map, moved);
  handOnValue(skew.view, moved.getDefiningOp());
  skew.view->getResult(0).replaceAllUsesWith(moved);
}

} // namespace

void multiplySkewed(func::FuncOp function, ElementType stored) {
  std::vector<Skew> skews;
  function.walk([&](Operation *op) {
    if (isa<tensor::ExtractSliceOp, tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op) &&
        (isView(op->getOperand(0).getDefiningOp()) ||
         isMapOfElements(op->getOperand(0).getDefiningOp())) &&
        !llvm::all_of(op->getUsers(), isView))
      if (std::optional<Skew> skew = skewOf(op); skew && !skew->movers().empty())
        skews.push_back(std::move(*skew));
  });
  if (skews.empty())
    return;
  const Ranges ranges(function, stored), ofFinite(function, stored, /*givesFinite=*/true);
  for (const Skew &skew : skews) {
    const Range range = ranges.of(skew.source);
    if (range.isFinite() || range.fillsRows ||
        (isComputed(skew.source) && ofFinite.of(skew.source).isFinite()))
      multiply(skew);
  }
}

} // namespace millrace::forms
