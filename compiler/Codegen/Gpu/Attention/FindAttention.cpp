// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Attention/FindAttention.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

/// A sum of products in fp32 that begins at 0, of two tensors.
bool isProduct(linalg::LinalgOp op) {
  if (!linalg::isaContractionOpInterface(op) || op.getNumDpsInputs() != 2 ||
      op.getNumDpsInits() != 1 || op->getNumResults() != 1 || !op.getNumReductionLoops() ||
      op.hasDynamicShape() || !getElementTypeOrSelf(op->getResult(0).getType()).isF32())
    return false;
  const auto first = dyn_cast_or_null<FloatAttr>(filling(op.getDpsInits()[0]));
  return first && first.getValue().isZero();
}

/// Products that the value is computed of with nothing but other operations between, if an
/// exponential and a sum are among these.
SmallVector<linalg::LinalgOp> productsBelow(Value value) {
  constexpr size_t kMostOperations = 256;
  SetVector<Operation *> seen;
  SmallVector<linalg::LinalgOp> products;
  bool hasExponential = false, hasSum = false;
  const auto add = [&](Value operand) {
    if (Operation *op = operand.getDefiningOp(); op && seen.size() < kMostOperations)
      seen.insert(op);
  };
  add(value);
  for (size_t i = 0; i < seen.size(); ++i) {
    auto op = dyn_cast<linalg::LinalgOp>(seen[i]);
    if (op && isProduct(op)) {
      products.push_back(op);
      continue;
    }
    if (op) {
      hasExponential |= !op.getBlock()->getOps<math::ExpOp>().empty();
      hasSum |= op.getNumReductionLoops() > 0;
    }
    for (Value operand : seen[i]->getOperands())
      add(operand);
  }
  if (!hasExponential || !hasSum)
    products.clear();
  llvm::sort(products,
             [](linalg::LinalgOp x, linalg::LinalgOp y) { return y->isBeforeInBlock(x); });
  return products;
}

/// One try: the product `values`, whose operand `side` holds weights made of `scores`.
class Match {
public:
  Match(linalg::LinalgOp scores, linalg::LinalgOp values, unsigned side)
      : side(side), trace(std::make_shared<Trace>(scores, values)) {
    found.scores = scores;
    found.values = values;
    found.trace = trace;
  }

  bool run() {
    SmallVector<Place> loops;
    for (int64_t size : found.values.getStaticLoopRanges()) {
      loops.push_back({});
      if (size > 1)
        loops.back().loops.push_back(trace->loops.add(size));
    }
    SmallVector<unsigned> reduced;
    found.values.getReductionDims(reduced);
    for (unsigned loop : reduced)
      keys.append(loops[loop].loops);
    if (keys.empty())
      return refuse("there is one key");
    const auto points = [&](unsigned operand) {
      return Trace::pointOf(found.values.getIndexingMapsArray()[operand], loops);
    };
    const auto weights = points(side), value = points(1 - side), result = points(2);
    if (!weights || !value || !result)
      return refuse("the product with V has indices that are sums");
    Term *weight = trace->at(found.values.getDpsInputOperand(side)->get(), *weights);
    if (!weight || !matchSoftmax(weight))
      return false;
    found.v = tensor(found.values.getDpsInputOperand(1 - side)->get(), *value);
    found.o = {found.values->getResult(0), *result};
    if (!matchScores())
      return false;
    found.operations = llvm::to_vector(trace->visited);
    found.operations.push_back(found.values);
    return true;
  }

  std::string why() const { return reason.empty() ? trace->why : reason; }
  FoundAttention found;

private:
  bool refuse(const std::string &text) {
    reason = text;
    return false;
  }
  AttentionTensor tensor(Value value, const Point &point) {
    auto [base, at] = trace->baseOf(value, point, /*widens=*/true);
    return {base, at};
  }

  template <class... Ops> static bool is(const Term *term) {
    return term->kind == Term::Kind::Apply && isa<Ops...>(term->op);
  }
  static bool isNumber(const Term *term, double number) {
    const auto value = dyn_cast_or_null<FloatAttr>(term->constant);
    return value && value.getValueAsDouble() == number;
  }
  /// Weights are rounded to the kernel's type: what rounds them, or widens them again, is that.
  static Term *withoutConversions(Term *term) {
    while (is<arith::ExtFOp, arith::TruncFOp>(term))
      term = term->operands[0];
    return term;
  }
  bool dependsOnKey(const Term *term) const { return trace->depends(*term, keys); }

