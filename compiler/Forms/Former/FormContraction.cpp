// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of products: matmuls and convolutions of every kind, by their iteration maps.
#include "compiler/Forms/Former/Former.h"

#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace millrace::forms {

using namespace mlir;

linalg::LinalgOp formOf(Value value) {
  auto op = value.getDefiningOp<linalg::LinalgOp>();
  if (!op || isa<linalg::FillOp>(op.getOperation()) || op->getNumResults() != 1 ||
      op.getNumDpsInits() != 1 || !cast<RankedTensorType>(value.getType()).hasStaticShape())
    return {};
  return op;
}

bool isMap(linalg::LinalgOp op) {
  return op.getNumReductionLoops() == 0 &&
         op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity();
}

static bool skipsCasts(Value &value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<arith::ExtSIOp, arith::ExtUIOp, arith::ExtFOp, arith::SIToFPOp>(op))
      break;
    value = op->getOperand(0);
  }
  return true;
}

/// The operation that yields, split into the accumulator and the rest.
static Operation *combiningOp(linalg::LinalgOp op, Value &rest) {
  Block *body = op.getBlock();
  Operation *yielded = body->getTerminator()->getOperand(0).getDefiningOp();
  if (!yielded || yielded->getNumOperands() != 2)
    return nullptr;
  Value accumulator = body->getArguments().back();
  for (unsigned i : {0u, 1u})
    if (yielded->getOperand(i) == accumulator) {
      rest = yielded->getOperand(1 - i);
      return yielded;
    }
  return nullptr;
}

Combiner combinerOf(linalg::LinalgOp op) {
  Value rest;
  Operation *combining = combiningOp(op, rest);
  if (!combining)
    return Combiner::None;
  if (isa<arith::MaximumFOp, arith::MaxNumFOp, arith::MaxSIOp>(combining))
    return Combiner::Max;
  if (isa<arith::MinimumFOp, arith::MinNumFOp, arith::MinSIOp>(combining))
    return Combiner::Min;
  if (!isa<arith::AddFOp, arith::AddIOp>(combining))
    return Combiner::None;
  Operation *product = rest.getDefiningOp();
  if (!product || !isa<arith::MulFOp, arith::MulIOp>(product) || op.getNumDpsInputs() != 2)
    return Combiner::Sum;
  Value x = product->getOperand(0), y = product->getOperand(1);
  skipsCasts(x), skipsCasts(y);
  Block *body = op.getBlock();
  bool isProduct = (x == body->getArgument(0) && y == body->getArgument(1)) ||
                   (x == body->getArgument(1) && y == body->getArgument(0));
  return isProduct ? Combiner::SumOfProducts : Combiner::Sum;
}

Value combinedValue(linalg::LinalgOp op) {
  Value rest;
  combiningOp(op, rest);
  return rest;
}

bool isConstantValue(Value value) {
  Operation *op = value.getDefiningOp();
  return op && op->hasTrait<OpTrait::ConstantLike>();
}

bool areWeights(Value value) {
  if (isConstantValue(value))
    return true;
  const auto behindViews = [](Value of) {
    while (isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp, linalg::TransposeOp>(
        of.getDefiningOp()))
      of = of.getDefiningOp()->getOperand(0);
    return of;
  };
  Operation *op = behindViews(value).getDefiningOp();
  return quantKind(op) == "dequantize" && isConstantValue(behindViews(op->getOperand(0)));
}

bool isContraction(linalg::LinalgOp op) {
  return op.getNumReductionLoops() > 0 && combinerOf(op) == Combiner::SumOfProducts;
}

bool isDepthwise(linalg::LinalgOp op) {
  if (!isContraction(op))
    return false;
  const AffineMap a = op.getIndexingMapsArray()[0], w = op.getIndexingMapsArray()[1];
  bool hasChannels = false;
  for (auto [dim, iterator, extent] :
       llvm::enumerate(op.getIteratorTypesArray(), op.getStaticLoopRanges())) {
    const AffineExpr loop = getAffineDimExpr(unsigned(dim), op.getContext());
    const bool alongA = llvm::is_contained(a.getResults(), loop);
    if (iterator == utils::IteratorType::reduction && alongA)
      return false;
    hasChannels |= extent > 1 && alongA && llvm::is_contained(w.getResults(), loop);
  }
  return hasChannels;
}

