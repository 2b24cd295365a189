// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values turned: made with the lanes in which they take the fewest products, then copied to others
// by a product with an identity.
#include "compiler/Forms/Former/Former.h"

#include <cmath>

namespace millrace::forms {

using namespace mlir;

/// Products that each sum has.
static int64_t depthOf(linalg::LinalgOp op) {
  int64_t depth = 1;
  for (auto [extent, iterator] : llvm::zip(op.getStaticLoopRanges(), op.getIteratorTypesArray()))
    depth *= iterator == utils::IteratorType::reduction ? extent : 1;
  return depth;
}

/// Is a product with constants, of few rows, sooner made with its own lanes and then turned than
/// with `lane` along the lanes, where all the constants' rows are swept? And what is cut out of a
/// larger value, if `lane` has one element, since all of that would lie in rows of one lane?
bool Former::turnsAfterwards(Value part, Value base, unsigned lane) {
  constexpr int64_t kAtOnce = 160; // lanes that are multiplied, about
  const auto elementsOf = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getNumElements();
  };
  if (shapeOf(part)[lane] == 1 && 1 < elementsOf(part) && 2 * elementsOf(part) <= elementsOf(base))
    return true;
  linalg::LinalgOp op = formOf(base);
  if (!op || !isContraction(op) ||
      (!areWeights(op->getOperand(0)) && !areWeights(op->getOperand(1))))
    return false;
  const int64_t sweeps = (depthOf(op) + kAtOnce - 1) / kAtOnce, rows = shapeOf(part)[lane],
                columns = elementsOf(part) / rows;
  const int64_t natural = rows * sweeps * (columns / (2 * kAtOnce) + 1), turning = columns * rows;
  return natural + 2 * turning < columns * sweeps;
}

/// Passes of products with constants that each row would take if the value, one or maps of some,
/// were computed once more: one for each place of a window, and for as many lanes as are multiplied
/// at once.
int64_t Former::passesAgain(Value base) {
  int64_t passes = 0;
  SmallVector<Value> open{base};
  llvm::SmallPtrSet<Value, 8> seen;
  while (!open.empty()) {
    linalg::LinalgOp op = formOf(open.pop_back_val());
    if (!op || !isFormable(op))
      continue;
    if (isMap(op)) {
      for (Value input : op.getDpsInputs())
        if (const Value source = baseOf(input); !stored.count(source) && seen.insert(source).second)
          open.push_back(source);
    } else if (isContraction(op) && !isDepthwise(op) &&
               (areWeights(op->getOperand(0)) || areWeights(op->getOperand(1)))) {
      int64_t longest = 1;
      for (auto [extent, kind] : llvm::zip(op.getStaticLoopRanges(), op.getIteratorTypesArray()))
        longest = kind == utils::IteratorType::reduction ? std::max(longest, extent) : longest;
      const int64_t half = options.lanes / 2; // are multiplied at once
      passes += depthOf(op) / longest * ((longest + half - 1) / half);
    }
  }
  return passes;
}

/// Is the value, which lies in rows already, turned sooner to have `lane` along its lanes than
/// computed once more so?
bool Former::isTurnedSooner(Value base, Stored known, unsigned lane) {
  const int64_t passes = passesAgain(base);
  if (linalg::LinalgOp op = formOf(base); passes < 2 || (op && isContraction(op)))
    return passes >= 2;
  constexpr int64_t kStep = 1000; // vectors in about the time that a further step takes
  const int64_t extent = shapeOf(base)[lane],
                rows = cast<RankedTensorType>(base.getType()).getNumElements() / extent *
                       ((extent + options.lanes - 1) / options.lanes),
                parts = graph.tensors[known.tensor].unbounded ? 2 : 1; // 0 times infinity is no 0
  return rows * (passes - parts) > kStep;
}

/// Lanes of a vector that are turned at a time: of two bytes, half a vector is multiplied at once.
static int64_t lanesToTurn(int64_t lanes, int64_t vector) {
  int64_t block = lanes;
  while (2 * block > vector && block % 2 == 0)
    block /= 2;
  return block;
}

