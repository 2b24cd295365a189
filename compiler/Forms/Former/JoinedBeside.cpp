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
  constexpr int kTries = 12; // as many cuts as a kernel's
  return withCuts(view, kTries,
                  [&](Attempt &attempt, const Point &index) {
                    return cutsRows(attempt, view, index, index[index.size() - 2], view);
                  })
      .value_or(false);
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
