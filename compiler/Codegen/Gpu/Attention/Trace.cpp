// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Attention/Trace.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

#include <algorithm>
#include <numeric>

namespace millrace::gpu {

using namespace mlir;

unsigned Loops::add(int64_t size) {
  all.push_back({size, std::nullopt});
  return unsigned(all.size() - 1);
}

std::pair<unsigned, unsigned> Loops::split(unsigned loop, int64_t inner) {
  const unsigned outer = add(all[loop].size / inner), rest = add(inner);
  all[loop].parts = {outer, rest};
  return *all[loop].parts;
}

SmallVector<unsigned> Loops::parts(ArrayRef<unsigned> loops) const {
  SmallVector<unsigned> result;
  for (unsigned loop : loops)
    if (const auto &cut = all[loop].parts)
      result.append(parts({cut->first, cut->second}));
    else
      result.push_back(loop);
  return result;
}

std::string nodeOf(Operation *op) {
  if (auto name = dyn_cast<NameLoc>(op->getLoc()))
    return name.getName().str();
  return op->getName().getStringRef().str();
}

TypedAttr filling(Value tensor) {
  if (auto fill = tensor.getDefiningOp<linalg::FillOp>()) {
    TypedAttr value;
    return matchPattern(fill.getInputs()[0], m_Constant(&value)) ? value : TypedAttr();
  }
  SplatElementsAttr splat;
  return matchPattern(tensor, m_Constant(&splat)) ? splat.getSplatValue<TypedAttr>() : TypedAttr();
}

Trace::Trace(linalg::LinalgOp product, Operation *end) : product(product) {
  dependent.insert(product);
  for (Operation *op = product->getNextNode(); op; op = op->getNextNode()) {
    const bool isDependent =
        op->walk([&](Operation *inner) {
            return llvm::any_of(
                       inner->getOperands(),
                       [&](Value operand) { return dependent.contains(operand.getDefiningOp()); })
                       ? WalkResult::interrupt()
                       : WalkResult::advance();
          }).wasInterrupted();
    if (isDependent)
      dependent.insert(op);
    if (op == end)
      break;
  }
}

Term *Trace::refuse(const std::string &reason) {
  if (why.empty())
    why = reason;
  return nullptr;
}

Term *Trace::newTerm(Term::Kind kind) {
  terms.emplace_back().kind = kind;
  return &terms.back();
}

//===-- Views
//-------------------------------------------------------------------------------------===//

std::optional<Point> Trace::pointOf(AffineMap map, ArrayRef<Place> loops) {
  Point point;
  for (AffineExpr index : map.getResults())
    if (auto dim = dyn_cast<AffineDimExpr>(index))
      point.push_back(loops[dim.getPosition()]);
    else if (auto constant = dyn_cast<AffineConstantExpr>(index))
      point.push_back({{}, constant.getValue()});
    else
      return std::nullopt;
  return point;
}

/// An index of several dimensions that were one.
std::optional<SmallVector<Place>> Trace::cut(const Place &place, ArrayRef<int64_t> sizes) {
  SmallVector<Place> places(sizes.size());
  const auto isLong = [](int64_t size) { return size != 1; };
  if (llvm::count_if(sizes, isLong) <= 1) {
    if (const auto found = llvm::find_if(sizes, isLong); found != sizes.end())
      places[size_t(found - sizes.begin())] = place;
    return places;
  }
  SmallVector<unsigned> rest = loops.parts(place.loops);
  if (place.offset)
    return std::nullopt;
  for (size_t d = sizes.size(); d-- > 0;)
    for (int64_t wanted = sizes[d]; wanted > 1;) {
      if (rest.empty())
        return std::nullopt;
      const int64_t size = loops.size(rest.back());
      if (size > wanted && size % wanted == 0) {
        const auto [outer, inner] = loops.split(rest.back(), wanted);
        rest.back() = outer;
        rest.push_back(inner);
      } else if (wanted % size) {
        return std::nullopt;
      }
      wanted /= loops.size(rest.back());
      places[d].loops.insert(places[d].loops.begin(), rest.pop_back_val());
    }
  return rest.empty() ? std::optional(places) : std::nullopt;
}

/// The index of one dimension that several were.
std::optional<Place> Trace::join(ArrayRef<Place> places, ArrayRef<int64_t> sizes) {
  Place joined;
  size_t longOnes = 0;
  for (auto [place, size] : llvm::zip(places, sizes))
    if (size != 1) {
      if (!longOnes++)
        joined = place;
      else
        joined.loops.append(place.loops.begin(), place.loops.end());
    }
  if (longOnes <= 1)
    return joined;
  for (auto [place, size] : llvm::zip(places, sizes)) {
    int64_t steps = 1;
    for (unsigned loop : place.loops)
      steps *= loops.size(loop);
    if (steps != size || place.offset)
      return std::nullopt;
  }
  return joined;
}

/// Whether the operation moves elements and does nothing with them.
static bool isCopy(linalg::LinalgOp op) {
  return op.getNumDpsInputs() == 1 && op.getNumDpsInits() == 1 && !op.getNumReductionLoops() &&
         isa<RankedTensorType>(op.getDpsInputOperand(0)->get().getType()) &&
         llvm::hasSingleElement(*op.getBlock()) &&
         op.getBlock()->getTerminator()->getOperand(0) == op.getBlock()->getArgument(0);
}

bool isView(Operation *op) {
  auto form = dyn_cast<linalg::LinalgOp>(op);
  return isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op) || (form && isCopy(form));
}