/// How well dimension index `at`, of `extent` values, suits as the lanes of an operand: 2
/// contracted loops alone, 1 contracted loops in blocks of something larger, 0 not, a window, or
/// nothing but padding around one lane or beyond blocks.
static int laneScore(Attempt &attempt, const Linear &at, int64_t extent) {
  int64_t inner = 0;
  bool contracts = false, others = false;
  for (auto [loop, coefficient] : at.terms)
    if (attempt.space.loop(loop).kind == LoopKind::Contracted) {
      contracts = true;
      inner += coefficient * (attempt.space.loop(loop).extent - 1);
    }
  if (!contracts)
    return 0;
  for (auto [loop, coefficient] : at.terms)
    if (attempt.space.loop(loop).kind != LoopKind::Contracted) {
      others = true;
      if (coefficient <= inner)
        return 0;
    }
  auto [low, high] = attempt.space.range(at);
  if (extent == 1 || (others && (low < 0 || high >= extent)))
    return 0;
  return others ? 1 : 2;
}

/// `laneLoops`: the contracted loops along the lanes of the other operand, perhaps none, if it is
/// known; else set.
FailureOr<Access> Former::contractionOperand(Attempt &attempt, const Resolved &at, ElementType type,
                                             std::optional<SmallVector<unsigned>> &laneLoops) {
  std::optional<unsigned> lane;
  int best = 0;
  ArrayRef<int64_t> shape = shapeOf(at.base);
  unsigned preferred = preferredLane(at.base);
  auto extentOf = [&](unsigned dim) {
    return shape[dim] + (dim == preferred ? int64_t(1) << 40 : 0);
  };
  const bool sumsLanes = !laneLoops || !laneLoops->empty() || isConstantValue(at.base);
  for (unsigned dim = 0; dim < at.index.size() && sumsLanes; ++dim) {
    int score = laneScore(attempt, at.index[dim], shape[dim]);
    // Lanes of both operands are one index of the contraction.
    constexpr int kShared = 4;
    if (score > 0 && laneLoops &&
        llvm::any_of(*laneLoops, [&](unsigned loop) { return at.index[dim].uses(loop); }))
      score += kShared;
    // Of equal ones the inner: `joinLanes` makes lanes of both, where the outer lies in rows.
    if (score > best || (score == best && score > 0 && extentOf(dim) >= extentOf(*lane)))
      lane = dim, best = score;
  }
  if (!laneLoops) {
    laneLoops.emplace();
    for (unsigned loop = 0; lane && loop < attempt.space.size(); ++loop)
      if (at.index[*lane].uses(loop) && attempt.space.loop(loop).kind == LoopKind::Contracted)
        laneLoops->push_back(loop);
  }
  // One product and no sum: the lanes are a dimension of extent 1 that no loop moves along.
  bool isSum = lane.has_value();
  for (unsigned dim = 0; dim < at.index.size() && !lane; ++dim)
    if (shape[dim] == 1 && at.index[dim].terms.empty())
      lane = dim;
  // Or each product takes a lane of its own: of a channel that is a group.
  auto isParallel = [&](const Linear &index) {
    return llvm::all_of(index.terms, [&](auto term) {
      return attempt.space.loop(term.first).kind == LoopKind::Parallel;
    });
  };
  for (unsigned dim = 0; dim < at.index.size() && !isSum; ++dim)
    if (auto [low, high] = attempt.space.range(at.index[dim]);
        isParallel(at.index[dim]) && low >= 0 && high < shape[dim] &&
        (!lane || (dim == preferred && shape[*lane] > 1)))
      lane = dim;
  if (isConstantValue(at.base)) {
    Stored value{constantTensor(at.base, type, lane.value_or(0)), 0};
    return access(attempt, value, at);
  }
  FailureOr<Stored> value = store(at.base, lane, /*isExact=*/!isSum);
  if (failed(value) ||
      (graph.tensors[value->tensor].type != type && partsToMultiply(value->tensor, type).empty()))
    return failure();
  return access(attempt, *value, at);
}

