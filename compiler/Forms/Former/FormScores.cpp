// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scores of attention: products of two run-time values, what maps make of them, and who takes them.
// The maximum of their rows runs over a copy that is turned.
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace millrace::forms {

using namespace mlir;

bool isProductOfTwo(Value value) {
  constexpr int kLongestChain = 24; // maps: scales, masks, a softmax, each rounded
  for (int depth = 0; depth < kLongestChain; ++depth) {
    value = behindUnitDims(value);
    if (auto slice = value.getDefiningOp<tensor::ExtractSliceOp>()) { // a head's
      value = slice.getSource();
      continue;
    }
    linalg::LinalgOp op = formOf(value);
    if (!op || op.getNumDpsInputs() == 0)
      return false;
    if (!isMap(op))
      return isContraction(op) && !areWeights(op->getOperand(0)) && !areWeights(op->getOperand(1));
    value = op->getOperand(0);
  }
  return false;
}

bool Former::isRunTimeScores(Value value) const {
  // Scales, masks, positions, each rounded: what lies between the product and the maximum.
  constexpr unsigned kMostMaps = 32;
  const auto isAlong = [](ArrayRef<int64_t> operand, ArrayRef<int64_t> result) {
    return ShapedType::getNumElements(operand) == ShapedType::getNumElements(result) ||
           (operand.size() >= 2 && result.size() >= 2 &&
            operand.take_back(2) == result.take_back(2)); // of one head
  };
  const auto isScores = [](linalg::LinalgOp op) {
    // Roles can be swapped if either operand has rows of its own.
    bool hasRows[2] = {false, false};
    for (unsigned i : {0u, 1u})
      for (auto [dim, extent] : llvm::enumerate(op.getStaticLoopRanges()))
        hasRows[i] |= extent > 1 && op.getIndexingMapsArray()[i].isFunctionOfDim(unsigned(dim)) &&
                      !op.getIndexingMapsArray()[1 - i].isFunctionOfDim(unsigned(dim));
    return hasRows[0] && hasRows[1];
  };
  SmallVector<Value> open{value};
  llvm::SmallPtrSet<Value, 8> seen;
  while (!open.empty()) {
    Value base = baseOf(open.pop_back_val());
    for (Operation *view = base.getDefiningOp();
         view && (isView(view) || isa<tensor::ExtractSliceOp>(view)); view = base.getDefiningOp())
      base = baseOf(view->getOperand(0)); // stored as it shows
    linalg::LinalgOp op = formOf(base);
    if (!op || op.getNumDpsInputs() == 0)
      continue;
    const auto isConstant = [&](Value operand) { return areWeights(baseOf(operand)); };
    if (isMap(op)) {
      for (Value operand : llvm::reverse(op.getDpsInputs()))
        if (isa<RankedTensorType>(operand.getType()) && !isConstant(operand) &&
            isAlong(shapeOf(operand), shapeOf(op->getResult(0))) && seen.size() < kMostMaps &&
            seen.insert(operand).second)
          open.push_back(operand);
    } else if (isContraction(op) && !llvm::any_of(op.getDpsInputs(), isConstant) && isScores(op)) {
      return true;
    }
  }
  return false;
}

bool Former::isUnmasked(Value scores) const {
  constexpr double kSmall = 65536;
  const auto isSmall = [&](Value value) {
    auto constant = value.getDefiningOp<arith::ConstantOp>();
    if (auto number = constant ? dyn_cast<FloatAttr>(constant.getValue()) : FloatAttr())
      return std::fabs(number.getValueAsDouble()) <= kSmall;
    if (!isa<RankedTensorType>(value.getType()))
      return true; // made of those
    const Range range = ranges.of(value);
    return range.isFinite() && range.largest() <= kSmall;
  };
  linalg::LinalgOp op = formOf(baseOf(scores));
  for (; op && isMap(op); op = formOf(baseOf(op->getOperand(0))))
    if (op.getNumDpsInputs() == 0 || !llvm::all_of(llvm::drop_begin(op.getDpsInputs()), isSmall) ||
        !llvm::all_of(op.getBlock()->without_terminator(), [&](Operation &each) {
          return isa<arith::MulFOp, arith::DivFOp, arith::AddFOp, arith::SubFOp>(each) &&
                 llvm::all_of(each.getOperands(), isSmall);
        }))
      return false;
  return op && isContraction(op);
}

/// Whether products sum the value, or what maps make of it; of `two` run-time values, if so asked.
bool Former::isMultiplied(Value value, bool two, int depth) {
  constexpr int kLongestChain = 8; // of maps
  SetVector<Operation *> users;
  collectUsers(value, users);
  return llvm::any_of(users, [&](Operation *user) {
    auto op = dyn_cast<linalg::LinalgOp>(user);
    if (op && isContraction(op))
      return !two || llvm::none_of(op.getDpsInputs(),
                                   [&](Value operand) { return areWeights(baseOf(operand)); });
    return op && isMap(op) && depth < kLongestChain &&
           isMultiplied(op->getResult(0), two, depth + 1);
  });
}

/// Whether the value, perhaps through maps, meets a maximum over `lane`, along which its lanes lie,
/// and which is found lane by lane: that of scores runs over a copy's rows.
bool Former::meetsMaximum(Value value, unsigned lane) {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    auto form = dyn_cast<linalg::LinalgOp>(user);
    if (!form || user->getNumResults() != 1)
      return false;
    if (!isMap(form))
      return isFormable(user) && combinerOf(form) == Combiner::Max && reducesLanes(form) &&
             reducedInput(form) == value && llvm::is_contained(reducedDims(form), lane) &&
             !isRunTimeScores(value);
    return form.getMatchingIndexingMap(form.getDpsInputOperand(0)).isIdentity() &&
           user->getOperand(0) == value && meetsMaximum(user->getResult(0), lane);
  });
}

