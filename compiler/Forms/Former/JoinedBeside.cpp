// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values whose dimensions are joined beside a product of two run-time values: relative positions
// of attention, of rows and of columns, that scores of pixels are added to. The kernel of the
// scores would have to take the pixels apart again, and its rows would be as short as an image's.
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"

namespace millrace::forms {

using namespace mlir;

namespace {

constexpr int64_t kShort = 8; ///< to a vector: of a fifth of one, 64 lanes, it was no gain

/// Whether the view joins dimensions to one of the last two, along which lanes may lie.
bool joinsLanes(tensor::CollapseShapeOp view) {
  const ArrayRef<int64_t> shape = view.getSrcType().getShape();
  const auto groups = view.getReassociationIndices();
  return llvm::any_of(ArrayRef(groups).take_back(2), [&](const ReassociationIndices &dims) {
    return llvm::count_if(dims, [&](int64_t dim) { return shape[size_t(dim)] > 1; }) > 1;
  });
}

} // namespace

/// Whether a map takes the value, or what maps and views make of it, with scores beside it.
bool Former::isBesideScores(Value value, int depth) {
  constexpr int kDeepest = 12; // maps and views
  return depth < kDeepest && llvm::any_of(value.getUses(), [&](OpOperand &use) {
           Operation *user = use.getOwner();
           if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(user))
             return isBesideScores(user->getResult(0), depth + 1);
           linalg::LinalgOp map =
               user->getNumResults() == 1 ? formOf(user->getResult(0)) : linalg::LinalgOp();
           if (!map || !isMap(map) || !map.getMatchingIndexingMap(&use).isIdentity())
             return false;
           return llvm::any_of(map.getDpsInputs(),
                               [&](Value other) {
                                 return other != value && !shapeOf(other).empty() &&
                                        shapeOf(other) == shapeOf(value) && isRunTimeScores(other);
                               }) ||
                  isBesideScores(map->getResult(0), depth + 1);
         });
}

/// Whether the rows of the value, which are its last dimension but one, lie along several
/// dimensions of what it is made of. Nothing where a view cannot be taken apart, or too much is
/// between.
std::optional<bool> Former::cutsRows(Attempt &attempt, Value value, const Point &index,
                                     const Linear &rows, Operation *copied, int depth) {
  constexpr int kDeepest = 18; // maps
  const FailureOr<Resolved> at = resolve(attempt, value, index, copied);
  if (failed(at) || depth == kDeepest)
    return std::nullopt;
  if (linalg::LinalgOp map = formOf(at->base); map && isMap(map)) {
    for (OpOperand *input : map.getDpsInputOperands()) {
      Point its;
      for (AffineExpr expr : map.getMatchingIndexingMap(input).getResults())
        its.push_back(attempt.space.evaluate(expr, at->index).value_or(Linear()));
      const std::optional<bool> cuts =
          cutsRows(attempt, input->get(), its, rows, nullptr, depth + 1);
      if (cuts.value_or(true))
        return cuts;
    }
    return false;
  }
  return llvm::count_if(at->index, [&](const Linear &along) {
           return llvm::any_of(rows.terms,
                               [&](const auto &term) { return along.uses(term.first); });
         }) > 1;
}

bool Former::cutsRows(tensor::CollapseShapeOp view) {
  const ArrayRef<int64_t> shape = shapeOf(view);
  constexpr int kTries = 12; // as many cuts as a kernel's
  Splits splits;
  for (int i = 0; i < kTries; ++i) {
    Attempt attempt(graph, splits);
    Point point;
    for (auto [dim, extent] : llvm::enumerate(shape))
      point.push_back(
          attempt.space.dimension({nullptr, unsigned(dim)}, extent, LoopKind::Parallel));
    const std::optional<bool> cuts = cutsRows(attempt, view, point, point[shape.size() - 2], view);
    if (cuts || !attempt.space.wanted)
      return cuts.value_or(false);
    splits = *attempt.space.wanted;
  }
  return false;
}