/// The indices of both operands at a point of the result, and which of them has the result's lanes.
FailureOr<Former::Operands> Former::contractionPoints(Attempt &attempt, linalg::LinalgOp op,
                                                      const Point &index, bool cutsPadding) {
  AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  Point dims(extents.size());
  Operands operands;
  for (auto [expr, at] : llvm::zip(result.getResults(), index))
    dims[cast<AffineDimExpr>(expr).getPosition()] = at;
  for (auto [dim, iterator] : llvm::enumerate(op.getIteratorTypesArray()))
    if (iterator == utils::IteratorType::reduction) {
      std::pair<int64_t, int64_t> range = {0, extents[dim]};
      for (unsigned i = 0; i < 2 && cutsPadding && range.second == extents[dim]; ++i)
        range = insidePadding(attempt.space, op, i, dims, unsigned(dim));
      auto [from, count] = range;
      operands.inside *= count;
      operands.all *= extents[dim];
      dims[dim] = attempt.space.dimension({op, unsigned(dim)}, count, LoopKind::Contracted);
      dims[dim].offset += from;
    }
  bool usesLane[2] = {false, false};
  double rows[2] = {1, 1}; // that differ in loops which both sides of the product may repeat along
  for (unsigned i : {0u, 1u}) {
    for (AffineExpr expr : op.getIndexingMapsArray()[i].getResults()) {
      std::optional<Linear> part = attempt.space.evaluate(expr, dims);
      if (!part)
        return failure();
      usesLane[i] |= attempt.lane >= 0 && part->uses(unsigned(attempt.lane));
      operands.at[i].push_back(*part);
    }
    for (unsigned loop = 0; loop < attempt.space.size(); ++loop)
      if (attempt.space.loop(loop).kind == LoopKind::Parallel &&
          llvm::any_of(operands.at[i], [&](const Linear &part) { return part.uses(loop); }))
        rows[i] *= double(attempt.space.loop(loop).extent);
  }
  const bool swaps =
      areWeights(baseOf(op->getOperand(0))) && !areWeights(baseOf(op->getOperand(1)));
  if (usesLane[0] != usesLane[1])
    operands.w = usesLane[0] ? 0 : 1;
  else if (!usesLane[0] && rows[0] != rows[1]) // a single lane: rather more rows than more installs
    operands.w = rows[0] < rows[1] ? 0 : 1;
  else
    operands.w = swaps ? 0 : 1;
  return operands;
}

/// Whether the contracted loops together walk neighbouring lanes.
static bool walksNeighbours(const Attempt &attempt, const AffineIndex &lanes) {
  SmallVector<std::pair<int64_t, int64_t>> steps; // and extents
  for (auto [loop, step] : lanes.terms)
    if (attempt.space.loop(loop).kind == LoopKind::Contracted)
      steps.push_back({step, attempt.space.loop(loop).extent});
  llvm::sort(steps);
  int64_t next = 1;
  for (auto [step, extent] : steps) {
    if (step != next)
      return false;
    next *= extent;
  }
  return true;
}

/// The lanes of a stream meet those of what is installed one by one, and the result's lanes are the
/// columns of the latter: constants are written as they are needed; of values made at run time,
/// neighbours are columns.
static Misfit misfitOf(const Attempt &attempt, const KernelGraph &graph, const Access &a,
                       const Access &w) {
  const Tensor &from = graph.tensors[a.tensor], &weights = graph.tensors[w.tensor];
  const bool isConstant = weights.role == TensorRole::Constant;
  unsigned columns = 0;
  for (unsigned loop = 0; loop < attempt.space.size(); ++loop) {
    const LoopKind kind = attempt.space.loop(loop).kind;
    const bool movesA = usesLoop(a, loop), movesW = usesLoop(w, loop);
    if (kind == LoopKind::Contracted && movesA != movesW) // one of them repeats along the loop
      return movesA ? Misfit::W : Misfit::A;
    if (kind == LoopKind::Running && movesW)
      return Misfit::Both; // the running maximum of products by other weights each
    if (int64_t step = coefficient(a.index[from.laneDim], loop);
        !isConstant && step != coefficient(w.index[weights.laneDim], loop) &&
        int(loop) != attempt.lane)
      return (step > 1 && !walksNeighbours(attempt, a.index[from.laneDim])) ||
                     (kind == LoopKind::Parallel && step != 0)
                 ? Misfit::A
                 : Misfit::W;
    if (int(loop) != attempt.lane)
      continue;
    for (unsigned d = 0; d < a.index.size(); ++d)
      if (coefficient(a.index[d], loop) && (d != from.laneDim || !isConstant))
        return Misfit::Both; // each lane of the result would stream other rows
    for (unsigned d = 0; d < w.index.size() && !isConstant; ++d)
      if (int64_t step = coefficient(w.index[d], loop)) {
        if (d == weights.laneDim || step != 1 || ++columns > 1)
          return Misfit::W;
        auto [low, high] = attempt.space.range(w.index[d]);
        if (low < 0 || high >= weights.shape[d])
          return Misfit::W;
      }
  }
  auto leaves = [&](const Access &access, const Tensor &tensor) {
    auto [low, high] = attempt.space.range(access.index[tensor.laneDim]);
    return low < 0 || high >= tensor.shape[tensor.laneDim];
  };
  if (leaves(w, weights))
    return Misfit::W;
  if (leaves(a, from) && (!isConstant || a.pad != 0))
    return Misfit::A; // only constants can leave lanes out
  return Misfit::None;
}