  /// weights = exp(x) / sum of exp(x) over keys, and perhaps of others.
  bool matchSoftmax(Term *weight) {
    weight = withoutConversions(weight);
    if (is<arith::SelectOp>(weight) && is<arith::CmpFOp>(weight->operands[0]) &&
        cast<arith::CmpFOp>(weight->operands[0]->op).getPredicate() == arith::CmpFPredicate::UNO &&
        isNumber(weight->operands[1], 0)) {
      const Term *tested = weight->operands[0];
      if (!trace->areEqual(*tested->operands[0], *weight->operands[2]) ||
          !trace->areEqual(*tested->operands[1], *weight->operands[2]))
        return refuse("weights that are not a number become 0 where something else is none");
      found.emptyRowsAreZero = true;
      weight = withoutConversions(weight->operands[2]);
    }
    Term *part = nullptr, *sum = nullptr;
    if (is<arith::DivFOp>(weight)) {
      part = weight->operands[0];
      sum = weight->operands[1];
    } else if (is<arith::MulFOp>(weight)) {
      for (unsigned i : {0u, 1u})
        if (Term *other = withoutConversions(weight->operands[i]);
            is<arith::DivFOp>(other) && isNumber(other->operands[0], 1)) {
          sum = other->operands[1];
          part = weight->operands[1 - i];
        }
    }
    if (!sum || !is<math::ExpOp>(part = withoutConversions(part)))
      return refuse("weights are no quotient of an exponential");
    return matchSum(part, sum);
  }

  /// The parts of a sum.
  void flatten(Term *sum, SmallVectorImpl<std::pair<Term *, SmallVector<unsigned>>> &parts) {
    sum = withoutConversions(sum);
    if (is<arith::AddFOp>(sum)) {
      flatten(sum->operands[0], parts);
      flatten(sum->operands[1], parts);
    } else if (sum->kind == Term::Kind::Reduce && !sum->isMaximum) {
      for (auto [operand, bound] : llvm::zip(sum->operands, sum->bound))
        parts.push_back({withoutConversions(operand), bound});
    } else {
      parts.push_back({sum, {}});
    }
  }

  bool matchSum(Term *part, Term *sum) {
    SmallVector<std::pair<Term *, SmallVector<unsigned>>> parts;
    flatten(sum, parts);
    SmallVector<Term *> others;
    bool hasOwn = false;
    for (auto &[term, bound] : parts) {
      const auto own = trace->loops.parts(keys), there = trace->loops.parts(bound);
      if (!there.empty()) {
        if (hasOwn || own.size() != there.size() || !trace->areEqual(*part, *term, there, own))
          return refuse("weights are not divided by the sum of their own row");
        hasOwn = true;
      } else if (is<math::ExpOp>(term) && !dependsOnKey(term)) {
        others.push_back(term->operands[0]);
      } else {
        return refuse("the sum of weights has a part that is no exponential");
      }
    }
    if (!hasOwn)
      return refuse("weights are not divided by the sum of their row");
    Term *score = part->operands[0];
    // The same for all keys of a row, whatever it is: exponential and sum change alike.
    for (;;) {
      score = withoutConversions(score);
      unsigned shift = 0;
      if (is<arith::SubFOp>(score) && !dependsOnKey(score->operands[1]))
        shift = 1;
      else if (is<arith::AddFOp>(score) && !dependsOnKey(score->operands[1]))
        shift = 1;
      else if (is<arith::AddFOp>(score) && !dependsOnKey(score->operands[0]))
        shift = 0;
      else
        break;
      for (Term *&other : others) {
        other = withoutConversions(other);
        if (!is<arith::SubFOp, arith::AddFOp>(other) ||
            other->op->getName() != score->op->getName() ||
            !trace->areEqual(*other->operands[shift], *score->operands[shift]))
          return refuse("a part of the sum of weights is shifted otherwise than they are");
        other = other->operands[1 - shift];
      }
      score = score->operands[1 - shift];
    }
    found.score = score;
    found.sinks = others;
    return true;
  }

  /// All terms below one, without those of the product.
  bool collect(Term *term, SmallVectorImpl<Term *> &products) {
    if (term->kind == Term::Kind::Product)
      products.push_back(term);
    if (term->kind == Term::Kind::Reduce)
      return refuse("scores depend on a combination of their row");
    return llvm::all_of(term->operands, [&](Term *each) { return collect(each, products); });
  }

