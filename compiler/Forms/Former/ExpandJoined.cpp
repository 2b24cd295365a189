// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"
#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/IR/IRMapping.h"

#include "llvm/ADT/MapVector.h"

namespace millrace::forms {

using namespace mlir;

namespace {

/// What is computed between a view that joins dimensions and its inverses, or products that sum
/// them, in the dimensions that it joins.
class Joined {
public:
  explicit Joined(tensor::CollapseShapeOp view) : view(view) {}

  /// Whether all that reads the joined dimension sums it up, hands it on, or cuts it as it was.
  bool find();
  /// Whether some of it is cut as it was; else products sum it all up.
  bool isCut() const { return !exits.empty(); }
  /// Whether the innermost of what is joined is too short to lie along the lanes: then the whole
  /// does not lie along them in its order.
  bool isShortWithin() const { return withoutOnes(parts).back() < kLongPart; }
  /// Whether a quantiser works in it: its result would be stored in the joined dimension.
  bool isStored() const {
    return llvm::any_of(operations, [](Operation *op) { return quantKind(op) == "quantize"; });
  }
  void expand();

private:
  bool add(Operation *user, unsigned dim);
  bool addMap(linalg::LinalgOp op, unsigned dim, Value joined);
  bool readsJoinedOnly(linalg::LinalgOp op) const;
  void expandMap(linalg::LinalgOp op);
  SmallVector<int64_t> expandedShape(ArrayRef<int64_t> shape, unsigned dim) const {
    SmallVector<int64_t> its(shape.take_front(dim));
    llvm::append_range(its, parts);
    llvm::append_range(its, shape.drop_front(dim + 1));
    return its;
  }

