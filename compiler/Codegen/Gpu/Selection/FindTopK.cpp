// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Selection/FindTopK.h"

#include "compiler/Codegen/Gpu/Selection/OrderFunction.h"
#include "compiler/Codegen/Gpu/Selection/RowForms.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

#include "llvm/ADT/SetVector.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

/// What an operand of a round's map is.
enum class Role : uint8_t { Element, Place, Best, Last, LastPlace, Nothing };

class Finder {
public:
  explicit Finder(func::FuncOp function) : function(function) {}

  std::vector<FoundTopK> run() {
    for (auto op : function.getBody().front().getOps<linalg::LinalgOp>()) {
      if (taken.contains(op))
        continue;
      if (!withIndices(op) && !byRanks(op))
        byRounds(op);
    }
    return std::move(all);
  }

private:
  void keep(FoundTopK found) {
    addUsers(found);
    if (llvm::any_of(found.operations, [&](Operation *op) { return taken.contains(op); }))
      return;
    taken.insert(found.operations.begin(), found.operations.end());
    all.push_back(std::move(found));
  }

  /// Concatenations of all rounds, and conversions of places.
  static void addUsers(FoundTopK &found) {
    for (SmallVector<Value> *parts : {&found.values, &found.places})
      if (tensor::ConcatOp whole = concatenationOf(*parts)) {
        found.operations.push_back(whole);
        (parts == &found.values ? found.allValues : found.allPlaces) = whole.getResult();
      }
    addConversion(found, found.allPlaces);
  }
  static void addConversion(FoundTopK &found, Value places) {
    if (!places && found.places.size() == 1)
      places = found.places[0];
    if (!places)
      return;
    for (Operation *user : places.getUsers())
      if (auto map = dyn_cast<linalg::LinalgOp>(user);
          map && isMap(map) && map.getNumDpsInputs() == 1)
        found.operations.push_back(user);
  }
  /// One that joins the parts, each with a dimension of size one behind, in their order.
  static tensor::ConcatOp concatenationOf(ArrayRef<Value> parts) {
    if (parts.size() < 2)
      return {};
    for (Operation *user : parts[0].getUsers())
      for (Operation *next : user->getUsers()) {
        auto whole = dyn_cast<tensor::ConcatOp>(next);
        const auto isPart = [](auto pair) {
          auto expand = std::get<0>(pair).template getDefiningOp<tensor::ExpandShapeOp>();
          return expand && expand.getSrc() == std::get<1>(pair) &&
                 expand.getResultType().getShape().back() == 1 &&
                 expand.getResultType().getRank() == expand.getSrcType().getRank() + 1;
        };
        if (whole && whole.getInputs().size() == parts.size() &&
            int64_t(whole.getDim()) == whole.getResultType().getRank() - 1 &&
            llvm::all_of(llvm::zip(whole.getInputs(), parts), isPart))
          return whole;
      }
    return {};
  }

  //===-- In one pass

  /// (best, place) of (element, index) and these.
  bool withIndices(linalg::LinalgOp op) {
    if (!reducesRows(op, 2))
      return false;
    const auto ends = op.getBlock()->getTerminator()->getOperands();
    const Type value = getElementTypeOrSelf(op->getResult(0).getType());
    if (value != getElementTypeOrSelf(op.getDpsInputOperand(0)->get().getType()) ||
        !isa<IntegerType>(ends[1].getType()))
      return false;
    auto second = op.getDpsInits()[1].getDefiningOp<linalg::FillOp>();
    TypedAttr zero;
    if (!second || !matchPattern(second.getInputs()[0], m_Constant(&zero)) || !isNumber(zero, 0))
      return false;
    bool isUnsigned = false;
    for (auto compare : op.getBlock()->getOps<arith::CmpIOp>())
      isUnsigned |= compare.getPredicate() >= arith::CmpIPredicate::ult;
    for (bool isLargest : {true, false})
      for (bool lastWins : {false, true}) {
        constexpr int kHere = 7; // no value of the place so far
        const bool fits = isOrderFunction(
            op, 3, [&](unsigned dim) { return dim + 1 == op.getNumLoops() ? kHere : -1; },
            [](unsigned) { return false; },
            [&](ArrayRef<int> x, ArrayRef<OrderValue> y) {
              const bool wins =
                  (isLargest ? x[0] > x[1] : x[0] < x[1]) || (lastWins && x[0] == x[1]);
              return !y[0].constant && !y[1].constant && y[0].number == (wins ? x[0] : x[1]) &&
                     y[1].number == (wins ? kHere : x[2]);
            });
        if (!fits || !isWorst(beginOf(op), {op, isLargest, isUnsigned}))
          continue;
        FoundTopK found;
        found.input = op.getDpsInputOperand(0)->get();
        found.isLargest = isLargest;
        found.lastWins = lastWins;
        found.isUnsigned = isUnsigned;
        found.values = {op->getResult(0)};
        found.places = {op->getResult(1)};
        found.operations = {op};
        keep(std::move(found));
        return true;
      }
    return false;
  }