/// Adds the product of operands resolved to values of `type` in memory, if it fits.
FailureOr<Misfit> Former::addTerm(Attempt &attempt, const Operands &operands,
                                  const Resolved (&at)[2], ElementType type) {
  // A constant can have any lanes, so the other operand chooses.
  FailureOr<Access> accesses[2];
  std::optional<SmallVector<unsigned>> laneLoops;
  unsigned first = isConstantValue(at[0].base) ? 1 : 0;
  for (unsigned i : {first, 1 - first}) {
    accesses[i] = contractionOperand(attempt, at[i], type, laneLoops);
    if (failed(accesses[i]))
      return failure();
  }
  auto lanesOf = [&](const Access &access) {
    return access.index[graph.tensors[access.tensor].laneDim].terms;
  };
  if (!isConstantValue(at[0].base) && !isConstantValue(at[1].base) &&
      lanesOf(*accesses[0]) != lanesOf(*accesses[1]))
    for (FailureOr<Access> &operand : accesses)
      alignOperand(attempt, *operand);
  const Access &a = *accesses[1 - operands.w], &w = *accesses[operands.w];
  if (Misfit misfit = misfitOf(attempt, graph, a, w); misfit != Misfit::None)
    return misfit;
  int64_t macs = 1;
  for (unsigned loop = 0; loop < attempt.space.size(); ++loop)
    if (usesLoop(a, loop) || usesLoop(w, loop))
      macs *= attempt.space.loop(loop).extent;
  macs = macs / operands.inside * operands.all; // as the model has them
  for (unsigned partOfA : partsToMultiply(a.tensor, type))
    for (unsigned partOfW : partsToMultiply(w.tensor, type)) {
      Access inA = a, inW = w;
      inA.tensor = partOfA;
      inW.tensor = partOfW;
      attempt.build.term(inA, inW, attempt.recomputes ? 0 : macs);
      macs = 0; // of one product
    }
  attempt.contracts = true;
  return Misfit::None;
}

/// Whether the contraction sums along no dimension of what lies in memory, as views join those that
/// it sums along with others, and along one of the view.
static bool sumsAcross(Attempt &attempt, Value base, ArrayRef<Linear> inBase, Value view,
                       ArrayRef<Linear> inView) {
  const auto canLie = [&](ArrayRef<Linear> dims, ArrayRef<int64_t> shape) {
    return llvm::any_of(llvm::zip(dims, shape), [&](const auto &dim) {
      return laneScore(attempt, std::get<0>(dim), std::get<1>(dim)) > 0;
    });
  };
  return base != view && !isConstantValue(base) && !canLie(inBase, shapeOf(base)) &&
         canLie(inView, shapeOf(view));
}