/// What a chain of maps of one tensor each, and of views, reads in memory at `index` of `value`;
/// nothing where it is no such chain, or a view cannot be taken apart.
std::optional<Former::Resolved> Former::storedBehindMaps(Attempt &attempt, Value value,
                                                         Point index) {
  constexpr int kDeepest = 8; // maps, and views that will be copied
  for (int depth = 0; depth < kDeepest && !stored.count(value); ++depth) {
    Operation *copied = value.getDefiningOp();
    if (!copies.contains(copied) && !isa_and_nonnull<tensor::ExtractSliceOp>(copied))
      copied = nullptr;
    if (linalg::LinalgOp map = copied ? linalg::LinalgOp() : formOf(value)) {
      const auto isTensor = [&](OpOperand *input) { return !shapeOf(input->get()).empty(); };
      const SmallVector<OpOperand *> inputs = map.getDpsInputOperands();
      const auto only = llvm::find_if(inputs, isTensor);
      if (!isMap(map) || llvm::count_if(inputs, isTensor) != 1)
        return std::nullopt;
      Point its;
      for (AffineExpr expr : map.getMatchingIndexingMap(*only).getResults())
        its.push_back(attempt.space.evaluate(expr, index).value_or(Linear()));
      value = (*only)->get();
      index = std::move(its);
    } else if (!copied) {
      return std::nullopt;
    }
    const FailureOr<Resolved> at = resolve(attempt, value, index, copied);
    if (failed(at))
      return std::nullopt;
    value = at->base;
    index = at->index;
  }
  return stored.count(value) ? std::optional(Resolved{value, index, false, {}}) : std::nullopt;
}

/// Of what maps make of a value in memory whose lanes are others, along which of its dimensions
/// those lie, if `lane` joins several of the value's: each vector would hold a short piece.
std::optional<unsigned> Former::laneBehindMaps(Value base, unsigned lane) {
  const ArrayRef<int64_t> shape = shapeOf(base);
  constexpr int kTries = 12; // as many cuts as a kernel's
  Splits splits;
  for (int i = 0; i < kTries && formOf(base) && isMap(formOf(base)); ++i) {
    Attempt attempt(graph, splits);
    Point point;
    for (auto [dim, extent] : llvm::enumerate(shape))
      point.push_back(
          attempt.space.dimension({nullptr, unsigned(dim)}, extent, LoopKind::Parallel));
    if (const std::optional<Resolved> at = storedBehindMaps(attempt, base, point)) {
      const Stored &source = stored.lookup(at->base).front();
      const auto usesAny = [](const Linear &index, const Linear &loops) {
        return llvm::any_of(loops.terms, [&](const auto &term) { return index.uses(term.first); });
      };
      const Linear &along = at->index[graph.tensors[source.tensor].laneDim];
      if (source.laneSplit || point[lane].terms.empty() || usesAny(along, point[lane]) ||
          llvm::count_if(at->index, [&](const Linear &x) { return usesAny(x, point[lane]); }) < 2 ||
          kShort * attempt.space.loop(point[lane].terms.rbegin()->first).extent > options.lanes)
        return std::nullopt;
      const auto natural = llvm::find_if(point, [&](const Linear &x) { return usesAny(along, x); });
      return natural != point.end() ? std::optional(unsigned(natural - point.begin()))
                                    : std::nullopt;
    }
    if (!attempt.space.wanted)
      return std::nullopt;
    splits = *attempt.space.wanted;
  }
  return std::nullopt;
}

/// Along which lanes a join is stored before it is turned to have `lane` along them; none if it is
/// stored so at once. Where `lane` is several dimensions of what is in memory already, each vector
/// would hold one of the last.
std::optional<unsigned> Former::laneBesideJoined(Value base, unsigned lane) {
  auto join = base.getDefiningOp<tensor::CollapseShapeOp>();
  if (!join || !copies.contains(join))
    return laneBehindMaps(base, lane);
  const ArrayRef<int64_t> shape = join.getSrcType().getShape();
  const auto last = unsigned(shapeOf(base).size() - 1);
  if (joinedBeside.contains(base))
    return lane != last ? std::optional(last) : std::nullopt;
  int64_t piece = 0, pieces = 1;
  for (int64_t dim : join.getReassociationIndices()[lane])
    if (const int64_t extent = shape[size_t(dim)]; extent > 1) {
      pieces *= piece ? piece : 1;
      piece = extent;
    }
  const unsigned natural = chooseLane(base).dim;
  return pieces > 1 && stored.count(baseOf(join.getSrc())) && kShort * piece <= options.lanes &&
                 natural != lane && shapeOf(base)[natural] > 1
             ? std::optional(natural)
             : std::nullopt;
}

/// Stores what is joined beside scores as it is joined, where scores that lie along its rows would
/// be cut as well.
void Former::findJoinedBeside() {
  function.walk([&](tensor::CollapseShapeOp view) {
    const Value joined = view.getResult();
    if (shapeOf(joined).size() > 1 && formOf(baseOf(joined)) && joinsLanes(view) &&
        !isRunTimeScores(joined) && isBesideScores(joined) && cutsRows(view)) {
      setCopied(view);
      joinedBeside.insert(joined);
    }
  });
}

} // namespace millrace::forms