  //===-- In rounds

  struct Round {
    Extreme best, place;
    Operation *left = nullptr, *here = nullptr; ///< the maps that they reduce; the first may lack
  };

  /// Roles of the inputs of a map over rows; nothing if one has none.
  std::optional<SmallVector<Role>> rolesOf(linalg::LinalgOp map, Value input, Value best,
                                           const Round *before) {
    const unsigned rank = map.getNumLoops();
    if (rank == 0)
      return std::nullopt;
    const AffineMap identity = AffineMap::getMultiDimIdentityMap(rank, map.getContext());
    const AffineMap row = identity.dropResult(rank - 1);
    const AffineMap column = identity.getSubMap({rank - 1});
    SmallVector<Role> roles;
    for (OpOperand *operand : map.getDpsInputOperands()) {
      const AffineMap own = map.getMatchingIndexingMap(operand);
      const Value value = operand->get();
      Role role = Role::Nothing;
      if (value == input && own == identity)
        role = Role::Element;
      else if (own == column && countsUp(value, typeOf(input).getShape().back()))
        role = Role::Place;
      else if (own == row && best && value == best)
        role = Role::Best;
      else if (own == row && before && value == before->best.op->getResult(0))
        role = Role::Last;
      else if (own == row && before && value == before->place.op->getResult(0))
        role = Role::LastPlace;
      if (role == Role::Nothing)
        return std::nullopt;
      roles.push_back(role);
    }
    return roles;
  }

  /// Whether the map gives, of what comes behind the last chosen, `chosen`, else the constant
  /// `other`: of `isHere` the place where the element is the best, else the element.
  bool isRoundMap(linalg::LinalgOp map, ArrayRef<Role> roles, bool isHere, bool isFirst,
                  bool isLargest, llvm::function_ref<bool(TypedAttr)> isOther) {
    const auto valueOf = [&](ArrayRef<int> x, Role role) {
      const auto found = llvm::find(roles, role);
      return found == roles.end() ? 0 : x[size_t(found - roles.begin())];
    };
    // As many levels as arguments, so that every order of them occurs.
    return isOrderFunction(
        map, 5, [](unsigned) { return -1; },
        // The result's own argument is not read: two values of it are enough.
        [&](unsigned i) { return i == roles.size(); },
        [&](ArrayRef<int> x, ArrayRef<OrderValue> y) {
          const int element = valueOf(x, Role::Element), place = valueOf(x, Role::Place),
                    last = valueOf(x, Role::Last);
          bool isLeft = isFirst || (element == last ? valueOf(x, Role::LastPlace) < place
                                    : isLargest     ? element < last
                                                    : last < element);
          if (isHere)
            isLeft &= element == valueOf(x, Role::Best);
          return isLeft ? !y[0].constant && y[0].number == (isHere ? place : element)
                        : isOther(y[0].constant);
        });
  }

  /// The round whose best element is `best`.
  std::optional<Round> roundOf(Extreme best, Value input, const Round *before) {
    const int64_t n = typeOf(input).getShape().back();
    Round round;
    round.best = best;
    if (before) {
      auto left = best.of().getDefiningOp<linalg::LinalgOp>();
      const auto roles = isMap(left) ? rolesOf(left, input, Value(), before) : std::nullopt;
      if (!roles || !isRoundMap(left, *roles, /*isHere=*/false, /*isFirst=*/false, best.isMaximum,
                                [&](TypedAttr other) { return isWorst(other, best); }))
        return std::nullopt;
      round.left = left;
    }
    for (Operation *user : best.op->getResult(0).getUsers()) {
      auto here = dyn_cast<linalg::LinalgOp>(user);
      if (!here || !isMap(here) || !here->hasOneUse())
        continue;
      const auto roles = rolesOf(here, input, best.op->getResult(0), before);
      const std::optional<Extreme> place = extremeOf(*here->getUsers().begin());
      if (!roles || !place || place->isMaximum || !isNumber(beginOf(place->op), double(n)) ||
          !isRoundMap(here, *roles, /*isHere=*/true, !before, best.isMaximum,
                      [&](TypedAttr other) { return isNumber(other, double(n)); }))
        continue;
      round.here = here;
      round.place = *place;
      return round;
    }
    return std::nullopt;
  }

