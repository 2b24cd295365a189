// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A value for each row, which operands have in all lanes.
#include "compiler/Forms/Former/Former.h"

#include "compiler/Forms/Builders.h"
#include "compiler/Forms/HostDims.h"

using namespace mlir;

namespace millrace::forms {

Former::Box Former::wholeBox(Value value) {
  const std::vector<int64_t> shape = tensorShape(value);
  return {SmallVector<int64_t>(shape.size(), 0), llvm::to_vector(shape)};
}

/// What a kernel reads of a value, where that is at most half of it; all of it otherwise.
Former::Box Former::boxRead(const Attempt &attempt, const Resolved &at) {
  const Box whole = wholeBox(at.base);
  const ArrayRef<int64_t> shape = whole.size;
  Box box = whole;
  double share = 1;
  for (auto [dim, index] : llvm::enumerate(at.index)) {
    auto [low, high] = attempt.space.range(index);
    low = std::max<int64_t>(low, 0), high = std::min(high, shape[dim] - 1); // others are padding
    if (low > high)
      return whole;
    box.begin[dim] = low, box.size[dim] = high - low + 1;
    share *= double(box.size[dim]) / double(shape[dim]);
  }
  return share > 0.5 ? whole : box;
}

/// Would all slices of the value, or of what maps make of it, be more than half of it, each as much
/// as the box?
bool Former::isReadInAll(Value value, const Box &box) const {
  double slices = 0, share = 1;
  for (auto [size, extent] : llvm::zip(box.size, tensorShape(value)))
    share *= double(size) / double(extent);
  if (share > 0.5)
    return true;
  SetVector<Value> values;
  values.insert(value);
  for (size_t i = 0; i < values.size(); ++i)
    for (Operation *user : values[i].getUsers()) {
      slices += isa<tensor::ExtractSliceOp>(user);
      if (linalg::LinalgOp op = dyn_cast<linalg::LinalgOp>(user); isView(user) || (op && isMap(op)))
        values.insert(user->result_begin(), user->result_end());
    }
  return slices * share > 0.5;
}

/// An argument whose every element the host repeats in a row of `extent` lanes.
unsigned Former::storeRepeated(BlockArgument argument, int64_t extent, ElementType type) {
  std::vector<int64_t> shape = tensorShape(argument);
  shape.push_back(extent);
  const auto lane = unsigned(shape.size() - 1);
  const unsigned number = addTensor(graph, "input", shape, type, lane, TensorRole::Input);
  Tensor &tensor = graph.tensors[number];
  nameArgument(tensor, argument);
  tensor.name += ".rows";
  for (unsigned dim = 0; dim < lane; ++dim)
    tensor.hostLoops.push_back({shape[dim], dim, 1, dim, shapeOf(argument).empty() ? 0 : 1});
  tensor.hostLoops.push_back({extent, lane, 1, 0, 0});
  tensor.hostStart.assign(shapeOf(argument).size(), 0);
  return number;
}

/// result[..., i, ..., k] = i == k ? tensor[..., k, ...] : 0, i in place of the lane dimension and
/// k along the lanes; of lanes [first, first + blocks * block) alone, where k is within i's block.
/// Tensors that add up to it, with ones for factors: infinities are moved, too. Of fp32 the first
/// `most` parts. None for types of which the MXM makes no products.
SmallVector<unsigned, 3> Former::diagonalsOf(unsigned tensor, int64_t first, int64_t blocks,
                                             int64_t block, size_t most) {
  const auto [known, isNew] = diagonals.try_emplace({tensor, first, block, most});
  const Tensor source = graph.tensors[tensor];
  const bool isWide = source.type == ElementType::Fp32;
  if (!isNew || (!isWide && byteWidth(source.type) > 2))
    return known->second;
  std::vector<int64_t> shape = source.shape;
  shape[source.laneDim] = blocks * block;
  shape.push_back(block);
  KernelBuilder build(graph);
  Access from{tensor, {}, 0}, to{0, {}, 0};
  AffineIndex row, lane;
  for (auto [dim, extent] : llvm::enumerate(source.shape)) {
    if (dim != source.laneDim) {
      from.index.push_back(at(build.loop(extent)));
      to.index.push_back(from.index.back());
      continue;
    }
    AffineIndex whole = fixed(0);
    if (blocks > 1)
      whole = at(build.loop(blocks), block);
    row = at(build.loop(block));
    to.index.push_back(whole);
    to.index.back().terms.push_back(row.terms.front());
    whole.offset = first;
    from.index.push_back(whole);
  }
  lane = at(build.loop(block));
  from.index[source.laneDim].terms.push_back(lane.terms.front());
  to.index.push_back(lane);
  const unsigned onDiagonal = build.operand({selection(block, ElementType::Int8), {row, lane}, 0});
  const unsigned bits =
      build.op(AluOp::SelectI32, {onDiagonal, build.operand(from), build.immediate(0)});
  SmallVector<unsigned, 3> results;
  const auto result = [&](ElementType type) {
    to.tensor =
        addTensor(graph, source.name + ".diagonal", shape, type, unsigned(shape.size() - 1));
    results.push_back(to.tensor);
    return to;
  };
  if (isWide) {
    const auto parts = inThree(build, bits, source.unbounded);
    for (const unsigned part : llvm::ArrayRef(parts).take_front(most))
      build.storeBits(part, result(ElementType::Bf16));
  } else {
    build.storeBits(bits,
                    result(source.type == ElementType::UInt8 ? ElementType::Int8 : source.type));
  }
  build.finish(source.name + ".diagonal");
  return diagonals[{tensor, first, block, most}] = results;
}

int64_t partOf(int64_t width, int64_t vector) {
  for (int64_t part = std::min(width, vector); 2 * part >= std::min(width, vector); --part)
    if (width % part == 0)
      return part;
  return vector;
}

/// Are the lanes so few that rows are rather multiplied by zeros and ones, which pick them? No
/// infinity may become a NaN by that.
bool Former::selectsFew(const Tensor &tensor, const Box &box, int64_t extent) const {
  constexpr int64_t kFew = 8, kMostElements = int64_t(1) << 22; // lanes; of what is installed
  const int64_t few = box.size[tensor.laneDim];
  return !tensor.unbounded && few <= kFew && few * extent * options.lanes <= kMostElements &&
         (tensor.type == activation() || tensor.type == ElementType::Int8);
}

/// What the products of the kernel add up to, as an element of the value.
Scalar Former::sumIn(KernelBuilder &build, Value value) {
  const Type element = cast<RankedTensorType>(value.getType()).getElementType();
  return {build.accumulator(), isa<FloatType>(element) ? Scalar::Kind::F32 : Scalar::Kind::I32};
}

/// Fills `rows` from few lanes of a tensor: each of its rows times a matrix of ones in one lane.
void Former::spreadFewLanes(Value value, const Box &box, unsigned from, unsigned rows) {
  const Tensor source = graph.tensors[from];
  const int64_t extent = graph.tensors[rows].shape.back();
  // The vectors that hold those lanes.
  const int64_t begin = box.begin[source.laneDim] / options.lanes * options.lanes;
  const int64_t end = box.begin[source.laneDim] + box.size[source.laneDim];
  const int64_t width = std::min(source.shape[source.laneDim],
                                 (end + options.lanes - 1) / options.lanes * options.lanes) -
                        begin;
  KernelBuilder build(graph);
  Access a{from, {}, 0}, to{rows, {}, 0};
  AffineIndex column;
  SmallVector<int64_t> lanes;
  for (auto [dim, size] : llvm::enumerate(box.size)) {
    to.index.push_back(size > 1 ? at(build.loop(size)) : fixed(0));
    a.index.push_back(to.index.back());
    a.index.back().offset = box.begin[dim];
    if (dim != source.laneDim)
      continue;
    for (auto [loop, step] : to.index.back().terms)
      column.terms.emplace_back(loop, step * extent);
    for (int64_t lane = 0; lane < size; ++lane)
      lanes.append(size_t(extent), box.begin[dim] + lane - begin);
  }
  to.index.push_back(extent > 1 ? at(build.loop(extent)) : fixed(0));
  llvm::append_range(column.terms, to.index.back().terms);
  const AffineIndex along = at(build.loop(width, LoopKind::Contracted));
  a.index[source.laneDim] = along;
  a.index[source.laneDim].offset = begin;
  build.term(a, {selection(lanes, width, source.type, 1), {column, along}, 0}, 0);
  storeScalar(build, sumIn(build, value), to, value.getType());
  build.finish(nameOf(value));
}

/// A copy of what lies in the box of rows alone, all of their lanes.
unsigned Former::copyRows(unsigned tensor, const Box &box) {
  const Tensor source = graph.tensors[tensor];
  KernelBuilder build(graph);
  Access from{tensor, {}, 0}, to{0, {}, 0};
  std::vector<int64_t> shape = source.shape;
  for (auto [dim, extent] : llvm::enumerate(shape)) {
    const bool isLane = dim == source.laneDim;
    extent = isLane ? extent : box.size[dim];
    to.index.push_back(extent > 1 ? at(build.loop(extent)) : fixed(0));
    from.index.push_back(to.index.back());
    from.index.back().offset = isLane ? 0 : box.begin[dim];
  }
  to.tensor = addTensor(graph, source.name + ".rows", shape, source.type, source.laneDim);
  graph.tensors[to.tensor].unbounded = source.unbounded;
  build.storeBits(build.operand(from), to);
  build.finish(source.name + ".rows");
  return to.tensor;
}

/// Fills `rows`, a row for each element of the box, from where that lies along lanes: a diagonal
/// of rows times ones, vector by vector; of fp32 the first `parts` of three.
LogicalResult Former::spreadLanes(Value value, Box box, unsigned rows, size_t parts) {
  FailureOr<Stored> source = store(value, std::nullopt);
  if (failed(source) || source->laneSplit)
    return failure();
  unsigned tensor = source->tensor;
  const auto rowsIn = [lane = graph.tensors[tensor].laneDim](ArrayRef<int64_t> shape) {
    int64_t count = 1;
    for (auto [dim, extent] : llvm::enumerate(shape))
      count *= dim == lane ? 1 : extent;
    return count;
  };
  if (2 * rowsIn(box.size) <= rowsIn(graph.tensors[tensor].shape)) {
    tensor = copyRows(tensor, box);
    for (size_t dim = 0; dim < box.begin.size(); ++dim)
      box.begin[dim] = dim == graph.tensors[tensor].laneDim ? box.begin[dim] : 0;
  }
  const Tensor from = graph.tensors[tensor];
  const int64_t start = box.begin[from.laneDim], width = box.size[from.laneDim];
  const int64_t extent = graph.tensors[rows].shape.back();
  if (selectsFew(from, box, extent)) {
    spreadFewLanes(value, box, tensor, rows);
    return success();
  }
  // Each row is swept as often as a part has passes; twice as many parts are no more than that.
  const int64_t whole = partOf(width, options.lanes), pass = partOf(width, options.pass);
  const bool isSweptLess =
      whole < width && width % whole == 0 && width % pass == 0 && whole <= 2 * pass;
  const int64_t part = isSweptLess ? pass : whole;
  const auto spread = [&](int64_t first, int64_t blocks, int64_t block) {
    const SmallVector<unsigned, 3> diagonals =
        diagonalsOf(tensor, start + first, blocks, block, parts);
    if (diagonals.empty())
      return failure();
    KernelBuilder build(graph);
    Access a{0, {}, 0}, to{rows, {}, 0};
    const auto loopOf = [&](int64_t size) { return size > 1 ? at(build.loop(size)) : fixed(0); };
    for (auto [dim, size] : llvm::enumerate(box.size)) {
      to.index.push_back(loopOf(dim == from.laneDim ? blocks * block : size));
      a.index.push_back(to.index.back());
      if (dim == from.laneDim)
        to.index.back().offset = first;
      else
        a.index.back().offset = box.begin[dim];
    }
    to.index.push_back(loopOf(extent));
    const AffineIndex k = at(build.loop(block, LoopKind::Contracted));
    a.index.push_back(k);
    for (unsigned part : diagonals) {
      a.tensor = part;
      build.term(a, {splat({extent, block}, graph.tensors[part].type, 1), {to.index.back(), k}, 0},
                 0);
    }
    storeScalar(build, sumIn(build, value), to, value.getType());
    build.finish(nameOf(value));
    return success();
  };
  if (failed(spread(0, width / part, part)))
    return failure();
  const int64_t rest = width % part;
  return rest ? spread(width - rest, 1, rest) : success();
}

/// A value per row, in `extent` lanes: the value's shape with one more dimension.
/// Of the box alone where each element of that costs as much, else of the whole value, which the
/// box is then.
FailureOr<unsigned> Former::storeBroadcast(Value value, int64_t extent, Box &box) {
  const Box whole = wholeBox(value);
  constexpr unsigned kNone = ~0u;
  const auto entryOf = [&](const Box &its) -> unsigned & {
    std::vector<int64_t> place(its.begin.begin(), its.begin.end());
    place.insert(place.end(), its.size.begin(), its.size.end());
    return rowsOfValues.try_emplace({value.getAsOpaquePointer(), extent, std::move(place)}, kNone)
        .first->second;
  };
  for (const Box &its : {whole, box})
    if (const unsigned known = entryOf(its); known != kNone) {
      box = its;
      return known;
    }
  bool isScalar = shapeOf(value).empty();
  linalg::LinalgOp op = formOf(value);
  bool isSum =
      op && !isMap(op) && !isContraction(op) && reducesLanes(op) && combinerOf(op) == Combiner::Sum;
  // A softmax leaves small differences of scores that may be large: 16 bits would round 38,000 by
  // 16 or 128. Rows may as well be less something near their maxima, but a number that hides all of
  // a row is compared with itself.
  size_t parts = kAllParts;
  const bool areScores =
      op && !isMap(op) && combinerOf(op) == Combiner::Max && isRunTimeScores(reducedInput(op));
  const double near = activation() == ElementType::Fp16 ? 2048 : 256; // rounded by 1 at most
  if (const Range scores = areScores ? ranges.of(reducedInput(op)) : Range();
      areScores && !(scores.largest() <= near)) {
    wide.insert(value);
    const bool isUnhidden = isUnmasked(reducedInput(op));
    parts -= isUnhidden ? 1 : 0;
    if (const Value scores = baseOf(reducedInput(op)); !isUnhidden && !stored.count(scores))
      wide.insert(scores); // a copy of them alone would hide less than what is compared with it
  }
  FailureOr<ElementType> type = memoryType(value);
  if (failed(type))
    return failure();
  const bool isWide = *type == ElementType::Fp32; // of which the MXM makes no products
  if (auto argument = dyn_cast<BlockArgument>(value);
      argument && (isWide || extent <= kMostRepetition)) {
    box = whole; // what the host writes whole may have any layout
    return entryOf(box) = storeRepeated(argument, extent, *type);
  }
  bool isRowMap = op && isMap(op) && isFormable(op) && (!stored.count(value) || isWide);
  // The maximum of scores comes along lanes from their transposed copy.
  bool isMax = op && !isMap(op) && combinerOf(op) == Combiner::Max && reducesLanes(op) &&
               !isRunTimeScores(reducedInput(op));
  const Type element = cast<RankedTensorType>(value.getType()).getElementType();
  const bool isFloat = isa<FloatType>(element);
  // An element of each row is taken from where it lies, rather than all of its row computed.
  const bool isComputed = extent > 1 && (isSum || isRowMap || isMax);
  if (isComputed && (!isRowMap || isReadInAll(value, box)))
    box = whole;
  std::vector<int64_t> shape(box.size.begin(), box.size.end());
  shape.push_back(extent);
  const auto lane = unsigned(shape.size() - 1);
  unsigned tensor = newTensor(value, shape, lane, isSum && isFloat ? ElementType::Fp32 : *type);
  graph.tensors[tensor].name += ".rows";
  auto toResult = [&](Attempt &attempt, const Point &point, Scalar result) {
    Access to{tensor, {}, 0};
    for (const Linear &at : point)
      to.index.push_back(at.affine());
    storeScalar(attempt.build, result, to, value.getType());
  };
  auto inRows = [&](Attempt &attempt, const Point &point) -> FailureOr<Scalar> {
    Point index(point.begin(), point.end() - 1);
    for (auto [at, begin] : llvm::zip(index, box.begin))
      at.offset += begin;
    if (isScalar)
      index.clear();
    return compute(attempt, value, index);
  };
  if (!isComputed || failed(emitKernel(value, shape, lane, {}, inRows, toResult)))
    if (failed(spreadLanes(value, box, tensor, parts)))
      return failure();
  return entryOf(box) = tensor;
}

} // namespace millrace::forms