/// Adds the product of two values. A view that does not lie in memory as it is needed is copied.
LogicalResult Former::addProduct(Attempt &attempt, const Operands &operands,
                                 std::array<Value, 2> values, ElementType type) {
  constexpr int kTries = 3; // as they are, with a copy of one, with copies of both
  constexpr unsigned kBoth[] = {0, 1};
  for (int i = 0; i < kTries; ++i) {
    Resolved at[2];
    for (unsigned k : {0u, 1u}) {
      FailureOr<Resolved> resolved = resolve(attempt, values[k], operands.at[k]);
      if (failed(resolved))
        return failure();
      at[k] = *resolved;
    }
    if (const unsigned *across = llvm::find_if(kBoth,
                                               [&](unsigned k) {
                                                 return sumsAcross(attempt, at[k].base, at[k].index,
                                                                   values[k], operands.at[k]);
                                               });
        across != std::end(kBoth)) {
      setCopied(values[*across].getDefiningOp());
      continue;
    }
    FailureOr<Misfit> misfit = addTerm(attempt, operands, at, type);
    if (failed(misfit) || *misfit == Misfit::None)
      return misfit;
    const unsigned which = *misfit == Misfit::W ? operands.w : 1 - operands.w;
    if (*misfit == Misfit::Both || at[which].base == values[which] ||
        isConstantValue(at[which].base))
      return failure();
    setCopied(values[which].getDefiningOp());
  }
  return failure();
}

bool areExactInBf16(Value constant) {
  std::optional<ConstantView> view = viewConstant(constant);
  if (!view || !isa<FloatType>(view->type.getElementType()))
    return false;
  return llvm::none_of(view->floats(), [](float value) { return bitsOf(value) & 0xffff; });
}

bool Former::multipliesInParts(linalg::LinalgOp op) {
  for (unsigned i : {0u, 1u}) {
    const Value kept = baseOf(op->getOperand(i)), other = baseOf(op->getOperand(1 - i));
    const FailureOr<ElementType> type = memoryType(kept);
    if (!isConstantValue(kept) && isConstantValue(other) && succeeded(type) &&
        *type == ElementType::Fp32 && areExactInBf16(other))
      return true;
  }
  return false;
}

/// One product per result (angles: positions times frequencies), in fp32.
FailureOr<Scalar> Former::computeOuterProduct(Attempt &attempt, linalg::LinalgOp op,
                                              const Point &index) {
  AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  Point dims(op.getNumLoops());
  for (auto [expr, at] : llvm::zip(result.getResults(), index))
    dims[cast<AffineDimExpr>(expr).getPosition()] = at;
  for (auto [extent, iterator] : llvm::zip(op.getStaticLoopRanges(), op.getIteratorTypesArray()))
    if (iterator == utils::IteratorType::reduction && extent != 1)
      return failure();
  unsigned factors[2];
  for (unsigned i : {0u, 1u}) {
    Point at;
    for (AffineExpr expr : op.getIndexingMapsArray()[i].getResults()) {
      std::optional<Linear> part = attempt.space.evaluate(expr, dims);
      if (!part)
        return failure();
      at.push_back(*part);
    }
    FailureOr<Scalar> factor = pull(attempt, op->getOperand(i), at);
    if (failed(factor) || factor->kind != Scalar::Kind::F32)
      return failure();
    factors[i] = factor->node;
  }
  return Scalar{attempt.build.op(AluOp::MulF32, {factors[0], factors[1]}), Scalar::Kind::F32};
}

FailureOr<Scalar> Former::computeContraction(Attempt &attempt, linalg::LinalgOp op,
                                             const Point &index) {
  if (attempt.contracts)
    return failure();
  attempt.recomputes |= op->hasAttr(kUncounted);
  Type element = cast<RankedTensorType>(op->getOperand(0).getType()).getElementType();
  bool isInteger = element.isInteger(8);
  if (!isInteger && !isa<FloatType>(element))
    return failure();
  if (options.precision == Precision::Int8 && isQuantized(op))
    return computeIntegerContraction(attempt, op, index, {}, {});
  const bool inParts = multipliesInParts(op);
  if (!inParts && (ranges.needsFp32(op->getOperand(0)) || ranges.needsFp32(op->getOperand(1))))
    return computeOuterProduct(attempt, op, index);
  FailureOr<Operands> operands = contractionPoints(attempt, op, index, /*cutsPadding=*/true);
  if (failed(operands) ||
      failed(addProduct(attempt, *operands, {op->getOperand(0), op->getOperand(1)},
                        isInteger ? ElementType::Int8
                        : inParts ? ElementType::Bf16
                                  : activation())))
    return failure();
  return Scalar{attempt.build.accumulator(), isInteger ? Scalar::Kind::I32 : Scalar::Kind::F32};
}

} // namespace millrace::forms