  void byRounds(linalg::LinalgOp op) {
    std::optional<Extreme> best = extremeOf(op);
    if (!best || !isWorst(beginOf(op), *best))
      return;
    const Value input = best->of();
    std::vector<Round> rounds;
    for (;;) {
      std::optional<Round> round = roundOf(*best, input, rounds.empty() ? nullptr : &rounds.back());
      if (!round)
        break;
      rounds.push_back(*round);
      const Value last = round->best.op->getResult(0);
      std::optional<Extreme> next;
      for (Operation *user : last.getUsers())
        for (Operation *reader : user->getUsers())
          if (const auto found = extremeOf(reader);
              !next && found && found->isMaximum == best->isMaximum &&
              found->isUnsigned == best->isUnsigned && isWorst(beginOf(found->op), *found) &&
              roundOf(*found, input, &rounds.back()))
            next = found;
      if (!next)
        break;
      best = next;
    }
    if (rounds.empty())
      return;
    FoundTopK found;
    found.input = input;
    found.k = int64_t(rounds.size());
    found.isLargest = rounds[0].best.isMaximum;
    found.isUnsigned = rounds[0].best.isUnsigned;
    for (Round &round : rounds) {
      found.values.push_back(round.best.result());
      found.places.push_back(round.place.result());
      for (Operation *each :
           {round.left, round.best.op.getOperation(), round.here, round.place.op.getOperation()})
        if (each)
          found.operations.push_back(each);
    }
    keep(std::move(found));
  }

  //===-- By counting who is before whom

  /// Whether `op` sums up, for each element, those that are before it: greater (or less), or equal
  /// and of a lower index.
  bool isRanks(linalg::LinalgOp op, FoundTopK &found) {
    if (!reducesRows(op, 1) || !isNumber(beginOf(op), 0) || !llvm::hasNItems(*op.getBlock(), 2) ||
        !isa<arith::AddFOp, arith::AddIOp>(op.getBlock()->front()) ||
        op.getBlock()->getTerminator()->getOperand(0) != op.getBlock()->front().getResult(0) ||
        op.getBlock()->front().getOperand(0) == op.getBlock()->front().getOperand(1))
      return false;
    auto pairs = op.getDpsInputOperand(0)->get().getDefiningOp<linalg::LinalgOp>();
    if (!isMap(pairs) || pairs.getNumDpsInputs() != 3)
      return false;
    const unsigned rank = pairs.getNumLoops();
    if (rank < 2)
      return false;
    const AffineMap identity = AffineMap::getMultiDimIdentityMap(rank, op.getContext());
    const AffineMap own = identity.dropResult(rank - 1), other = identity.dropResult(rank - 2);
    std::optional<unsigned> mine, theirs, earlier;
    for (auto [i, operand] : llvm::enumerate(pairs.getDpsInputOperands())) {
      const AffineMap map = pairs.getMatchingIndexingMap(operand);
      if (map == own)
        mine = unsigned(i);
      else if (map == other)
        theirs = unsigned(i);
      else if (isEarlier(operand->get(), map, rank))
        earlier = unsigned(i);
    }
    if (!mine || !theirs || !earlier || pairs->getOperand(*mine) != pairs->getOperand(*theirs))
      return false;
    found.input = pairs->getOperand(*mine);
    for (auto compare : pairs.getBlock()->getOps<arith::CmpIOp>())
      found.isUnsigned |= compare.getPredicate() >= arith::CmpIPredicate::ult;
    for (bool isLargest : {true, false}) {
      found.isLargest = isLargest;
      const bool fits = isOrderFunction(
          pairs, 3, [](unsigned) { return -1; },
          [&](unsigned i) { return i == *earlier || i == 3; },
          [&](ArrayRef<int> x, ArrayRef<OrderValue> y) {
            const int i = x[*mine], j = x[*theirs];
            const int wanted = (isLargest ? j > i : j < i) || (i == j && x[*earlier]);
            return y[0].constant ? isNumber(y[0].constant, wanted)
                                 : i == j && y[0].number == wanted;
          });
      if (!fits)
        continue;
      found.operations = {pairs, op};
      return true;
    }
    return false;
  }

  /// A constant [i][j] over the last two loops: 1 where j < i, else 0.
  static bool isEarlier(Value value, AffineMap map, unsigned rank) {
    return map.getNumResults() == 2 &&
           map == AffineMap::getMultiDimIdentityMap(rank, map.getContext())
                      .getSubMap({rank - 2, rank - 1}) &&
           isLower(value);
  }