  tensor::CollapseShapeOp view;
  SmallVector<int64_t> parts;               ///< extents that are joined
  llvm::MapVector<Value, unsigned> dims;    ///< by value in which it is joined: where
  llvm::MapVector<Operation *, int> loops;  ///< by map: its joined loop
  SmallVector<Operation *> operations;      ///< views and maps, in order at last
  SmallVector<tensor::ExpandShapeOp> exits; ///< cut what is joined as it was
  IRMapping expanded;
};

bool Joined::addMap(linalg::LinalgOp op, unsigned dim, Value joined) {
  if (op->hasAttr(kDevice) || op.hasIndexSemantics())
    return false;
  for (OpOperand *input : op.getDpsInputOperands()) {
    if (input->get() != joined)
      continue;
    const auto loop = dyn_cast<AffineDimExpr>(op.getMatchingIndexingMap(input).getResult(dim));
    if (!loop || (loops.contains(op) && loops[op] != int(loop.getPosition())))
      return false;
    loops[op] = int(loop.getPosition());
  }
  if (!loops.contains(op)) // joined is what it begins with
    return false;
  if (op.getIteratorTypesArray()[size_t(loops[op])] == utils::IteratorType::reduction)
    return true;
  for (OpOperand &init : op.getDpsInitsMutable()) {
    const AffineMap map = op.getMatchingIndexingMap(&init);
    const std::optional<unsigned> at =
        map.getResultPosition(getAffineDimExpr(unsigned(loops[op]), op.getContext()));
    if (!at || !isa_and_nonnull<tensor::EmptyOp, linalg::FillOp>(init.get().getDefiningOp()))
      return false;
    dims[op.getTiedOpResult(&init)] = *at;
  }
  return true;
}

/// A map, a reduction or a product, which is made anew as a linalg.generic.
linalg::LinalgOp computed(Operation *op) {
  return isa<linalg::GenericOp, linalg::ContractionOpInterface>(op) ? cast<linalg::LinalgOp>(op)
                                                                    : linalg::LinalgOp();
}

bool Joined::add(Operation *user, unsigned dim) {
  if (auto cut = dyn_cast<tensor::ExpandShapeOp>(user)) {
    const ReassociationIndices group = cut.getReassociationIndices()[dim];
    const ArrayRef<int64_t> shape = cut.getResultType().getShape();
    const auto core = withoutOnes(shape.slice(size_t(group.front()), group.size()));
    if (core.size() == 1)
      dims[cut.getResult()] =
          unsigned(*llvm::find_if(group, [&](int64_t d) { return shape[size_t(d)] > 1; }));
    else if (core == withoutOnes(parts))
      exits.push_back(cut);
    else
      return false;
    return true;
  }
  if (auto join = dyn_cast<tensor::CollapseShapeOp>(user)) {
    for (auto [i, group] : llvm::enumerate(join.getReassociationIndices()))
      if (llvm::is_contained(group, int64_t(dim))) {
        dims[join.getResult()] = unsigned(i);
        return join.getResultType().getShape()[i] == join.getSrcType().getShape()[dim];
      }
  }
  return false;
}

/// A constant, or what dequantises one.
bool isConstant(Value value) {
  Operation *op = value.getDefiningOp();
  return viewConstant(value) ||
         (op && quantKind(op) == "dequantize" &&
          llvm::all_of(cast<linalg::GenericOp>(op).getDpsInputs(),
                       [](Value input) { return viewConstant(input).has_value(); }));
}

/// Nothing else varies along the joined dimension but constants, that are not a quantiser's.
bool Joined::readsJoinedOnly(linalg::LinalgOp op) const {
  const auto loop = unsigned(loops.lookup(op));
  for (OpOperand *input : op.getDpsInputOperands()) {
    const AffineMap map = op.getMatchingIndexingMap(input);
    if (!map.isFunctionOfDim(loop))
      continue;
    if (!map.isProjectedPermutation() ||
        (!dims.contains(input->get()) && (!isConstant(input->get()) || !quantKind(op).empty())))
      return false;
  }
  return true;
}

bool Joined::find() {
  for (auto [i, group] : llvm::enumerate(view.getReassociationIndices())) {
    const ArrayRef<int64_t> its =
        view.getSrcType().getShape().slice(size_t(group.front()), group.size());
    if (withoutOnes(its).size() < 2)
      continue;
    if (!parts.empty())
      return false;
    parts.assign(its.begin(), its.end());
    dims[view.getResult()] = unsigned(i);
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto [value, dim] = dims.begin()[i];
    for (Operation *user : value.getUsers()) {
      if (user->getBlock() != view->getBlock())
        return false;
      const linalg::LinalgOp map = computed(user);
      if (!(map ? addMap(map, dim, value) : add(user, dim)))
        return false;
      if (!isa<tensor::ExpandShapeOp>(user) || !llvm::is_contained(exits, user))
        operations.push_back(user);
    }
  }
  llvm::sort(operations, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  operations.erase(llvm::unique(operations), operations.end());
  return !parts.empty() && llvm::all_of(loops, [&](const auto &entry) {
    return readsJoinedOnly(cast<linalg::LinalgOp>(entry.first));
  });
}

void Joined::expandMap(linalg::LinalgOp op) {
  OpBuilder builder(op);
  const auto loop = unsigned(loops.lookup(op)), more = unsigned(parts.size()) - 1;
  const auto expandedMap = [&](AffineMap map) {
    SmallVector<AffineExpr> results;
    for (AffineExpr expr : map.getResults())
      if (expr == builder.getAffineDimExpr(loop))
        for (unsigned part = 0; part <= more; ++part)
          results.push_back(builder.getAffineDimExpr(loop + part));
      else
        results.push_back(expr.shiftDims(map.getNumDims(), more, loop + 1));
    return AffineMap::get(map.getNumDims() + more, 0, results, op.getContext());
  };
  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  kinds.insert(kinds.begin() + loop, more, kinds[loop]);
  SmallVector<AffineMap> maps;
  SmallVector<Value> inputs, inits;
  SmallVector<Type> types;
  for (OpOperand &operand : op->getOpOperands()) {
    const AffineMap map = op.getMatchingIndexingMap(&operand);
    maps.push_back(expandedMap(map));
    const std::optional<unsigned> dim = map.getResultPosition(builder.getAffineDimExpr(loop));
    Value value = expanded.lookupOrDefault(operand.get());
    const auto type = cast<RankedTensorType>(operand.get().getType());
    if (dim && op.isDpsInit(&operand)) {
      const auto shape = expandedShape(type.getShape(), *dim);
      Value init = tensor::EmptyOp::create(builder, op.getLoc(), shape, type.getElementType());
      if (auto fill = operand.get().getDefiningOp<linalg::FillOp>())
        init = linalg::FillOp::create(builder, op.getLoc(), fill.getInputs(), ValueRange(init))
                   .getResult(0);
      value = init;
    } else if (dim && value == operand.get()) {
      const auto shape = type.clone(expandedShape(type.getShape(), *dim));
      value = tensor::ExpandShapeOp::create(builder, op.getLoc(), shape, value,
                                            *getReassociationIndicesForReshape(type, shape));
    }
    (op.isDpsInit(&operand) ? inits : inputs).push_back(value);
    if (op.isDpsInit(&operand))
      types.push_back(value.getType());
  }
  auto made = linalg::GenericOp::create(builder, op.getLoc(), types, inputs, inits, maps, kinds);
  made->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  IRMapping captured;
  op->getRegion(0).cloneInto(&made.getRegion(), captured);
  for (auto [was, is] : llvm::zip(op->getResults(), made->getResults()))
    if (dims.contains(was))
      expanded.map(was, is);
    else
      was.replaceAllUsesWith(is);
}

void Joined::expand() {
  const auto [whole, at] = dims.front();
  OpBuilder before(view);
  expanded.map(whole, reshaped(before, view.getLoc(), view.getSrc(),
                               expandedShape(view.getResultType().getShape(), at)));
  for (Operation *op : operations) {
    if (const linalg::LinalgOp map = computed(op)) {
      expandMap(map);
      continue;
    }
    OpBuilder builder(op);
    const Value was = op->getResult(0);
    expanded.map(was, reshaped(builder, op->getLoc(), expanded.lookup(op->getOperand(0)),
                               expandedShape(cast<RankedTensorType>(was.getType()).getShape(),
                                             dims.lookup(was))));
  }
  for (tensor::ExpandShapeOp exit : exits) {
    OpBuilder builder(exit);
    const Value same = reshaped(builder, exit.getLoc(), expanded.lookup(exit.getSrc()),
                                exit.getResultType().getShape());
    exit.getResult().replaceAllUsesWith(same);
    exit->erase();
  }
  for (Operation *op : llvm::reverse(operations))
    op->erase();
  view->erase();
}

} // namespace

void expandJoined(tensor::CollapseShapeOp view) {
  if (Joined joined(view); joined.find() && joined.isCut())
    joined.expand();
}

void expandJoined(func::FuncOp function) {
  SmallVector<tensor::CollapseShapeOp> views;
  function.walk([&](tensor::CollapseShapeOp op) { views.push_back(op); });
  for (tensor::CollapseShapeOp view : llvm::reverse(views)) // what goes lies behind
    if (Joined joined(view);
        joined.find() && joined.isStored() && (joined.isCut() || joined.isShortWithin()))
      joined.expand();
}

} // namespace millrace::forms
