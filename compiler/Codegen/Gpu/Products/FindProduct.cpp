// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Products/FindProduct.h"

#include "compiler/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>

namespace millrace::gpu {

using namespace mlir;

int64_t FoundProduct::count(ArrayRef<unsigned> loops) const {
  int64_t product = 1;
  for (unsigned loop : loops)
    product *= size(loop);
  return product;
}

bool isAnyProduct(linalg::LinalgOp op) {
  return linalg::isaContractionOpInterface(op) && op.getNumDpsInputs() == 2 &&
         op.getNumDpsInits() == 1 && op->getNumResults() == 1 && op.getNumReductionLoops();
}

namespace {

Type elementOf(Value value) { return getElementTypeOrSelf(value.getType()); }
bool isNarrow(Type type) { return type.isF16() || type.isBF16(); }
int64_t elementsOf(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() ? type.getNumElements() : 0;
}

/// Whether each element of the result is a function of elements at its place.
bool isElementwise(Operation *op) {
  auto form = dyn_cast<linalg::LinalgOp>(op);
  return form && op->getNumResults() == 1 && !form.getNumReductionLoops() &&
         !form.hasDynamicShape() && form.getBlock()->getOps<tensor::ExtractOp>().empty();
}

/// Arithmetic that may be done again for each tile, of one large tensor.
bool isCheap(linalg::LinalgOp form) {
  size_t large = 0;
  for (OpOperand *operand : form.getDpsInputOperands())
    large += elementsOf(operand->get()) * 8 > elementsOf(form->getResult(0));
  return large <= 1 && llvm::all_of(form.getBlock()->without_terminator(), [](Operation &op) {
           const bool isDivision = isa<arith::DivFOp, arith::RemFOp, arith::DivSIOp, arith::DivUIOp,
                                       arith::RemSIOp, arith::RemUIOp>(op);
           return isa<linalg::IndexOp>(op) ||
                  (op.getName().getDialectNamespace() == "arith" && !isDivision);
         });
}

/// What is computed of an operand where it is multiplied.
void collectOperand(Value value, SetVector<Operation *> &operations) {
  constexpr size_t kMostOperations = 64;
  Operation *op = value.getDefiningOp();
  if (!op || operations.size() >= kMostOperations || filling(value))
    return;
  if (!isView(op) && !(isElementwise(op) && isCheap(cast<linalg::LinalgOp>(op))))
    return;
  if (!operations.insert(op))
    return;
  for (Value operand : op->getOperands())
    if (isa<RankedTensorType>(operand.getType()))
      collectOperand(operand, operations);
}

/// Operations behind the product that one kernel may end with, the furthest last: all that is
/// computed of the product up to it is elementwise, and nothing else reads that.
SmallVector<Operation *> endsOf(linalg::LinalgOp product) {
  constexpr size_t kMostOperations = 32;
  SetVector<Operation *> inside;
  SmallVector<Operation *> ends;
  const auto isEnd = [&](Operation *last) {
    return llvm::all_of(inside, [&](Operation *op) {
      return op == last ||
             llvm::all_of(op->getUsers(), [&](Operation *user) { return inside.contains(user); });
    });
  };
  inside.insert(product);
  ends.push_back(product);
  for (Operation *op = product->getNextNode(); op && inside.size() < kMostOperations;
       op = op->getNextNode()) {
    if (llvm::none_of(op->getOperands(),
                      [&](Value operand) { return inside.contains(operand.getDefiningOp()); }))
      continue;
    if (!isView(op) && !isElementwise(op))
      break;
    inside.insert(op);
    if (isEnd(op) && elementsOf(op->getResult(0)) == elementsOf(product->getResult(0)))
      ends.push_back(op);
  }
  return ends;
}

/// One try: the product up to `last`, with what is computed of its operands if `follows`.
class Match {
public:
  Match(linalg::LinalgOp product, Operation *last, bool follows)
      : trace(std::make_shared<Trace>(product, last)) {
    found.product = product;
    found.last = last;
    found.trace = trace;
    SetVector<Operation *> operations;
    if (follows)
      for (OpOperand *operand : product.getDpsInputOperands())
        collectOperand(operand->get(), operations);
    for (Operation *op : operations)
      trace->follow(op);
  }