/// The loops of an operation that computes an element of its result.
static std::optional<SmallVector<Place>> loopsAt(linalg::LinalgOp op, const Point &point) {
  SmallVector<Place> loops(op.getNumLoops());
  const AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  if (!map.isProjectedPermutation())
    return std::nullopt;
  for (auto [index, place] : llvm::zip(map.getResults(), point))
    loops[cast<AffineDimExpr>(index).getPosition()] = place;
  return loops;
}

bool Trace::stepLinalg(linalg::LinalgOp op, Value &value, Point &point) {
  if (!isCopy(op))
    return false;
  const auto at = loopsAt(op, point);
  const auto source = at ? pointOf(op.getIndexingMapsArray()[0], *at) : std::nullopt;
  if (!source)
    return false;
  value = op.getDpsInputOperand(0)->get();
  point = *source;
  return true;
}

bool Trace::step(Value &value, Point &point, bool slices) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return false;
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    return stepLinalg(linalgOp, value, point);
  Point source;
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    for (auto [place, group] : llvm::zip(point, collapse.getReassociationIndices())) {
      const auto places =
          cut(place, collapse.getSrcType().getShape().slice(size_t(group.front()), group.size()));
      if (!places)
        return false;
      source.append(places->begin(), places->end());
    }
    if (point.empty()) // of one element
      source.resize(size_t(collapse.getSrcType().getRank()));
    value = collapse.getSrc();
  } else if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
    for (const ReassociationIndices &group : expand.getReassociationIndices()) {
      const auto first = size_t(group.front());
      const auto place = join(ArrayRef<Place>(point).slice(first, group.size()),
                              expand.getResultType().getShape().slice(first, group.size()));
      if (!place)
        return false;
      source.push_back(*place);
    }
    value = expand.getSrc();
  } else if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op); slice && slices) {
    if (!slice.hasUnitStride() || llvm::any_of(slice.getStaticOffsets(), ShapedType::isDynamic))
      return false;
    const llvm::SmallBitVector dropped = slice.getDroppedDims();
    size_t next = 0;
    for (auto [d, offset] : llvm::enumerate(slice.getStaticOffsets())) {
      Place place = dropped.test(unsigned(d)) ? Place() : point[next++];
      place.offset += offset;
      source.push_back(place);
    }
    value = slice.getSource();
  } else if (auto concat = dyn_cast<tensor::ConcatOp>(op); concat && slices) {
    Place &place = point[concat.getDim()];
    int64_t steps = 1, begin = 0;
    for (unsigned loop : place.loops)
      steps *= loops.size(loop);
    for (Value input : concat.getInputs()) {
      const int64_t end =
          begin + cast<RankedTensorType>(input.getType()).getDimSize(int64_t(concat.getDim()));
      if (place.offset >= begin && place.offset + steps <= end) {
        place.offset -= begin;
        value = input;
        return true;
      }
      if (place.offset < end && place.offset >= begin && place.loops.size() == 1)
        border = {place.loops[0], end - place.offset};
      begin = end;
    }
    return false;
  } else {
    return false;
  }
  point = std::move(source);
  return true;
}

