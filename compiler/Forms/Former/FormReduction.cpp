// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions: small windows as trees, rows as running operations, lanes as contractions with ones.
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

namespace millrace::forms {

using namespace mlir;

/// Windows up to this many points become one operand per point (3 x 3 pooling), larger ones run.
constexpr int64_t kLargestTree = 4;

AluOp aluOf(Combiner combiner, bool isFloat) {
  switch (combiner) {
  case Combiner::Max:
    return isFloat ? AluOp::MaxF32 : AluOp::MaxI32;
  case Combiner::Min:
    return isFloat ? AluOp::MinF32 : AluOp::MinI32;
  default:
    return isFloat ? AluOp::AddF32 : AluOp::AddI32;
  }
}

Value Former::reducedInput(linalg::LinalgOp op) const { return op->getOperand(0); }

SmallVector<unsigned> reducedDims(linalg::LinalgOp op) {
  SmallVector<unsigned> dims;
  AffineMap map = op.getIndexingMapsArray()[0];
  for (auto [loop, iterator] : llvm::enumerate(op.getIteratorTypesArray()))
    if (iterator == utils::IteratorType::reduction)
      for (auto [dim, expr] : llvm::enumerate(map.getResults()))
        if (expr.isFunctionOfDim(unsigned(loop)))
          dims.push_back(unsigned(dim));
  return dims;
}

unsigned Former::lanesOfReduced(linalg::LinalgOp op) {
  Value input = reducedInput(op), base = baseOf(input);
  ArrayRef<int64_t> shape = shapeOf(input);
  const std::optional<LaneChoice> known = shownLane(input, /*orPart=*/true);
  unsigned lane = known ? known->dim : unsigned(shape.size()) - 1;
  if (Value shown = inputBehind(base);
      shown && !stored.count(shown)) { // an input lies as its first reader wants it
    AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
    LaneChoice wanted = chooseLane(op->getResult(0));
    for (auto [dim, expr] : llvm::enumerate(op.getIndexingMapsArray()[0].getResults()))
      if (wanted.dim < result.getNumResults() && expr == result.getResult(wanted.dim) &&
          (shape[dim] > 1 || wanted.hasReason))
        lane = unsigned(dim);
  }
  return lane;
}

bool Former::reducesLanes(linalg::LinalgOp op) {
  const unsigned lane = lanesOfReduced(op);
  return shapeOf(reducedInput(op))[lane] > 1 && llvm::is_contained(reducedDims(op), lane);
}

/// The value of one point of the reduction, `dims` being the loops of `op`.
static FailureOr<Point> evaluateMap(LoopSpace &space, AffineMap map, const Point &dims) {
  Point result;
  for (AffineExpr expr : map.getResults()) {
    std::optional<Linear> at = space.evaluate(expr, dims);
    if (!at)
      return failure();
    result.push_back(*at);
  }
  return result;
}

/// Does a window slide along lanes of its input in which the result does not lie? Then each result
/// takes other lanes of a row: the input is read along the result's lanes, as rows.
bool Former::slidesBesideLanes(Attempt &attempt, linalg::LinalgOp op, const Point &dims) {
  const AffineExpr expr = op.getIndexingMapsArray()[0].getResult(lanesOfReduced(op));
  if (isa<AffineDimExpr>(expr))
    return false;
  const std::optional<Linear> first = attempt.space.evaluate(expr, dims);
  return first && (attempt.lane < 0 || !first->uses(unsigned(attempt.lane)));
}

/// A rectified value, or what keeps it so: quantisation around zero, maxima, concatenation.
bool Former::isNonNegative(Value value) const {
  Value base = baseOf(value);
  if (auto concat = base.getDefiningOp<tensor::ConcatOp>())
    return llvm::all_of(concat.getInputs(), [&](Value part) { return isNonNegative(part); });
  linalg::LinalgOp op = formOf(base);
  if (!op || op.getNumDpsInputs() == 0)
    return false;
  if (!isMap(op))
    return combinerOf(op) == Combiner::Max && isNonNegative(reducedInput(op));
  if (quantKind(op) == "quantize") // inputs: value, scale; a zero point would be a third
    return op.getNumDpsInputs() == 2 && isNonNegative(op->getOperand(0));
  Operation *yielded = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  FloatAttr bound;
  return yielded && isa<arith::MaximumFOp>(yielded) &&
         matchPattern(yielded->getOperand(1), m_Constant(&bound)) && !bound.getValue().isNegative();
}

/// Does every window of the reduction reach an element of its input, whatever padding surrounds
/// that? `dims`: of the result, at zero in those that are reduced.
bool Former::reachesInside(Attempt &attempt, linalg::LinalgOp op, Point dims) {
  SmallVector<unsigned> reduced;
  op.getReductionDims(reduced);
  struct Reach {
    int64_t low, inside, extent; ///< from the first, and from the last, element on
  };
  const auto rangesAt = [&]() -> std::optional<SmallVector<Reach>> {
    FailureOr<Point> at = evaluateMap(attempt.space, op.getIndexingMapsArray()[0], dims);
    FailureOr<Resolved> from =
        failed(at) ? FailureOr<Resolved>(failure()) : resolve(attempt, reducedInput(op), *at);
    if (failed(from))
      return std::nullopt;
    SmallVector<Reach> ranges;
    for (auto [index, extent] : llvm::zip(from->index, shapeOf(from->base))) {
      const auto [low, high] = attempt.space.range(index);
      ranges.push_back({low, extent - 1 - high, extent});
    }
    return ranges;
  };
  const auto first = rangesAt();
  if (!first)
    return false;
  const SmallVector<int64_t> extents = op.getStaticLoopRanges();
  for (unsigned dim : reduced) { // no step leads over all of the input
    dims[dim] = Linear::constant(std::min<int64_t>(1, extents[dim] - 1));
    const auto next = rangesAt();
    if (!next)
      return false;
    if (llvm::any_of(llvm::zip(*first, *next), [](const auto &steps) {
          const auto &[a, b] = steps;
          return std::abs(b.low - a.low) > a.extent;
        }))
      return false;
    dims[dim] = Linear::constant(0);
  }
  for (unsigned dim : reduced)
    dims[dim] = Linear::constant(extents[dim] - 1);
  const auto last = rangesAt();
  return last && llvm::all_of(llvm::zip(*first, *last), [](const auto &ends) {
           const auto &[a, b] = ends;
           return std::max(a.low, b.low) >= 0 && std::max(a.inside, b.inside) >= 0;
         });
}

/// The stored bits of a value that is not negative; zero outside of it.
FailureOr<unsigned> Former::pullBits(Attempt &attempt, Value value, const Point &index) {
  FailureOr<Resolved> at = resolve(attempt, value, index);
  if (failed(at))
    return failure();
  std::optional<unsigned> lane;
  for (auto [dim, linear] : llvm::enumerate(at->index))
    if (attempt.lane >= 0 && linear.uses(unsigned(attempt.lane)))
      lane = unsigned(dim);
  if (!lane || at->index[*lane].terms != attempt.resultLane.terms || at->index[*lane].offset != 0)
    return failure();
  FailureOr<Stored> source = store(at->base, lane);
  if (failed(source) || byteWidth(graph.tensors[source->tensor].type) > 2)
    return failure();
  FailureOr<Access> where = access(attempt, *source, *at);
  if (failed(where))
    return failure();
  where->pad = 0;
  return attempt.build.operand(*where);
}

bool Former::runsOverRows(linalg::LinalgOp op) {
  int64_t points = 1;
  for (auto [extent, iterator] : llvm::zip(op.getStaticLoopRanges(), op.getIteratorTypesArray()))
    if (iterator == utils::IteratorType::reduction)
      points *= extent;
  return points > kLargestTree || reducesLanes(op);
}

FailureOr<Scalar> Former::computeReduction(Attempt &attempt, linalg::LinalgOp op,
                                           const Point &index) {
  Combiner combiner = combinerOf(op);
  if (combiner == Combiner::None)
    return failure();
  bool isRow = attempt.lane < 0 || llvm::none_of(index, [&](const Linear &at) {
                 return at.uses(unsigned(attempt.lane));
               });
  AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  Point dims(extents.size());
  for (auto [expr, at] : llvm::zip(result.getResults(), index))
    dims[cast<AffineDimExpr>(expr).getPosition()] = at;
  const bool isOverLanes = reducesLanes(op) && !slidesBesideLanes(attempt, op, dims);
  if (isOverLanes && combiner == Combiner::Sum)
    return sumOverLanes(attempt, op, index);
  if (isOverLanes && isRow)
    return extremeOverLanes(attempt, op, index);
  SmallVector<unsigned> reduced;
  int64_t points = 1;
  for (auto [dim, iterator] : llvm::enumerate(op.getIteratorTypesArray()))
    if (iterator == utils::IteratorType::reduction)
      reduced.push_back(unsigned(dim)), points *= extents[dim];
  Block &body = *op.getBlock();
  // A maximum of what is not negative is the same beside zeros, of which no others need be made.
  const bool isRectified = combiner == Combiner::Max && combinedValue(op) == body.getArgument(0) &&
                           isNonNegative(reducedInput(op)) && reachesInside(attempt, op, dims);
  auto pullPoint = [&]() -> FailureOr<Scalar> {
    Values known;
    for (auto [i, operand] : llvm::enumerate(op.getDpsInputs())) {
      if (body.getArgument(unsigned(i)).use_empty())
        continue;
      FailureOr<Point> at = evaluateMap(attempt.space, op.getIndexingMapsArray()[i], dims);
      if (failed(at))
        return failure();
      FailureOr<Resolved> from = resolve(attempt, operand, *at);
      if (failed(from))
        return failure();
      if (from->padded && isRectified)
        from->pad = Builder(op.getContext()).getZeroAttr(getElementTypeOrSelf(from->base));
      FailureOr<Scalar> value = pullBase(attempt, *from);
      if (failed(value))
        return failure();
      known[body.getArgument(unsigned(i))] = *value;
    }
    return bodyValue(attempt, combinedValue(op), known);
  };
  if (runsOverRows(op)) {
    if (attempt.runs)
      return failure();
    bool isOnePoint = true;
    for (unsigned dim : reduced) {
      auto [from, count] = insidePadding(attempt.space, op, 0, dims, dim);
      dims[dim] = attempt.space.dimension({op, dim}, count, LoopKind::Running);
      dims[dim].offset += from;
      isOnePoint &= count == 1;
    }
    if (isOnePoint)
      return pullPoint();
    bool recomputes = attempt.recomputes;
    attempt.recomputes = combiner == Combiner::Max && reducesLanes(op);
    attempt.reduces = true;
    FailureOr<Scalar> value = pullPoint();
    attempt.reduces = false;
    attempt.recomputes = recomputes;
    if (failed(value))
      return failure();
    attempt.runs = true;
    if (value->kind == Scalar::Kind::I8)
      value = Scalar{attempt.build.op(AluOp::CvtI8I32, {value->node}), Scalar::Kind::I32};
    return Scalar{
        attempt.build.reduce(aluOf(combiner, value->kind == Scalar::Kind::F32), value->node),
        value->kind};
  }
  SmallVector<Scalar> taps;
  // Numbers that are not negative compare like their bits.
  bool comparesBits = isRectified && attempt.root == op->getResult(0);
  bool loads = attempt.loads;
  attempt.loads |= points > 1;
  for (int64_t point = 0; point < points; ++point) {
    int64_t rest = point;
    for (unsigned dim : llvm::reverse(reduced)) {
      dims[dim] = Linear::constant(rest % extents[dim]);
      rest /= extents[dim];
    }
    if (comparesBits) {
      FailureOr<Point> at = evaluateMap(attempt.space, op.getIndexingMapsArray()[0], dims);
      FailureOr<unsigned> bits =
          failed(at) ? FailureOr<unsigned>(failure()) : pullBits(attempt, reducedInput(op), *at);
      if (failed(bits) && (attempt.space.wanted || point > 0))
        return failure();
      comparesBits = succeeded(bits);
      if (comparesBits) {
        taps.push_back({*bits, Scalar::Kind::Raw});
        continue;
      }
    }
    FailureOr<Scalar> value = pullPoint();
    if (failed(value))
      return failure();
    if (value->kind == Scalar::Kind::I8)
      value = Scalar{attempt.build.op(AluOp::CvtI8I32, {value->node}), Scalar::Kind::I32};
    taps.push_back(*value);
  }
  attempt.loads = loads;
  while (taps.size() > 1) { // a balanced tree
    SmallVector<Scalar> next;
    for (size_t i = 0; i + 1 < taps.size(); i += 2) {
      // One stream group may not enter an ALU from both sides: of two operands, one goes through an
      // ALU first.
      if (taps[i].kind == Scalar::Kind::Raw && taps.size() == size_t(points))
        taps[i].node = attempt.build.op(AluOp::Pass, {taps[i].node});
      next.push_back({attempt.build.op(aluOf(combiner, taps[i].kind == Scalar::Kind::F32),
                                       {taps[i].node, taps[i + 1].node}),
                      taps[i].kind});
    }
    if (taps.size() % 2)
      next.push_back(taps.back());
    taps = next;
  }
  return taps[0];
}

/// Stores a value computed in fp32 as a bf16 tensor, or the sum of two.
FailureOr<SmallVector<unsigned, 2>> Former::storeTerms(Value key, ArrayRef<int64_t> shape,
                                                       unsigned lane, bool isRounded,
                                                       Compute compute) {
  if (auto found = termsOf.find(key.getAsOpaquePointer()); found != termsOf.end())
    return found->second;
  SmallVector<unsigned, 2> terms;
  for (const char *suffix : {".hi", ".lo"}) {
    if (isRounded && !terms.empty())
      break;
    terms.push_back(newTensor(key, shape, lane, ElementType::Bf16));
    graph.tensors[terms.back()].name += isRounded ? "" : suffix;
  }
  LogicalResult done = emitKernel(
      key, shape, lane, {}, compute, [&](Attempt &attempt, const Point &point, Scalar value) {
        KernelBuilder &build = attempt.build;
        Access to{terms.front(), {}, 0};
        for (const Linear &at : point)
          to.index.push_back(at.affine());
        unsigned top = build.op(narrowFromF32(ElementType::Bf16), {value.node});
        build.storeBits(top, to);
        if (isRounded)
          return;
        const unsigned wide = build.op(AluOp::CvtBf16F32, {top});
        unsigned rest = build.op(AluOp::SubF32, {value.node, wide});
        if (!ranges.of(key).isBounded()) // infinity less itself would be NaN
          rest = build.op(AluOp::SelectF32,
                          {build.op(AluOp::NeF32, {value.node, wide}), rest, build.constant(0)});
        to.tensor = terms.back();
        build.store(rest, to);
      });
  if (failed(done))
    return failure();
  return termsOf[key.getAsOpaquePointer()] = terms;
}

SmallVector<unsigned> dimsBeside1(Value value) {
  SmallVector<unsigned> dims;
  for (auto [dim, extent] : llvm::enumerate(shapeOf(value)))
    if (extent != 1)
      dims.push_back(unsigned(dim));
  return dims;
}

/// About how long a sum over lanes takes of which `rows` rows each add up to a result: an
/// accumulator takes one product in many cycles, so that the rows of few results wait for each
/// other; where `running` rows each have a sum of their own, the VXM adds those up, one in a few
/// cycles.
static int64_t cyclesOfSum(int64_t results, int64_t rows, int64_t running) {
  constexpr int64_t kWait = 34, kStep = 3, kTail = 64;
  const int64_t sums = results * running;
  return rows / running * std::max(kWait, sums) + (running > 1 ? kStep * sums + kTail : 0);
}

/// The loop of `op` whose rows have a sum each, if that is worth it.
std::optional<unsigned> Former::runningOfSum(const Attempt &attempt, linalg::LinalgOp op) {
  constexpr int64_t kMost = 256; // rows of one bundle
  int64_t results = 1, points = 1;
  for (unsigned loop = 0; loop < attempt.space.size(); ++loop)
    if (int(loop) != attempt.lane && attempt.space.loop(loop).kind == LoopKind::Parallel)
      results *= attempt.space.loop(loop).extent;
  const Value input = reducedInput(op), base = baseOf(input);
  const SmallVector<unsigned> dims = dimsBeside1(input), baseDims = dimsBeside1(base);
  const auto extentsOf = [](Value value, ArrayRef<unsigned> of) {
    return llvm::map_to_vector(of, [&](unsigned dim) { return shapeOf(value)[dim]; });
  };
  if (attempt.space.wanted || extentsOf(base, baseDims) != extentsOf(input, dims))
    return std::nullopt;
  SmallVector<unsigned> lanes; // of the input
  const auto addLane = [&](unsigned dim) {
    if (const unsigned *at = llvm::find(baseDims, dim); at != baseDims.end())
      lanes.push_back(dims[size_t(at - baseDims.begin())]);
  };
  addLane(preferredLane(base));
  if (auto found = stored.find(base); found != stored.end())
    for (const Stored &each : found->second)
      if (graph.tensors[each.tensor].shape.size() == shapeOf(base).size())
        addLane(graph.tensors[each.tensor].laneDim);
  if (lanes.empty())
    return std::nullopt;
  const AffineMap map = op.getIndexingMapsArray()[0];
  const SmallVector<int64_t> extents = op.getStaticLoopRanges();
  int64_t inLanes = 1;
  std::vector<std::pair<unsigned, int64_t>> rows; // loops that may run, and their extents
  for (auto [loop, iterator] : llvm::enumerate(op.getIteratorTypesArray())) {
    const auto moves = [&](unsigned dim) {
      return map.getResult(dim).isFunctionOfDim(unsigned(loop));
    };
    if (moves(lanes.front()))
      inLanes *= extents[loop];
    if (iterator != utils::IteratorType::reduction)
      continue;
    points *= extents[loop];
    if (extents[loop] > 1 && results * extents[loop] <= kMost && llvm::none_of(lanes, moves))
      rows.push_back({unsigned(loop), extents[loop]});
  }
  std::optional<unsigned> best;
  int64_t least = cyclesOfSum(results, points / inLanes, 1);
  for (auto [loop, extent] : rows)
    if (const int64_t cycles = cyclesOfSum(results, points / inLanes, extent);
        cycles < least || (best && cycles == least)) { // the inner one: outer ones may be in bands
      best = loop;
      least = cycles;
    }
  return best;
}

/// What is installed has a row for each sum, one behind the other: sums of parts of one row have
/// none, and between those of parts of a dimension lie other rows.
static bool areColumns(const Tensor &tensor, const Access &access, unsigned loop) {
  int64_t step = 0;
  for (auto [dim, index] : llvm::enumerate(access.index)) {
    const int64_t moves = coefficient(index, loop);
    if (moves && (dim == tensor.laneDim || step))
      return false;
    step += moves;
  }
  return step == 1;
}

/// A contraction with ones (all lanes get the sum) or, where the reduced loop slides along the
/// lanes, with a band.
FailureOr<Scalar> Former::sumOverLanes(Attempt &attempt, linalg::LinalgOp op, const Point &index) {
  const auto type = cast<RankedTensorType>(op->getResult(0).getType());
  if (attempt.contracts || attempt.runs || !isa<FloatType>(type.getElementType()))
    return failure();
  AffineMap result = op.getMatchingIndexingMap(op.getDpsInitOperand(0)),
            map = op.getIndexingMapsArray()[0];
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  Point dims(extents.size());
  for (auto [expr, at] : llvm::zip(result.getResults(), index))
    dims[cast<AffineDimExpr>(expr).getPosition()] = at;
  Value input = reducedInput(op);
  bool isPlain = combinedValue(op) == op.getBlock()->getArgument(0);

  // A window along the lanes: index = parallel loop + reduced loop. The contraction then runs over
  // all lanes.
  if (auto pad = input.getDefiningOp<tensor::PadOp>(); isPlain && pad) {
    Value source = pad.getSource();
    // Outside of its window a lane is multiplied by 0.
    if (baseOf(source) != source || !ranges.of(source).isFinite())
      return failure();
    const unsigned dim = preferredLane(source);
    unsigned tap = 0;
    for (auto [loop, iterator] : llvm::enumerate(op.getIteratorTypesArray()))
      if (iterator == utils::IteratorType::reduction)
        tap = unsigned(loop);
    auto expr = dyn_cast<AffineBinaryOpExpr>(map.getResult(dim));
    if (!expr || expr.getKind() != AffineExprKind::Add || op.getNumReductionLoops() != 1)
      return failure();
    dims[tap] = Linear::constant(0);
    FailureOr<Point> centre = evaluateMap(attempt.space, map, dims);
    if (failed(centre))
      return failure();
    Linear lane = (*centre)[dim];
    dims[tap] = Linear::constant(1);
    FailureOr<Point> next = evaluateMap(attempt.space, map, dims);
    if (failed(next))
      return failure();
    const int64_t dilation = (*next)[dim].offset - lane.offset;
    if (attempt.lane >= 0 && !lane.uses(unsigned(attempt.lane)))
      return failure();
    for (auto [i, low] : llvm::enumerate(pad.getStaticLow()))
      (*centre)[i].offset -= low;
    int64_t width = shapeOf(source)[dim], low = pad.getStaticLow()[dim], size = extents[tap];
    (*centre)[dim] = attempt.space.dimension({op, tap}, width, LoopKind::Contracted);
    // band[n, k] = 1 where k = n - low + tap * dilation
    int64_t lanes = attempt.space.range(lane).second + 1;
    std::vector<float> values(size_t(lanes * width), 0);
    for (int64_t n = 0; n < lanes; ++n)
      for (int64_t k = n - low; k < n - low + size * dilation; k += dilation)
        if (k >= 0 && k < width)
          values[size_t(n * width + k)] = 1;
    unsigned band = addConstant(graph, "band" + std::to_string(size), {lanes, width},
                                ElementType::Bf16, 1, values);
    auto square = [&](Attempt &inner, const Point &point) { return compute(inner, source, point); };
    auto terms = storeTerms(source, shapeOf(source), dim, /*isRounded=*/false, square);
    if (failed(terms))
      return failure();
    for (unsigned term : *terms) {
      Access a{term, {}, 0};
      for (const Linear &at : *centre)
        a.index.push_back(at.affine());
      attempt.build.term(a, {band, {lane.affine(), (*centre)[dim].affine()}, 0}, 0);
    }
    attempt.contracts = true;
    return Scalar{attempt.build.accumulator(), Scalar::Kind::F32};
  }

  // All lanes of the result sum the row that streams; where each sums a row of its own, they are
  // columns, and ones stream.
  const bool isInstalled = attempt.lane >= 0 && llvm::any_of(index, [&](const Linear &at) {
                             return at.uses(unsigned(attempt.lane));
                           });
  const std::optional<unsigned> running = isInstalled ? std::nullopt : runningOfSum(attempt, op);
  for (auto [dim, iterator] : llvm::enumerate(op.getIteratorTypesArray()))
    if (iterator == utils::IteratorType::reduction)
      dims[dim] =
          attempt.space.dimension({op, unsigned(dim)}, extents[dim],
                                  running == dim ? LoopKind::Running : LoopKind::Contracted);
  auto addTerm = [&](Access a) {
    unsigned laneDim = graph.tensors[a.tensor].laneDim;
    AffineIndex contracted;
    for (auto [loop, coefficient] : a.index[laneDim].terms)
      if (attempt.space.loop(loop).kind == LoopKind::Contracted) {
        contracted.terms.push_back({loop, coefficient});
        if (coefficient < 0) // from the last lane to the first
          contracted.offset -= coefficient * (attempt.space.loop(loop).extent - 1);
      }
    std::vector<AffineIndex> w;
    if (attempt.lane >= 0 && !isInstalled)
      w.push_back(at(unsigned(attempt.lane)));
    else
      w.push_back(fixed(0));
    w.push_back(contracted);
    std::vector<int64_t> shape = {isInstalled ? 1 : attempt.laneExtent(),
                                  graph.tensors[a.tensor].shape[laneDim]};
    for (unsigned loop = 0; loop < attempt.space.size(); ++loop)
      if (attempt.space.loop(loop).kind == LoopKind::Contracted && usesLoop(a, loop) &&
          llvm::none_of(contracted.terms, [&](auto term) { return term.first == loop; })) {
        w.push_back(at(loop));
        shape.push_back(attempt.space.loop(loop).extent);
      }
    unsigned ones = splat(shape, graph.tensors[a.tensor].type, 1);
    if (isInstalled)
      attempt.build.term({ones, w, 0}, a, 0);
    else
      attempt.build.term(a, {ones, w, 0}, 0);
  };
  FailureOr<Point> where = evaluateMap(attempt.space, map, dims);
  if (failed(where))
    return failure();
  FailureOr<Resolved> source = resolve(attempt, input, *where);
  if (failed(source) || source->padded)
    return failure();
  // Parts of a concatenation may lie in lane tiles of their own, which are no columns of one tile.
  if (isInstalled && source->base.getDefiningOp<tensor::ConcatOp>())
    return failure();
  // Of what is dequantised the integers are summed, exactly, and their sum is dequantised.
  std::optional<TensorScheme> scheme;
  if (isPlain && options.precision == Precision::Int8 && !stored.count(source->base))
    scheme = dequantizedBy(formOf(source->base));
  if (scheme) {
    source = resolve(attempt, formOf(source->base)->getOperand(0), source->index);
    if (failed(source) || source->padded)
      return failure();
  }
  // A value in memory is summed as it is stored; what only this sum computes goes
  // as two terms, or as one where it is squares that may be rounded.
  bool isStored = stored.count(source->base) || demand(source->base) > 1 || !formOf(source->base);
  if (isPlain && (scheme || isStored || !isMap(formOf(source->base)))) {
    // Along the lanes that it has anyway, if all of them are summed, or no fewer than along others.
    std::optional<unsigned> lane;
    const unsigned preferred = preferredLane(source->base);
    int64_t most = 0, own = 0;
    for (auto [dim, at] : llvm::enumerate(source->index))
      for (auto [loop, coefficient] : at.terms)
        if (coefficient == 1 && attempt.space.loop(loop).kind == LoopKind::Contracted) {
          const int64_t extent = attempt.space.loop(loop).extent;
          if (dim == preferred && at.terms.size() == 1)
            own = extent;
          most = std::max(most, extent);
          lane = unsigned(dim);
        }
    if (own > 0 && (own == shapeOf(source->base)[preferred] || own == most))
      lane = preferred;
    FailureOr<Stored> value = store(source->base, lane);
    if (failed(value))
      return failure();
    FailureOr<Access> a = access(attempt, *value, *source);
    // No zeros are among the factors: an infinity adds up to one, as it does in the model.
    const ElementType stored = graph.tensors[value->tensor].type;
    const SmallVector<unsigned, 3> parts = stored == ElementType::Fp32 ? threeParts(value->tensor)
                                           : scheme ? SmallVector<unsigned, 3>{value->tensor}
                                                    : partsToSum(value->tensor);
    if (scheme && stored != ElementType::Int8)
      return failure();
    if (failed(a) || parts.empty())
      return failure();
    if (isInstalled && !areColumns(graph.tensors[a->tensor], *a, unsigned(attempt.lane)))
      return failure();
    for (unsigned part : parts) {
      a->tensor = part;
      addTerm(*a);
    }
  } else {
    if (!map.isProjectedPermutation() || op.getNumDpsInputs() != 1)
      return failure();
    // The points of the reduction as a tensor of the input's shape.
    Linear unused;
    auto each = [&](Attempt &inner, const Point &point) -> FailureOr<Scalar> {
      FailureOr<Scalar> value = pull(inner, input, point);
      if (failed(value))
        return failure();
      Values known;
      known[op.getBlock()->getArgument(0)] = *value;
      return bodyValue(inner, combinedValue(op), known);
    };
    SmallVector<unsigned> reduced = reducedDims(op);
    const std::optional<LaneChoice> known = shownLane(input, /*orPart=*/true);
    const unsigned lane =
        known && llvm::is_contained(reduced, known->dim) ? known->dim : reduced.back();
    auto terms =
        storeTerms(op->getResult(0), shapeOf(input), lane, op->hasAttr(kRoundedSquares), each);
    if (failed(terms))
      return failure();
    for (unsigned term : *terms) {
      Access a{term, {}, 0};
      for (const Linear &at : *where)
        a.index.push_back(at.affine());
      if (isInstalled && !areColumns(graph.tensors[term], a, unsigned(attempt.lane)))
        return failure();
      addTerm(a);
    }
  }
  attempt.contracts = true;
  KernelBuilder &build = attempt.build;
  unsigned sum = build.accumulator();
  if (scheme)
    sum = build.op(AluOp::CvtI32F32, {sum});
  if (running) {
    attempt.runs = true;
    sum = build.reduce(AluOp::AddF32, sum);
  }
  if (scheme) {
    double zeros = double(scheme->zero);
    for (auto [extent, iterator] : llvm::zip(extents, op.getIteratorTypesArray()))
      if (iterator == utils::IteratorType::reduction)
        zeros *= double(extent);
    sum = build.op(AluOp::MulF32, {sum, build.constant(float(scheme->scale))});
    if (zeros != 0)
      sum = build.op(AluOp::AddF32, {sum, build.constant(float(-scheme->scale * zeros))});
  }
  return Scalar{sum, Scalar::Kind::F32};
}

} // namespace millrace::forms