  bool run(Type type) {
    Point point;
    for (int64_t size : cast<RankedTensorType>(found.last->getResult(0).getType()).getShape()) {
      point.push_back({});
      if (size > 1)
        point.back().loops.push_back(trace->loops.add(size));
    }
    found.result = trace->at(found.last->getResult(0), point);
    found.o = point;
    if (!found.result || !placeProduct() || !placeOperands() || !chooseLoops() || !chooseType(type))
      return false;
    // In the order of the block, so that what is erased has no use left if it goes from the end.
    found.operations = llvm::to_vector(trace->visited);
    llvm::sort(found.operations, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
    return true;
  }
  std::string why() const { return reason.empty() ? trace->why : reason; }

  FoundProduct found;

private:
  bool refuse(const std::string &text) {
    reason = text;
    return false;
  }

  bool collect(const Term &term, SmallVectorImpl<const Term *> &products) {
    if (term.kind == Term::Kind::Reduce)
      return refuse("a row is combined");
    if (term.kind == Term::Kind::Product)
      products.push_back(&term);
    return llvm::all_of(term.operands,
                        [&](const Term *operand) { return collect(*operand, products); });
  }

  /// Where the product's loops are while the result is at its point.
  bool placeProduct() {
    SmallVector<const Term *> products;
    if (!collect(*found.result, products))
      return false;
    if (products.empty())
      return refuse("the result does not depend on the product");
    at.resize(found.product.getNumLoops());
    for (const Term *product : products)
      if (!trace->areEqual(product->point, products[0]->point))
        return refuse("an element is made of several sums");
    const AffineMap map = found.product.getMatchingIndexingMap(found.product.getDpsInitOperand(0));
    for (auto [index, place] : llvm::zip(map.getResults(), products[0]->point)) {
      const auto dim = dyn_cast<AffineDimExpr>(index);
      if (!dim || place.offset)
        return refuse("a part of the product is used");
      at[dim.getPosition()] = place;
    }
    sum = products[0]->point;
    return true;
  }

  bool placeOperands() {
    SmallVector<unsigned> reduced;
    found.product.getReductionDims(reduced);
    for (unsigned loop : reduced)
      if (const int64_t size = found.product.getStaticLoopRanges()[loop]; size > 1)
        at[loop].loops.push_back(trace->loops.add(size));
    Term **terms[] = {&found.left, &found.right, &found.first};
    for (auto [i, term] : llvm::enumerate(terms)) {
      const auto point = Trace::pointOf(found.product.getIndexingMapsArray()[i], at);
      if (!point)
        return refuse("an operand's index is a sum of loops");
      *term = trace->at(found.product->getOperand(unsigned(i)), *point);
      if (!*term)
        return false;
    }
    SmallVector<const Term *> none;
    for (Term **term : terms)
      if (!collect(**term, none))
        return false;
    return none.empty() || refuse("an operand is made of the product");
  }

  SmallVector<unsigned> partsOf(ArrayRef<unsigned> loops) const {
    SmallVector<unsigned> parts;
    for (unsigned loop : loops)
      parts.append(trace->loops.parts(at[loop].loops));
    return parts;
  }

  bool chooseLoops() {
    FailureOr<linalg::ContractionDimensions> dims = linalg::inferContractionDims(found.product);
    if (failed(dims))
      return refuse("its loops are not those of a matrix product");
    SmallVector<unsigned> m = partsOf(dims->m), n = partsOf(dims->n);
    found.outer = partsOf(dims->batch);
    found.depths = partsOf(dims->k);
    // Every element of the result is one of the product.
    SmallVector<unsigned> all(found.outer), there;
    all.append(m);
    all.append(n);
    for (const Place &place : found.o)
      there.append(trace->loops.parts(place.loops));
    llvm::sort(all);
    llvm::sort(there);
    if (all != there)
      return refuse("the result has other loops than the product");
    // Fewer would leave most lanes without one: of a warpgroup where TMA may load the operands,
    // else of a warp.
    const bool isLoaded = narrowed(found.left)->kind == Term::Kind::Leaf &&
                          narrowed(found.right)->kind == Term::Kind::Leaf;
    const int64_t fewRows = isLoaded ? 64 : 16;
    if (n.empty() || (found.count(m) < fewRows && found.count(n) > found.count(m))) {
      std::swap(m, n);
      std::swap(found.left, found.right);
    }
    if (m.empty() && n.empty())
      return refuse("it has one row and one column");
    if (n.empty()) { // one column, which memory gets a dimension for
      n.push_back(trace->loops.add(1));
      found.o.back().loops.push_back(n.back());
    }
    found.rows = m;
    found.column = n.pop_back_val();
    found.outer.append(n);
    if (found.depths.empty())
      found.depths.push_back(trace->loops.add(1));
    while (!found.depths.empty() && stepTogether(found.depths.back()))
      found.steps.insert(found.steps.begin(), found.depths.pop_back_val());
    for (const Term *term : {found.left, found.right, found.first, found.result})
      if (!isKernelTerm(*term))
        return false;
    return true;
  }

  /// Whether a further loop lies directly outside of those of the steps, wherever a row is read.
  bool stepTogether(unsigned loop) const {
    SmallVector<unsigned> wanted = {loop};
    wanted.append(found.steps);
    return found.steps.empty() || areTogether(*found.left, wanted);
  }
  bool areTogether(const Term &term, ArrayRef<unsigned> wanted) const {
    for (const Place &place : term.point) {
      const SmallVector<unsigned> parts = trace->loops.parts(place.loops);
      const auto isWanted = [&](unsigned part) { return llvm::is_contained(wanted, part); };
      if (llvm::any_of(parts, isWanted) &&
          (term.kind == Term::Kind::Index || parts.size() < wanted.size() ||
           ArrayRef(parts).take_back(wanted.size()) != wanted))
        return false;
    }
    return llvm::all_of(term.operands,
                        [&](const Term *operand) { return areTogether(*operand, wanted); });
  }

  /// Whether a kernel can write the term: all of its operations, and tensors as a whole.
  bool isKernelTerm(const Term &term) {
    if (term.kind == Term::Kind::Apply && (!tile::isAllowedInKernel(term.op) ||
                                           !llvm::all_of(term.op->getResultTypes(), [](Type type) {
                                             return type.isIntOrIndexOrFloat();
                                           })))
      return refuse("'" + term.op->getName().getStringRef().str() + "' stands in no kernel");
    if (term.kind == Term::Kind::Index && trace->loops.parts(term.point[0].loops).size() > 1)
      return refuse("an index has several loops");
    if (term.kind == Term::Kind::Leaf) {
      const auto type = cast<RankedTensorType>(term.base.getType());
      if (!tile::isElementType(type.getElementType()))
        return refuse("no kernel reads elements of a tensor that it needs");
      for (auto [place, size] : llvm::zip(term.point, type.getShape())) {
        int64_t steps = 1;
        for (unsigned loop : trace->loops.parts(place.loops))
          steps *= trace->loops.size(loop);
        if (place.offset || steps != size)
          return refuse("a part of a tensor is read");
      }
    }
    return llvm::all_of(term.operands, [&](const Term *operand) { return isKernelTerm(*operand); });
  }

  /// Without what widens it.
  static Term *narrowed(Term *term) {
    if (term->kind == Term::Kind::Apply && isa<arith::ExtFOp>(term->op) &&
        isNarrow(term->op->getOperand(0).getType()))
      return term->operands[0];
    return term;
  }
  static Type typeOf(const Term &term) {
    if (term.kind == Term::Kind::Leaf)
      return elementOf(term.base);
    if (term.kind == Term::Kind::Apply)
      return term.op->getResult(0).getType();
    return term.constant ? term.constant.getType() : Type();
  }
  bool chooseType(Type type) {
    Term *left = narrowed(found.left), *right = narrowed(found.right);
    const Type own = typeOf(*left);
    found.element = own && isNarrow(own) && own == typeOf(*right) ? own : type;
    const auto take = [&](Term *&term, Term *narrow) {
      if (typeOf(*narrow) == found.element)
        term = narrow;
    };
    take(found.left, left);
    take(found.right, right);
    return true;
  }

  std::shared_ptr<Trace> trace;
  SmallVector<Place> at; ///< by the product's loops
  Point sum;
  std::string reason;
};

/// Whether the body multiplies and adds, and widens at most.
bool addsProducts(linalg::LinalgOp op) {
  return llvm::all_of(op.getBlock()->without_terminator(), [](Operation &inner) {
    return isa<arith::MulFOp, arith::AddFOp, arith::ExtFOp>(inner);
  });
}

} // namespace

std::optional<FoundProduct> findProduct(linalg::LinalgOp op, Type type, std::string &why,
                                        bool isFollowing) {
  why.clear();
  if (op.hasDynamicShape() || llvm::is_contained(op.getStaticLoopRanges(), 0)) {
    why = "its sizes are no constants, or 0";
    return std::nullopt;
  }
  const Type sums = elementOf(op->getResult(0));
  if (!sums.isF32() || !addsProducts(op)) {
    std::string text;
    llvm::raw_string_ostream out(text);
    out << "it multiplies " << elementOf(op.getDpsInputOperand(0)->get()) << " by "
        << elementOf(op.getDpsInputOperand(1)->get()) << " with sums of " << sums
        << ", and kernels for tensor cores add products of real numbers in f32";
    why = text;
    return std::nullopt;
  }
  for (Operation *last : llvm::reverse(endsOf(op)))
    for (bool follows : {true, false}) {
      if ((follows && !isFollowing) || elementOf(last->getResult(0)).isInteger(1))
        continue;
      Match match(op, last, follows);
      if (match.run(type))
        return std::move(match.found);
      why = match.why();
    }
  return std::nullopt;
}

} // namespace millrace::gpu