  bool matchScores() {
    SmallVector<Term *> products, none;
    if (!collect(found.score, products))
      return false;
    for (Term *sink : found.sinks)
      if (!collect(sink, none))
        return false;
    if (products.empty() || !none.empty() || !dependsOnKey(found.score))
      return refuse("weights are made of no product");
    for (Term *product : products)
      if (!trace->areEqual(product->point, products[0]->point))
        return refuse("a weight is made of several products");
    auto op = found.scores;
    SmallVector<Place> loops(op.getNumLoops());
    SmallVector<unsigned> depth;
    const AffineMap results = op.getIndexingMapsArray()[2];
    for (auto [index, place] : llvm::zip(results.getResults(), products[0]->point)) {
      const auto dim = dyn_cast<AffineDimExpr>(index);
      if (!dim || place.offset)
        return refuse("a part of the scores is used");
      loops[dim.getPosition()] = place;
    }
    SmallVector<unsigned> reduced;
    op.getReductionDims(reduced);
    for (unsigned loop : reduced)
      if (const int64_t size = op.getStaticLoopRanges()[loop]; size > 1) {
        depth.push_back(trace->loops.add(size));
        loops[loop].loops.push_back(depth.back());
      }
    AttentionTensor operands[2];
    for (unsigned i : {0u, 1u}) {
      const auto point = Trace::pointOf(op.getIndexingMapsArray()[i], loops);
      if (!point)
        return refuse("the product of Q and K has indices that are sums");
      operands[i] = tensor(op.getDpsInputOperand(i)->get(), *point);
    }
    const unsigned keySide = has(operands[1].point, keys) ? 1 : 0;
    found.k = operands[keySide];
    found.q = operands[1 - keySide];
    return chooseLoops(depth);
  }

  bool has(const Point &point, ArrayRef<unsigned> loops) const {
    const SmallVector<unsigned> parts = trace->loops.parts(loops);
    for (const Place &place : point)
      for (unsigned loop : trace->loops.parts(place.loops))
        if (llvm::is_contained(parts, loop))
          return true;
    return false;
  }

  bool chooseLoops(ArrayRef<unsigned> summed) {
    const auto one = [&](ArrayRef<unsigned> loops, unsigned &loop, const char *what) {
      const SmallVector<unsigned> parts = trace->loops.parts(loops);
      if (parts.size() != 1)
        return refuse(std::string(what) + " are " + std::to_string(parts.size()) +
                      " loops in memory, and a kernel takes one");
      loop = parts[0];
      return true;
    };
    if (!one(keys, found.key, "keys") || !one(summed, found.depth, "elements of a key"))
      return false;
    SmallVector<unsigned> values;
    for (const Place &place : found.o.point)
      for (unsigned loop : trace->loops.parts(place.loops)) {
        const bool inQ = has(found.q.point, loop), inK = has(found.k.point, loop),
                   inV = has(found.v.point, loop);
        if (inV && !inQ && !inK && !trace->depends(*found.score, loop))
          values.push_back(loop);
        else
          (inK || inV ? found.batch : found.rows).push_back(loop);
      }
    if (!one(values, found.valueDepth, "elements of a value"))
      return false;
    if (has(found.q.point, found.key) || has(found.v.point, found.depth) ||
        !has(found.k.point, found.key) || !has(found.v.point, found.key) ||
        !has(found.q.point, found.depth) || !has(found.k.point, found.depth))
      return refuse("Q, K and V do not share their loops as attention does");
    SmallVector<unsigned> all(found.batch);
    all.append(found.rows);
    all.append({found.key, found.depth, found.valueDepth});
    for (const AttentionTensor *tensor : {&found.q, &found.k, &found.v})
      for (auto [place, size] :
           llvm::zip(tensor->point, cast<RankedTensorType>(tensor->base.getType()).getShape())) {
        int64_t steps = 1;
        for (unsigned loop : trace->loops.parts(place.loops)) {
          steps *= trace->loops.size(loop);
          if (!llvm::is_contained(all, loop))
            return refuse("an operand has a loop that the result lacks");
        }
        if (place.offset || steps != size)
          return refuse("a part of an operand is used that is no whole tensor");
      }
    return true;
  }

  unsigned side;
  std::shared_ptr<Trace> trace;
  SmallVector<unsigned> keys;
  std::string reason;
};

} // namespace

std::vector<FoundAttention> findAttention(func::FuncOp function, std::vector<LeftAttention> *left) {
  std::vector<FoundAttention> all;
  DenseSet<Operation *> taken;
  SmallVector<linalg::LinalgOp> products;
  for (auto op : function.getBody().front().getOps<linalg::LinalgOp>())
    if (isProduct(op))
      products.push_back(op);
  for (linalg::LinalgOp values : products) {
    std::string why;
    bool isFound = false;
    for (unsigned side : {0u, 1u})
      for (linalg::LinalgOp scores : productsBelow(values.getDpsInputOperand(side)->get())) {
        if (isFound)
          break;
        Match match(scores, values, side);
        if (!match.run()) {
          if (why.empty())
            why = match.why();
          continue;
        }
        isFound = llvm::none_of(match.found.operations,
                                [&](Operation *op) { return taken.contains(op); });
        if (!isFound) {
          why = "it shares its scores with another";
          continue;
        }
        taken.insert(match.found.operations.begin(), match.found.operations.end());
        all.push_back(std::move(match.found));
      }
    if (!isFound && !why.empty() && left)
      left->push_back({nodeOf(values), why});
  }
  return all;
}

} // namespace millrace::gpu