Value behindUnitDims(Value value) {
  const auto extents = [](Value of) {
    return llvm::to_vector(llvm::make_filter_range(shapeOf(of), [](int64_t e) { return e != 1; }));
  };
  while (Operation *op = value.getDefiningOp()) {
    if (!isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op) ||
        extents(value) != extents(op->getOperand(0)))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// What a map computes element by element of one value and constants; null for others.
static Value mapped(linalg::LinalgOp op) {
  Value source;
  if (!op || !isMap(op))
    return {};
  for (OpOperand *input : op.getDpsInputOperands()) {
    if (areWeights(input->get()))
      continue;
    if (source || !op.getMatchingIndexingMap(input).isIdentity())
      return {};
    source = input->get();
  }
  return source;
}

/// Along whose lanes a sum over rows, or what maps make of one, is made where `lane` has one
/// element: along those of what it sums, which would else lie in rows of one lane. None for other
/// values.
std::optional<unsigned> Former::laneOfSum(Value base, unsigned lane) {
  if (shapeOf(base).empty() || shapeOf(base)[lane] != 1)
    return std::nullopt;
  linalg::LinalgOp op = formOf(base);
  while (const Value source = mapped(op))
    op = formOf(behindUnitDims(source));
  if (!op || !isFormable(op) || combinerOf(op) != Combiner::Sum || op.getNumReductionLoops() == 0 ||
      op.getNumDpsInputs() != 1)
    return std::nullopt;
  const Value summed = op->getOperand(0);
  const AffineExpr lanes =
      op.getIndexingMapsArray()[0].getResult(preferredLane(summed)); // of what is summed
  const ArrayRef<AffineExpr> result =
      op.getMatchingIndexingMap(op.getDpsInitOperand(0)).getResults();
  const AffineExpr *natural = llvm::find(result, lanes);
  if (!isa<AffineDimExpr>(lanes) || natural == result.end())
    return std::nullopt;
  // The same one of the dimensions that have more than one element.
  const ArrayRef<int64_t> sums = shapeOf(op->getResult(0)), shape = shapeOf(base);
  const auto dim = size_t(natural - result.begin());
  if (sums[dim] == 1)
    return std::nullopt;
  auto before = llvm::count_if(sums.take_front(dim), [](int64_t extent) { return extent > 1; });
  for (unsigned at = 0; at < shape.size(); ++at)
    if (shape[at] > 1 && before-- == 0)
      return at;
  return std::nullopt;
}

/// What maps make, perhaps behind views, of a product with constants; nothing for other values, or
/// where what is between is stored anyway.
std::optional<Former::ChannelsOf> Former::channelsOf(Value base) {
  constexpr int kTries = 4; // to cut the loops as views do
  return withCuts(base, kTries, [&](Attempt &attempt, const Point &index) {
    return channelsOf(attempt, base, index);
  });
}

std::optional<Former::ChannelsOf> Former::channelsOf(Attempt &attempt, Value base,
                                                     const Point &point) {
  ChannelsOf found;
  Operation *made = base.getDefiningOp();
  Operation *copied = copies.contains(made) || isa<tensor::ExtractSliceOp>(made) ? made : nullptr;
  Resolved at{base, point, false, {}};
  for (Value value = base;;) {
    FailureOr<Resolved> its = resolve(attempt, value, at.index, copied);
    if (failed(its) || its->padded)
      return std::nullopt;
    at = *its;
    const bool isPart = value == base && copied; // others take other parts
    if (at.base != base && (stored.count(at.base) || (!isPart && demand(at.base) != 1)))
      return std::nullopt;
    linalg::LinalgOp op = formOf(at.base);
    if (!op || !isFormable(op))
      return std::nullopt;
    if (!isMap(op)) {
      found.product = op;
      break;
    }
    found.hasMaps = true;
    Value source;
    for (OpOperand *input : op.getDpsInputOperands())
      if (op.getMatchingIndexingMap(input).isIdentity() && !isConstantValue(input->get())) {
        if (source) // what it is added to may lie in either way
          return std::nullopt;
        source = input->get();
      }
    if (!source)
      return std::nullopt;
    value = source;
  }
  linalg::LinalgOp op = found.product;
  if (!isContraction(op))
    return std::nullopt;
  const bool isFirst = areWeights(op->getOperand(0));
  if (isFirst == areWeights(op->getOperand(1)))
    return std::nullopt;
  const AffineMap constants = op.getIndexingMapsArray()[isFirst ? 0 : 1],
                  others = op.getIndexingMapsArray()[isFirst ? 1 : 0],
                  result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  const auto moves = [](AffineMap map, AffineExpr loop) {
    return llvm::any_of(map.getResults(), [&](AffineExpr expr) {
      return expr.isFunctionOfDim(cast<AffineDimExpr>(loop).getPosition());
    });
  };
  bool isFound = false;
  for (unsigned dim : dimsBeside1(op->getResult(0))) {
    const AffineExpr loop = result.getResult(dim);
    if (!isa<AffineDimExpr>(loop) || !moves(constants, loop) || moves(others, loop))
      continue;
    if (isFound)
      return std::nullopt;
    isFound = true;
    for (auto [step, coefficient] : at.index[dim].terms) {
      found.count *= attempt.space.loop(step).extent;
      for (unsigned d = 0; d < point.size(); ++d)
        if (coefficient == 1 && point[d].uses(step))
          found.dim = d;
    }
  }
  return found.dim ? std::optional(found) : std::nullopt;
}

/// The dimension along whose lanes the value, maps of a product with constants, is best computed
/// before it is turned to have `lane` along them; none if it is best computed so at once, where the
/// constants' rows are swept for each of the product's tiles.
std::optional<unsigned> Former::laneBeforeTurning(Value base, unsigned lane) {
  const ArrayRef<int64_t> shape = shapeOf(base);
  const FailureOr<ElementType> type = memoryType(base);
  if (shape.empty() || shape[lane] == 1 || failed(type) || *type == ElementType::Int32)
    return std::nullopt;
  const std::optional<ChannelsOf> channels = channelsOf(base);
  if (!channels || *channels->dim == lane)
    return std::nullopt;
  const auto tiles = [&](int64_t extent, int64_t of) { return (extent + of - 1) / of; };
  const Range range = ranges.of(base);
  const int64_t parts = range.isFinite() || range.fillsRows ? 1 : 2; // 0 times infinity is no 0
  const int64_t all = cast<RankedTensorType>(base.getType()).getNumElements(),
                sweeps = tiles(depthOf(channels->product), options.lanes / 2),
                atOnce = all / channels->count * sweeps * tiles(channels->count, options.lanes),
                turning = all / shape[lane] * tiles(shape[lane], options.lanes);
  constexpr int64_t kStep = 1000; // vectors in about the time that a further step takes
  return atOnce + 2 * parts * turning + kStep < turning * (sweeps + channels->hasMaps)
             ? channels->dim
             : std::nullopt;
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
  if (linalg::LinalgOp map = formOf(base); !map || !isMap(map))
    return std::nullopt;
  const auto usesAny = [](const Linear &index, const Linear &loops) {
    return llvm::any_of(loops.terms, [&](const auto &term) { return index.uses(term.first); });
  };
  constexpr int kTries = 12; // as many cuts as a kernel's
  return withCuts(
      base, kTries, [&](Attempt &attempt, const Point &point) -> std::optional<unsigned> {
        const std::optional<Resolved> at = storedBehindMaps(attempt, base, point);
        if (!at || point[lane].terms.empty())
          return std::nullopt;
        const Stored &source = stored.lookup(at->base).front();
        const Linear &along = at->index[graph.tensors[source.tensor].laneDim];
        const auto isAlong = [&](const Linear &index) { return usesAny(index, point[lane]); };
        if (source.laneSplit || isAlong(along) || llvm::count_if(at->index, isAlong) < 2 ||
            kShort * attempt.space.loop(point[lane].terms.rbegin()->first).extent > options.lanes)
          return std::nullopt;
        const auto natural =
            llvm::find_if(point, [&](const Linear &x) { return usesAny(along, x); });
        return natural != point.end() ? std::optional(unsigned(natural - point.begin()))
                                      : std::nullopt;
      });
}

/// Whether constants that the value's kernel multiplies by are more than the value.
bool Former::holdsWeights(Value base) {
  linalg::LinalgOp op = formOf(base);
  while (op && isMap(op)) {
    Value source; // that the kernel computes, too
    for (Value input : op.getDpsInputs())
      if (const Value its = baseOf(input); !stored.count(its) && formOf(its))
        source = its;
    op = source ? formOf(source) : linalg::LinalgOp();
  }
  return op && isContraction(op) && llvm::any_of(op.getDpsInputs(), [&](Value operand) {
           return areWeights(operand) &&
                  cast<RankedTensorType>(operand.getType()).getNumElements() >
                      cast<RankedTensorType>(base.getType()).getNumElements();
         });
}

/// Stores the value, which may be a view, as it is best computed, and turned. Whether that can be.
bool Former::storeTurned(Value value, unsigned lane) {
  const ArrayRef<int64_t> shape = shapeOf(value);
  const auto longest = unsigned(llvm::max_element(llvm::reverse(shape)).base() - shape.begin() - 1);
  if (longest == lane)
    return false;
  if (const auto known = stored.find(value); known != stored.end())
    return llvm::any_of(known->second, [&](const Stored &copy) {
      return !copy.laneSplit && graph.tensors[copy.tensor].laneDim == lane;
    });
  if (Operation *op = value.getDefiningOp(); baseOf(value) != value)
    setCopied(op);
  FailureOr<Stored> made = store(value, longest);
  if (failed(made) || failed(made = storeTransposed(value, *made, lane)))
    return false;
  noteStored(value, *made);
  return true;
}

/// Written as it is best computed, then turned.
FailureOr<Stored> Former::storePreferred(Value base, unsigned lane) {
  unsigned preferred = preferredLane(base);
  FailureOr<Stored> made = failure();
  if (preferred != lane && succeeded(made = store(base, preferred)))
    made = storeTransposed(base, *made, lane);
  return made;
}

/// A copy with other lanes: result[.., l, .., m, ..] = sum over k of eye[m, k] source[.., l, .., k,
/// ..], k being lanes of one block: those of a vector that m lies in, or a part of them.
FailureOr<Stored> Former::storeTransposed(Value base, Stored source, unsigned lane) {
  const Tensor from = graph.tensors[source.tensor];
  const std::optional<Parts> parts = source.laneSplit ? std::nullopt : partsToSelect(source.tensor);
  if (!parts)
    return failure();
  unsigned result = addTensor(graph, from.name + ".transposed", from.shape, from.type, lane);
  noteRange(result, base);
  const unsigned row = from.laneDim;
  const int64_t extent = from.shape[row], vector = std::min(extent, options.lanes);
  const auto turn = [&](int64_t first, int64_t vectors, int64_t lanes, int64_t block) {
    KernelBuilder build(graph);
    Access x{source.tensor, {}, 0}, to{result, {}, 0};
    for (auto [dim, size] : llvm::enumerate(from.shape)) {
      if (dim != row)
        to.index.push_back(at(build.loop(size)));
      else
        to.index.push_back(at(build.loop(vectors), lanes, first));
    }
    AffineIndex within = at(build.loop(lanes / block), block); // of a vector: where a block begins
    to.index[row].terms.push_back(within.terms.front());
    x.index = to.index;
    const unsigned m = build.loop(block), k = build.loop(block, LoopKind::Contracted);
    to.index[row].terms.push_back({m, 1});
    x.index[row].terms.push_back({k, 1});
    AffineIndex eyeRow = within, eyeLane = within;
    eyeRow.terms.push_back({m, 1});
    eyeLane.terms.push_back({k, 1});
    for (auto [part, factor] : parts->terms) {
      x.tensor = part;
      const unsigned eye = selection(lanes, graph.tensors[part].type, factor);
      build.term({eye, {eyeRow, eyeLane}, 0}, x, 0);
    }
    storeJoined(build, *parts, to);
    build.finish(from.name + ".transposed");
  };
  turn(0, extent / vector, vector, lanesToTurn(vector, options.lanes));
  if (const int64_t rest = extent % vector) // whole: its lanes begin elsewhere than the identity's
    turn(extent - rest, 1, rest, rest);
  return Stored{result, 0};
}

/// If `base` is what maps make of scores less the maxima of their rows (along `lane`), and perhaps
/// of a sum of that, as in a softmax: the maxima lie along the rows that are installed, and so can
/// all of it. To turn that once takes fewer vectors than a row for each maximum, the scores'
/// product once more, and a sum over lanes.
std::optional<Former::Maxima> Former::maximaBelow(Value base, unsigned lane) {
  constexpr int kLongestChain = 8; // of maps
  if (options.sparesRoom())
    return std::nullopt;
  Maxima found;
  const auto ofRows = [&](Value value, Value source, Combiner combiner) {
    linalg::LinalgOp op = formOf(value);
    return op && !isMap(op) && combinerOf(op) == combiner && op.getNumDpsInputs() == 1 &&
           reducedInput(op) == source && op.getNumReductionLoops() == 1 &&
           op.getIndexingMapsArray()[0].isIdentity() && demand(value) == 1 &&
           !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isFunctionOfDim(lane);
  };
  linalg::LinalgOp op = formOf(base);
  for (int depth = 0; op && isMap(op) && isFormable(op) && depth < kLongestChain; ++depth) {
    const int64_t inputs = op.getNumDpsInputs();
    if (inputs == 0 || inputs > 2 ||
        !op.getMatchingIndexingMap(op.getDpsInputOperand(0)).isIdentity())
      return std::nullopt;
    const Value source = op->getOperand(0), other = op->getOperand(unsigned(inputs - 1));
    const bool hasSum = inputs == 2 && ofRows(other, source, Combiner::Sum);
    if (hasSum)
      found.sums.push_back(other);
    if (inputs == 1 || hasSum) {
      if (demand(source) != (hasSum ? 2u : 1u) || stored.count(source))
        return std::nullopt;
      op = formOf(source);
      continue;
    }
    if (!ofRows(other, source, Combiner::Max) || behindUnitDims(source) != baseOf(source) ||
        stored.count(baseOf(source)) || !isRunTimeScores(source))
      return std::nullopt;
    linalg::LinalgOp most = formOf(other);
    const AffineMap to = most.getMatchingIndexingMap(most.getDpsInitOperand(0));
    found.scores = source;
    found.greatest = other;
    found.lane = cast<AffineDimExpr>(to.getResult(preferredLane(other))).getPosition();
    const ArrayRef<int64_t> shape = shapeOf(base);
    const auto tiles = [](int64_t extent, int64_t of) { return (extent + of - 1) / of; };
    const int64_t half = options.lanes / 2,
                  lanes = shape[found.lane], // half are multiplied at once
        all = cast<RankedTensorType>(base.getType()).getNumElements(),
                  rows = all / shape[lane] * tiles(shape[lane], options.lanes),
                  sums = int64_t(found.sums.size()) * tiles(shape[lane], half),
                  maxima = tiles(lanes, half), product = 1, // at least
        turning = tiles(lanesToTurn(lanes, options.lanes), half);
    constexpr int64_t kSteps = 1000; // vectors in about the time that the further steps take
    return rows * (maxima + product + sums - turning) > kSteps ? std::optional(found)
                                                               : std::nullopt;
  }
  return std::nullopt;
}

/// Stores the value with the lanes that the maxima below it have, of scores that are stored once
/// for both, and then turned.
FailureOr<Stored> Former::storeAlongMaxima(Value base, unsigned lane) {
  const std::optional<Maxima> maxima = maximaBelow(base, lane);
  const Range range = ranges.of(base);
  const ArrayRef<int64_t> shape = shapeOf(base);
  constexpr double kLargest = 16384; // 16 bits hold what is beyond
  if (!maxima || hosted.contains(base) || !range.isBounded() || range.largest() > kLargest ||
      *memoryType(base) != activation() || shape[lane] == 1 || shape[maxima->lane] == 1 ||
      shape[maxima->lane] > options.lanes)
    return failure();
  const Value scores = baseOf(maxima->scores);
  const SmallVector<unsigned> dims = dimsBeside1(maxima->scores);
  const auto along = size_t(llvm::find(dims, maxima->lane) - dims.begin());
  wide.insert(scores); // and 16 bits would round the greatest of them
  wide.insert(maxima->greatest);
  wide.insert(maxima->sums.begin(), maxima->sums.end());
  if (failed(store(scores, dimsBeside1(scores)[along], /*isExact=*/true)))
    return failure();
  // A power of two is what it was when it is turned.
  const auto mark = float(std::exp2(1 + std::ceil(std::log2(std::max(1.0, range.largest())))));
  const unsigned made = newTensor(base, shape, maxima->lane);
  const auto each = [&](Attempt &attempt, const Point &point) {
    return compute(attempt, base, point);
  };
  const auto finish = [&](Attempt &attempt, const Point &point, Scalar value) {
    KernelBuilder &build = attempt.build;
    Access to{made, {}, 0};
    for (const Linear &at : point)
      to.index.push_back(at.affine());
    if (range.nan) // 0 times NaN is no 0
      value.node = build.op(AluOp::SelectF32, {build.op(AluOp::EqF32, {value.node, value.node}),
                                               value.node, build.constant(mark)});
    build.store(value.node, to);
  };
  if (failed(emitKernel(base, shape, maxima->lane, {}, each, finish)))
    return failure();
  if (range.nan)
    markedNan[made] = mark;
  graph.tensors[made].unbounded = false;
  return storeTransposed(base, {made, 0}, lane);
}

} // namespace millrace::forms