std::pair<Value, Point> Trace::baseOf(Value value, Point point, bool widens) {
  for (;;) {
    if (step(value, point, /*slices=*/false))
      continue;
    auto map = value.getDefiningOp<linalg::LinalgOp>();
    if (!widens || !map || map.getNumDpsInputs() != 1 || map.getNumReductionLoops() ||
        map->getNumResults() != 1 || !llvm::hasNItems(*map.getBlock(), 2))
      return {value, point};
    auto extension = dyn_cast<arith::ExtFOp>(map.getBlock()->front());
    const auto at = loopsAt(map, point);
    const auto source = at ? pointOf(map.getIndexingMapsArray()[0], *at) : std::nullopt;
    if (!extension || extension.getIn() != map.getBlock()->getArgument(0) || !source)
      return {value, point};
    value = map.getDpsInputOperand(0)->get();
    point = *source;
  }
}

//===-- Terms
//-------------------------------------------------------------------------------------===//

Term *Trace::leaf(Value value, Point point) {
  auto [base, at] = baseOf(value, std::move(point), /*widens=*/false);
  if (TypedAttr constant = filling(base)) {
    Term *term = newTerm(Term::Kind::Constant);
    term->constant = constant;
    return term;
  }
  Term *term = newTerm(Term::Kind::Leaf);
  term->base = base;
  term->point = at;
  return term;
}

Term *Trace::at(Value value, const Point &point) {
  Operation *op = value.getDefiningOp();
  if (!op || !dependent.contains(op))
    return leaf(value, point);
  for (const auto &[place, term] : known[value])
    if (areEqual(place, point))
      return term;
  visited.insert(op);
  Term *term = nullptr;
  Value source = value;
  Point there = point;
  if (op == product) {
    term = newTerm(Term::Kind::Product);
    term->base = value;
    term->point = point;
  } else if (step(source, there, /*slices=*/true)) {
    term = at(source, there);
  } else if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
             linalgOp && op->getNumResults() == 1 && !linalgOp.hasDynamicShape()) {
    term = linalgOp.getNumReductionLoops() ? reduce(linalgOp, point) : apply(linalgOp, point);
  } else {
    return refuse("scores go through '" + nodeOf(op) + "' (" + op->getName().getStringRef().str() +
                  ")");
  }
  if (term)
    known[value].emplace_back(point, term);
  return term;
}

Term *Trace::scalar(linalg::LinalgOp op, Value value, ArrayRef<Place> at,
                    DenseMap<Value, Term *> &found) {
  if (Term *term = found.lookup(value))
    return term;
  Term *term = nullptr;
  if (auto argument = dyn_cast<BlockArgument>(value);
      argument && argument.getOwner() == op.getBlock()) {
    OpOperand &operand = op->getOpOperand(argument.getArgNumber());
    if (op.isDpsInit(&operand))
      return refuse("'" + nodeOf(op) + "' reads its result");
    if (!isa<RankedTensorType>(operand.get().getType()))
      return scalar(op, operand.get(), at, found);
    const auto there = pointOf(op.getMatchingIndexingMap(&operand), at);
    term = there ? this->at(operand.get(), *there)
                 : refuse("'" + nodeOf(op) + "' reads a window of scores");
  } else if (TypedAttr constant; matchPattern(value, m_Constant(&constant))) {
    term = newTerm(Term::Kind::Constant);
    term->constant = constant;
  } else if (auto index = value.getDefiningOp<linalg::IndexOp>()) {
    term = newTerm(Term::Kind::Index);
    term->point = {at[index.getDim()]};
  } else if (Operation *inner = value.getDefiningOp();
             inner && inner->getBlock() == op.getBlock() && inner->getNumRegions() == 0 &&
             inner->getNumResults() == 1 && OpTrait::hasElementwiseMappableTraits(inner)) {
    SmallVector<Term *> operands;
    for (Value operand : inner->getOperands())
      if (Term *each = scalar(op, operand, at, found))
        operands.push_back(each);
      else
        return nullptr;
    term = newTerm(Term::Kind::Apply);
    term->op = inner;
    term->operands = operands;
  } else {
    return refuse("'" + nodeOf(op) + "' does more than arithmetic with scores");
  }
  if (term)
    found[value] = term;
  return term;
}

Term *Trace::apply(linalg::LinalgOp op, const Point &point) {
  const auto at = loopsAt(op, point);
  if (!at)
    return refuse("'" + nodeOf(op) + "' writes scores in no order of its loops");
  DenseMap<Value, Term *> found;
  return scalar(op, op.getBlock()->getTerminator()->getOperand(0), *at, found);
}