/// Whether the value is read for nothing but maps of products of two run-time values.
bool Former::isAddedToScores(Value value) {
  SetVector<Operation *> users;
  collectUsers(value, users);
  auto isProduct = [&](Value operand) {
    constexpr int kLongestChain = 8; // of scales and other masks
    for (int depth = 0; depth < kLongestChain; ++depth) {
      linalg::LinalgOp op = formOf(baseOf(operand));
      if (op && isContraction(op))
        return !areWeights(baseOf(op->getOperand(0))) && !areWeights(baseOf(op->getOperand(1)));
      if (!op || !isMap(op) || op.getNumDpsInputs() == 0)
        return false;
      operand = op->getOperand(0);
    }
    return false;
  };
  return !users.empty() && llvm::all_of(users, [&](Operation *user) {
    auto form = dyn_cast<linalg::LinalgOp>(user);
    return form && isMap(form) && llvm::any_of(form.getDpsInputs(), isProduct);
  });
}

/// The lanes of quantised scores before they are turned to have `lane` along them; none if their
/// product is sooner computed once more so: each of their addends would be turned for it. (What is
/// not quantised would be rounded to 16 bits before the maxima are subtracted.)
std::optional<unsigned> Former::laneOfScores(Value base, unsigned lane) {
  const FailureOr<ElementType> type = memoryType(base);
  if (shapeOf(base).empty() || failed(type) || *type != ElementType::Int8 || !isRunTimeScores(base))
    return std::nullopt;
  const unsigned natural = preferredLane(base);
  if (natural == lane || shapeOf(base)[natural] == 1)
    return std::nullopt;
  int addends = 0;
  for (linalg::LinalgOp op = formOf(base); op && isMap(op); op = formOf(baseOf(op->getOperand(0))))
    addends += int(llvm::count_if(llvm::drop_begin(op.getDpsInputOperands()), [&](OpOperand *x) {
      return op.getMatchingIndexingMap(x).isIdentity() &&
             shapeOf(x->get()) == shapeOf(op->getResult(0)) && !isConstantValue(baseOf(x->get())) &&
             !isRunTimeScores(x->get()); // gates of their own
    }));
  return addends > 0 ? std::optional(natural) : std::nullopt;
}

} // namespace millrace::forms