  /// For each of k numbers the element, or the place, that has it as its rank.
  bool isPick(Operation *op, Value ranks, FoundTopK &found) {
    auto choice = dyn_cast<linalg::LinalgOp>(op);
    if (!choice || !isMap(choice) || choice.getNumDpsInputs() != 3 || !choice->hasOneUse())
      return false;
    const std::optional<Extreme> most = extremeOf(*choice->getUsers().begin());
    if (!most || !most->isMaximum)
      return false;
    const unsigned rank = choice.getNumLoops();
    if (rank < 2)
      return false;
    const AffineMap identity = AffineMap::getMultiDimIdentityMap(rank, op->getContext());
    const int64_t k = choice.getStaticLoopRanges()[rank - 2];
    std::optional<unsigned> own, number, what;
    bool isPlaces = false;
    for (auto [i, operand] : llvm::enumerate(choice.getDpsInputOperands())) {
      const AffineMap map = choice.getMatchingIndexingMap(operand);
      const Value value = operand->get();
      if (value == ranks && map == identity.dropResult(rank - 2))
        own = unsigned(i);
      else if (map == identity.getSubMap({rank - 2}) && countsUp(value, k))
        number = unsigned(i);
      else if (value == found.input && map == identity.dropResult(rank - 2))
        what = unsigned(i);
      else if (map == identity.getSubMap({rank - 1}) && countsUp(value, found.columns())) {
        what = unsigned(i);
        isPlaces = true;
      }
    }
    // Nothing is less than where the maximum begins, or than what is chosen elsewhere.
    const auto isLeast = [&](TypedAttr value) {
      return isPlaces ? isNumber(value, -1) : isWorst(value, {choice, true, found.isUnsigned});
    };
    if (!own || !number || !what || !isLeast(beginOf(most->op)) ||
        !isOrderFunction(
            choice, 3, [](unsigned) { return -1; }, [](unsigned i) { return i == 3; },
            [&](ArrayRef<int> x, ArrayRef<OrderValue> y) {
              return x[*own] == x[*number] ? !y[0].constant && y[0].number == x[*what]
                                           : isLeast(y[0].constant);
            }))
      return false;
    Value &all = isPlaces ? found.allPlaces : found.allValues;
    if (all || (found.k != 1 && found.k != k))
      return false;
    found.k = k;
    linalg::LinalgOp reduction = most->op;
    all = reduction->getResult(0);
    found.operations.push_back(choice);
    found.operations.push_back(reduction);
    return true;
  }

  bool byRanks(linalg::LinalgOp op) {
    FoundTopK found;
    if (!isRanks(op, found))
      return false;
    for (Operation *user : op->getResult(0).getUsers())
      if (!isPick(user, op->getResult(0), found))
        return false;
    if (!found.allValues && !found.allPlaces)
      return false;
    keep(std::move(found));
    return true;
  }

  func::FuncOp function;
  std::vector<FoundTopK> all;
  DenseSet<Operation *> taken;
};

} // namespace

SmallVector<Operation *> computeNumbers(FoundTopK &found) {
  SmallVector<Operation *> added;
  for (Operation *op : found.operations)
    for (OpOperand &operand : op->getOpOperands()) {
      auto type = dyn_cast<RankedTensorType>(operand.get().getType());
      DenseElementsAttr constant;
      if (!type || !type.getElementType().isF32() || type.getRank() < 1 || type.getRank() > 2 ||
          !matchPattern(operand.get(), m_Constant(&constant)))
        continue;
      const bool isEarlier = type.getRank() == 2;
      if (isEarlier ? !isLower(operand.get()) : !countsUp(operand.get(), type.getNumElements()))
        continue;
      OpBuilder b(op);
      const Location place = op->getLoc();
      Value empty = tensor::EmptyOp::create(b, place, type.getShape(), type.getElementType());
      auto made = linalg::GenericOp::create(
          b, place, TypeRange(type), ValueRange(), ValueRange(empty),
          ArrayRef<AffineMap>{b.getMultiDimIdentityMap(unsigned(type.getRank()))},
          SmallVector<utils::IteratorType>(size_t(type.getRank()), utils::IteratorType::parallel),
          [&](OpBuilder &inner, Location at, ValueRange) {
            Value i = linalg::IndexOp::create(inner, at, 0), number;
            if (isEarlier) {
              Value j = linalg::IndexOp::create(inner, at, 1);
              number = arith::UIToFPOp::create(
                  inner, at, inner.getF32Type(),
                  arith::CmpIOp::create(inner, at, arith::CmpIPredicate::ult, j, i));
            } else {
              number = arith::SIToFPOp::create(
                  inner, at, inner.getF32Type(),
                  arith::IndexCastOp::create(inner, at, inner.getI64Type(), i));
            }
            linalg::YieldOp::create(inner, at, number);
          });
      operand.set(made.getResult(0));
      added.push_back(made);
    }
  return added;
}

std::vector<FoundTopK> findTopK(func::FuncOp function) { return Finder(function).run(); }

} // namespace millrace::gpu