Term *Trace::reduce(linalg::LinalgOp op, const Point &point) {
  auto at = loopsAt(op, point);
  Operation *combine = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  const BlockArgument sum = op.getBlock()->getArguments().back();
  const auto isSum = [&](Value value) { return value == sum; };
  const bool isMaximum = isa_and_nonnull<arith::MaximumFOp, arith::MaxNumFOp>(combine);
  if (!at || op.getNumReductionLoops() != 1 || op.getNumDpsInits() != 1 ||
      (!isMaximum && !isa_and_nonnull<arith::AddFOp>(combine)) || !sum.hasOneUse() ||
      llvm::count_if(combine->getOperands(), isSum) != 1)
    return refuse("'" + nodeOf(op) + "' combines scores as no sum and no maximum of rows");
  const auto first = dyn_cast_or_null<FloatAttr>(filling(op.getDpsInits()[0]));
  if (!first || (isMaximum ? !first.getValue().isNegative() ||
                                 !(first.getValue().isInfinity() || first.getValue().isLargest())
                           : !first.getValue().isZero()))
    return refuse("'" + nodeOf(op) + "' begins with another number than its combination does");
  SmallVector<unsigned> reduced;
  op.getReductionDims(reduced);
  const Value value = combine->getOperand(isSum(combine->getOperand(0)) ? 1 : 0);
  Term *term = newTerm(Term::Kind::Reduce);
  term->isMaximum = isMaximum;
  SmallVector<std::pair<int64_t, int64_t>> open = {{0, op.getStaticLoopRanges()[reduced[0]]}};
  for (constexpr size_t kMostParts = 8; !open.empty();) {
    const auto [begin, size] = open.pop_back_val();
    Place &place = (*at)[reduced[0]];
    place = {{}, begin};
    if (size > 1)
      place.loops.push_back(loops.add(size));
    border.reset();
    DenseMap<Value, Term *> found;
    const std::string before = why;
    if (Term *operand = scalar(op, value, *at, found)) {
      term->operands.push_back(operand);
      term->bound.push_back(place.loops);
      continue;
    }
    if (!border || place.loops.empty() || border->first != place.loops[0] ||
        term->operands.size() + open.size() >= kMostParts)
      return nullptr;
    why = before; // a concatenation: part by part
    open.push_back({begin + border->second, size - border->second});
    open.push_back({begin, border->second});
  }
  return term;
}

bool Trace::depends(const Term &term, ArrayRef<unsigned> on) const {
  const SmallVector<unsigned> parts = loops.parts(on);
  for (const Place &place : term.point)
    for (unsigned loop : loops.parts(place.loops))
      if (llvm::is_contained(parts, loop))
        return true;
  return llvm::any_of(term.operands, [&](const Term *operand) { return depends(*operand, on); });
}

bool Trace::areEqual(const Point &x, const Point &y, ArrayRef<unsigned> from,
                     ArrayRef<unsigned> to) const {
  if (x.size() != y.size())
    return false;
  for (auto [a, b] : llvm::zip(x, y)) {
    SmallVector<unsigned> renamed = loops.parts(b.loops);
    for (unsigned &loop : renamed)
      if (const auto found = llvm::find(from, loop); found != from.end())
        loop = to[size_t(found - from.begin())];
    if (a.offset != b.offset || loops.parts(a.loops) != renamed)
      return false;
  }
  return true;
}

bool Trace::areEqual(const Term &x, const Term &y, ArrayRef<unsigned> from,
                     ArrayRef<unsigned> to) const {
  if (&x == &y && from.empty())
    return true;
  if (x.kind != y.kind || x.base != y.base || x.constant != y.constant ||
      x.isMaximum != y.isMaximum || x.operands.size() != y.operands.size() ||
      !areEqual(x.point, y.point, from, to))
    return false;
  if (x.op && (x.op->getName() != y.op->getName() ||
               x.op->getPropertiesAsAttribute() != y.op->getPropertiesAsAttribute() ||
               x.op->getResultTypes() != y.op->getResultTypes()))
    return false;
  for (size_t i = 0; i < x.operands.size(); ++i) {
    SmallVector<unsigned> inFrom(from), inTo(to);
    if (x.kind == Term::Kind::Reduce) {
      const auto there = loops.parts(y.bound[i]), here = loops.parts(x.bound[i]);
      if (there.size() != here.size())
        return false;
      inFrom.append(there);
      inTo.append(here);
    }
    if (!areEqual(*x.operands[i], *y.operands[i], inFrom, inTo))
      return false;
  }
  return true;
}

} // namespace millrace::gpu
