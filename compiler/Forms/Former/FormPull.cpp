// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scalar of a value at a point: computed in the kernel at hand, or loaded.
#include "compiler/Forms/Former/Former.h"

#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

#include <numeric>

namespace millrace::forms {

using namespace mlir;

unsigned Former::opCount(const Attempt &attempt) const {
  unsigned count = 0;
  for (const Node &node : const_cast<Attempt &>(attempt).build.kernel().nodes)
    count += node.kind == Node::Kind::Op;
  return count;
}

unsigned Former::opCountOf(const Attempt &attempt, unsigned node) const {
  const std::vector<Node> &nodes = const_cast<Attempt &>(attempt).build.kernel().nodes;
  std::vector<bool> needed(nodes.size());
  needed[node] = true;
  unsigned count = 0;
  for (size_t k = node + 1; k-- > 0;) {
    if (!needed[k])
      continue;
    count += nodes[k].kind == Node::Kind::Op;
    for (const unsigned arg : nodes[k].args)
      needed[arg] = true;
  }
  return count;
}

FailureOr<Scalar> Former::pull(Attempt &attempt, Value value, const Point &index) {
  FailureOr<Resolved> at = resolve(attempt, value, index);
  if (failed(at))
    return failure();
  return pullBase(attempt, *at);
}

/// All loops of the kernel's result lead to different points of the value: inlining computes
/// nothing twice.
bool Former::coversRoot(Attempt &attempt, const Point &index) const {
  for (unsigned loop = 0; loop < attempt.space.size(); ++loop) {
    if (attempt.space.loop(loop).kind == LoopKind::Contracted)
      continue;
    bool used = llvm::any_of(index, [&](const Linear &at) { return at.uses(loop); });
    if (!used)
      return false;
  }
  return true;
}

/// Whether the kernel would sum the same lanes for so many rows that a kernel of its own, for which
/// the others wait, takes less: for the value itself, or for what maps make of a sum.
bool Former::repeatsSum(const Attempt &attempt, Value base, const Point &index) {
  constexpr int64_t kWait = 256; // vectors
  int64_t rows = 1, repeats = 1;
  for (unsigned loop = 0; loop < attempt.space.size(); ++loop) {
    if (int(loop) == attempt.lane || attempt.space.loop(loop).kind != LoopKind::Parallel)
      continue;
    const int64_t extent = attempt.space.loop(loop).extent;
    rows *= extent;
    if (llvm::none_of(index, [&](const Linear &at) { return at.uses(loop); }))
      repeats *= extent;
  }
  const auto isLong = [&](linalg::LinalgOp sum) {
    int64_t points = 1, longest = 1;
    for (auto [extent, iterator] :
         llvm::zip(sum.getStaticLoopRanges(), sum.getIteratorTypesArray()))
      if (iterator == utils::IteratorType::reduction)
        points *= extent, longest = std::max(longest, extent);
    return (rows - rows / repeats) * (points / longest) > kWait;
  };
  SmallVector<Value> values{base};
  for (size_t k = 0; repeats > 1 && k < values.size() && k < 16; ++k) {
    linalg::LinalgOp op = formOf(values[k]);
    if (!op || stored.count(values[k]))
      continue;
    if (isMap(op))
      for (Value input : op.getDpsInputs())
        values.push_back(baseOf(input));
    else if (!isContraction(op) && reducesLanes(op) && isLong(op))
      return true;
  }
  return false;
}

/// Does a running reduction step through many rows for few results? It takes a step in as many
/// cycles as its operation takes, of one vector after the other: what a product makes is rather
/// stored, and added up apart. Where several PEs make it, it would have to come together for that.
bool Former::runsLong(const Attempt &attempt) const {
  constexpr int64_t kFew = 3, kMany = 128; // results; steps of one vector
  int64_t results = 1, steps = 1, lanes = 1;
  for (unsigned loop = 0; loop < attempt.space.size(); ++loop)
    if (const Loop &its = attempt.space.loop(loop); int(loop) == attempt.lane)
      lanes = its.extent;
    else if (its.kind == LoopKind::Running)
      steps *= its.extent;
    else if (its.kind == LoopKind::Parallel)
      results *= its.extent;
  const int64_t vectors = (lanes + options.lanes - 1) / options.lanes;
  return options.isOnePe && attempt.reduces && results < kFew && steps * (2 * vectors - 1) >= kMany;
}

/// Is the value the result of a product, or of maps of one, that nothing else reads?
bool Former::isMadeByProduct(Value base, int depth) {
  constexpr int kLongestChain = 8; // of maps
  linalg::LinalgOp op = formOf(base);
  if (!op || stored.count(base) || demand(base) > 1 || depth == kLongestChain)
    return false;
  const auto isOne = [&](Value input) { return isMadeByProduct(baseOf(input), depth + 1); };
  return isContraction(op) || (isMap(op) && llvm::any_of(op.getDpsInputs(), isOne));
}

bool Former::canInline(Attempt &attempt, Value base, const Point &index) {
  linalg::LinalgOp op = formOf(base);
  if (!op || !isFormable(op) || copies.contains(op))
    return false;
  if (options.precision == Precision::Int8 && quantKind(op) == "dequantize")
    return true; // two operations; a copy would take twice the memory and a step more
  if (attempt.loads || (runsLong(attempt) && isMadeByProduct(base)))
    return false;
  if (options.precision == Precision::Int8 && quantKind(op) == "quantize") {
    // What kernels store that is no value of the model's has no root.
    Operation *view = attempt.root ? attempt.root.getDefiningOp() : nullptr;
    const bool isRoot = view && copies.contains(view) && // a copy of these integers alone
                        baseOf(view->getOperand(0)) == base;
    if (attempt.contracts || quantizesInput(op) ||
        (!isRoot && (attempt.loadsIntegers || !isRoundedOnce(base))))
      return false;
  }
  bool unique = demand(base) <= 1;
  if (isLookup(op)) // whole rows, in their place; a row that several take is gathered once
    return unique && attempt.lane >= 0 &&
           index.back() == Linear{0, {{unsigned(attempt.lane), 1}}} &&
           llvm::none_of(ArrayRef(index).drop_back(),
                         [&](const Linear &at) { return at.uses(unsigned(attempt.lane)); });
  if (repeatsSum(attempt, base, index))
    return false;
  if (isMap(op)) {
    unsigned cost = unsigned(op.getBlock()->getOperations().size());
    return unique && opCount(attempt) + cost <= options.chain;
  }
  if (!unique || attempt.contracts)
    return false;
  if (isContraction(op) && !isDepthwise(op))
    return coversRoot(attempt, index);
  if (reducesLanes(op))
    return combinerOf(op) == Combiner::Sum && !attempt.runs;
  if (attempt.reduces && runsOverRows(op))
    return false; // all running loops are of one reduction
  return !attempt.runs && coversRoot(attempt, index);
}

static bool isTensorConstant(Value value) {
  Operation *op = value.getDefiningOp();
  return op && (op->hasTrait<OpTrait::ConstantLike>() || isa<linalg::FillOp>(op));
}

FailureOr<Scalar> Former::pullBase(Attempt &attempt, const Resolved &at) {
  if (isTensorConstant(at.base))
    return pullConstant(attempt, at);
  auto usesLane = [&](const Linear &index) {
    return attempt.lane >= 0 && index.uses(unsigned(attempt.lane));
  };
  auto found = llvm::find_if(at.index, usesLane);
  bool isRow = attempt.lane >= 0 && found == at.index.end();
  std::optional<unsigned> lane;
  if (found != at.index.end())
    lane = unsigned(found - at.index.begin());
  if (!at.padded && !stored.count(at.base)) {
    const bool isUnscaled = attempt.unscaled && at.base.getDefiningOp() == attempt.unscaled;
    auto known = llvm::find_if(attempt.inlined, [&](const Inlined &other) {
      return !isUnscaled && other.value == at.base && other.index == at.index;
    });
    if (known != attempt.inlined.end())
      return known->scalar;
    if (canInline(attempt, at.base, at.index)) {
      FailureOr<Scalar> scalar = compute(attempt, at.base, at.index);
      if (succeeded(scalar) && !isUnscaled)
        attempt.inlined.push_back({at.base, at.index, *scalar});
      return scalar;
    }
  }
  // A value that is the same in all lanes of a row.
  if (isRow) {
    FailureOr<Scalar> repeated = loadRepeated(attempt, at);
    return succeeded(repeated) ? repeated : loadBroadcast(attempt, at);
  }
  const bool isRun = lane && at.index[*lane] == Linear{0, {{unsigned(attempt.lane), 1}}};
  if (isRun && joinedBeside.contains(attempt.root))
    if (FailureOr<Scalar> repeated = loadRepeated(attempt, at); succeeded(repeated))
      return repeated;
  const bool isPlain = lane && (at.index[*lane].terms == attempt.resultLane.terms || isRun);
  if (lane && (!isPlain || leaves(attempt, at, *lane)))
    if (auto found = stored.find(at.base);
        found == stored.end() || !found->second.front().laneSplit)
      if (FailureOr<Scalar> selected = loadSelected(attempt, at, *lane); succeeded(selected))
        return selected;
  if (attempt.shifts && lane) {
    FailureOr<Scalar> shifted = loadShifted(attempt, at, *lane);
    if (succeeded(shifted) || attempt.isShifted) // all operands, or none
      return shifted;
  }
  // Of a result of one lane: a dimension in which the kernel does not move.
  const bool isSingle = attempt.lane < 0 && !at.index.empty();
  auto isStoredAlong = [&](unsigned dim) {
    const auto known = stored.find(at.base);
    return known != stored.end() && llvm::any_of(known->second, [&](const Stored &copy) {
             return !copy.laneSplit && graph.tensors[copy.tensor].laneDim == dim;
           });
  };
  std::optional<unsigned> unmoved;
  for (unsigned dim = 0; isSingle && dim < at.index.size(); ++dim)
    if (shapeOf(at.base)[dim] == 1 && at.index[dim] == Linear() && (!unmoved || isStoredAlong(dim)))
      unmoved = dim;
  // Where all of the value would be stored so for the little that is read of it, that is rather
  // taken from where it lies.
  if (unmoved && !isStoredAlong(*unmoved) && boxRead(attempt, at).size != wholeBox(at.base).size)
    if (FailureOr<Scalar> few = loadBroadcast(attempt, at); succeeded(few))
      return few;
  if (unmoved)
    lane = unmoved;
  FailureOr<Stored> value = store(at.base, lane, /*isExact=*/isSingle);
  if (failed(value))
    return failure();
  return load(attempt, *value, at);
}

/// Whether some of the lanes that are asked for are padding.
bool Former::leaves(const Attempt &attempt, const Resolved &at, unsigned lane) const {
  auto [low, high] = attempt.space.range(at.index[lane]);
  return low < 0 || high >= shapeOf(at.base)[lane];
}

/// Immediate where no loop matters, else an fp32 (or int) operand; one that is the same along the
/// lanes is repeated.
FailureOr<Scalar> Former::pullConstant(Attempt &attempt, const Resolved &at) {
  Type element = cast<RankedTensorType>(at.base.getType()).getElementType();
  bool isFloat = isa<FloatType>(element);
  Scalar::Kind kind = isFloat                ? Scalar::Kind::F32
                      : element.isInteger(1) ? Scalar::Kind::FlagI32
                                             : Scalar::Kind::I32;
  auto immediate = [&](double value) {
    uint32_t bits = isFloat ? bitsOf(float(value)) : uint32_t(int64_t(value));
    return Scalar{attempt.build.immediate(bits), kind};
  };
  if (auto fill = at.base.getDefiningOp<linalg::FillOp>()) {
    Attribute scalar;
    if (!matchPattern(fill.getInputs()[0], m_Constant(&scalar)))
      return failure();
    if (auto real = dyn_cast<FloatAttr>(scalar))
      return immediate(real.getValueAsDouble());
    return immediate(double(cast<IntegerAttr>(scalar).getValue().getSExtValue()));
  }
  std::optional<ConstantView> view = viewConstant(at.base);
  if (!view)
    return failure();
  auto valueAt = [&](int64_t i) { return isFloat ? view->real(i) : double(view->integer(i)); };
  bool isFixed = llvm::all_of(at.index, [](const Linear &index) { return index.terms.empty(); });
  if (view->splat || (isFixed && !at.padded)) {
    int64_t linear = 0;
    for (auto [extent, index] : llvm::zip(shapeOf(at.base), at.index))
      linear = linear * extent + index.offset;
    return immediate(valueAt(view->splat ? 0 : linear));
  }
  FailureOr<ElementType> type = storedType(element);
  if (failed(type))
    return failure();
  if (isFloat)
    type = ElementType::Fp32;
  unsigned laneDim = 0;
  bool hasLane = attempt.lane < 0;
  for (auto [dim, index] : llvm::enumerate(at.index))
    if (attempt.lane >= 0 && index.uses(unsigned(attempt.lane)))
      laneDim = unsigned(dim), hasLane = true;
  unsigned tensor = constantTensor(at.base, *type, laneDim);
  Access access{tensor, {}, 0};
  for (const Linear &index : at.index)
    access.index.push_back(index.affine());
  if (at.index.empty())
    access.index.push_back(fixed(0));
  auto movesLanes = [&] {
    return attempt.lane < 0 ? at.index[laneDim] != Linear() : !keepsLanes(attempt, access);
  };
  if (at.padded || (hasLane && !at.index.empty() && movesLanes())) {
    FailureOr<Access> moved = layOutConstant(attempt, at, *type);
    if (failed(moved))
      return failure();
    access = *moved;
  } else if (!hasLane) { // repeat along a last dimension of the lanes' extent
    int64_t extent = attempt.laneExtent();
    auto [entry, isNew] = broadcasts.try_emplace({at.base.getAsOpaquePointer(), extent, tensor}, 0);
    if (isNew) {
      const Tensor source = graph.tensors[tensor];
      std::vector<int64_t> shape = source.shape;
      shape.push_back(extent);
      unsigned wide = addTensor(graph, source.name + ".rows", shape, source.type,
                                unsigned(shape.size() - 1), TensorRole::Constant);
      unsigned bytes = byteWidth(source.type);
      for (size_t i = 0; i < source.data.size(); i += bytes)
        for (int64_t lane = 0; lane < extent; ++lane)
          graph.tensors[wide].data.insert(graph.tensors[wide].data.end(),
                                          source.data.begin() + ptrdiff_t(i),
                                          source.data.begin() + ptrdiff_t(i + bytes));
      entry->second = wide;
    }
    access.tensor = entry->second;
    access.index.push_back(millrace::forms::at(unsigned(attempt.lane)));
  }
  unsigned raw = attempt.build.operand(access);
  if (isFloat || *type == ElementType::Int32)
    return Scalar{raw, kind};
  return Scalar{
      attempt.build.op(*type == ElementType::Int8 ? AluOp::CvtI8I32 : AluOp::CvtU8I32, {raw}),
      kind};
}

/// A constant in the order in which the kernel takes its elements: a dimension per loop that moves
/// its index, the lanes last; with its padding.
FailureOr<Access> Former::layOutConstant(Attempt &attempt, const Resolved &at, ElementType type) {
  constexpr int64_t kMostElements = int64_t(1) << 22;
  const Tensor source = graph.tensors[constantTensor(at.base, type, 0)];
  std::vector<unsigned> loops;
  for (unsigned loop = 0; loop < attempt.space.size(); ++loop)
    if (int(loop) != attempt.lane &&
        llvm::any_of(at.index, [&](const Linear &index) { return index.uses(loop); }))
      loops.push_back(loop);
  Access from{0, {}, 0}, access{0, {}, 0};
  for (const Linear &index : at.index)
    from.index.push_back(index.affine());
  std::vector<int64_t> shape;
  for (unsigned loop : loops) {
    shape.push_back(attempt.space.loop(loop).extent);
    access.index.push_back(millrace::forms::at(loop));
  }
  shape.push_back(attempt.laneExtent());
  access.index.push_back(attempt.lane < 0 ? fixed(0) : millrace::forms::at(unsigned(attempt.lane)));
  if (attempt.lane >= 0)
    loops.push_back(unsigned(attempt.lane));
  if (std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>()) > kMostElements)
    return failure();
  const unsigned width = byteWidth(type);
  uint32_t pad = 0;
  if (at.padded) {
    if (auto real = dyn_cast<FloatAttr>(at.pad))
      pad = bitsOf(float(real.getValueAsDouble()));
    else
      pad = uint32_t(cast<IntegerAttr>(at.pad).getValue().getSExtValue());
  }
  std::vector<uint8_t> data;
  forEachPoint(attempt.build.kernel(), loops, [&](const std::vector<int64_t> &point) {
    const int64_t element = linearOffset(source, from, point);
    const uint8_t *bytes = element < 0 ? reinterpret_cast<const uint8_t *>(&pad)
                                       : &source.data[source.splat ? 0 : size_t(element) * width];
    data.insert(data.end(), bytes, bytes + width);
    return true;
  });
  for (unsigned tensor : movedConstants) // the same for every use
    if (graph.tensors[tensor].shape == shape && graph.tensors[tensor].type == type &&
        graph.tensors[tensor].data == data) {
      access.tensor = tensor;
      return access;
    }
  access.tensor = addTensor(graph, source.name + ".moved", shape, type, unsigned(shape.size() - 1),
                            TensorRole::Constant);
  graph.tensors[access.tensor].data = std::move(data);
  movedConstants.push_back(access.tensor);
  return access;
}

/// The access to a stored value: its lane dimension may be cut in two.
FailureOr<Access> Former::access(Attempt &attempt, Stored stored, const Resolved &at) {
  const Tensor &tensor = graph.tensors[stored.tensor];
  Access result{stored.tensor, {}, 0};
  for (auto [dim, index] : llvm::enumerate(at.index)) {
    if (stored.laneSplit && dim + 1 == tensor.laneDim) {
      std::optional<Linear> part = attempt.space.divide(index, stored.laneSplit);
      if (!part)
        return failure();
      if (attempt.lane >= 0 && index.uses(unsigned(attempt.lane)))
        attempt.laneSplit = stored.laneSplit;
      Linear lane = index;
      lane.add(*part, -stored.laneSplit);
      result.index.push_back(part->affine());
      result.index.push_back(lane.affine());
      continue;
    }
    result.index.push_back(index.affine());
  }
  if (at.index.empty())
    result.index.push_back(fixed(0));
  if (at.padded) {
    double value = 0;
    if (auto real = dyn_cast<FloatAttr>(at.pad))
      value = real.getValueAsDouble();
    else
      value = double(cast<IntegerAttr>(at.pad).getValue().getSExtValue());
    result.pad = encode(tensor.type, float(value));
  }
  return result;
}

/// A lane stays where it is on its way through the VXM: loops other than the result's lanes choose
/// rows, or whole ranges of lanes, and no lane is padding.
bool Former::keepsLanes(const Attempt &attempt, const Access &access) const {
  const Tensor &tensor = graph.tensors[access.tensor];
  const AffineIndex &index = access.index[tensor.laneDim];
  for (auto [loop, step] : index.terms)
    if (attempt.space.loop(loop).kind != LoopKind::Parallel ||
        (int(loop) == attempt.lane && step != 1))
      return false;
  auto [low, high] = attempt.space.range(index);
  return low >= 0 && high < tensor.shape[tensor.laneDim];
}

FailureOr<Scalar> Former::load(Attempt &attempt, Stored value, const Resolved &at) {
  FailureOr<Access> where = access(attempt, value, at);
  if (failed(where) || !keepsLanes(attempt, *where))
    return failure();
  return loadScalar(attempt.build, *where, at.base.getType());
}

/// What lies there, as what the model's tensor of that type holds.
Scalar Former::loadScalar(KernelBuilder &build, const Access &from, Type tensor) {
  const ElementType type = graph.tensors[from.tensor].type;
  const Type element = cast<RankedTensorType>(tensor).getElementType();
  if (isa<FloatType>(element))
    return Scalar{build.load(from), Scalar::Kind::F32};
  unsigned raw = build.operand(from);
  if (type == ElementType::Int8)
    return Scalar{raw, Scalar::Kind::I8};
  if (type == ElementType::UInt8)
    raw = build.op(AluOp::CvtU8I32, {raw});
  return Scalar{raw, element.isInteger(1) ? Scalar::Kind::FlagI32 : Scalar::Kind::I32};
}

/// A value per row, brought into all lanes: by a kernel of its own.
FailureOr<Scalar> Former::loadBroadcast(Attempt &attempt, const Resolved &at) {
  Box box = boxRead(attempt, at);
  FailureOr<unsigned> tensor = storeBroadcast(at.base, attempt.laneExtent(), box);
  if (failed(tensor))
    return failure();
  FailureOr<Access> where = access(attempt, Stored{*tensor, 0}, at);
  if (failed(where))
    return failure();
  for (auto [index, begin] : llvm::zip(where->index, box.begin))
    index.offset -= begin;
  where->index.push_back(attempt.lane < 0 ? fixed(0) : millrace::forms::at(unsigned(attempt.lane)));
  return loadScalar(attempt.build, *where, at.base.getType());
}

FailureOr<Scalar> Former::compute(Attempt &attempt, Value value, const Point &index) {
  Operation *view = value.getDefiningOp();
  if (view && (slicePoints.contains(view) || copies.contains(view))) {
    FailureOr<Resolved> at = resolve(attempt, value, index, view);
    return failed(at) ? FailureOr<Scalar>(failure()) : pullBase(attempt, *at);
  }
  linalg::LinalgOp op = formOf(value);
  if (!op)
    return pull(attempt, value, index); // a copy of something in memory
  attempt.names.push_back(nameOf(value));
  if (isLookup(op))
    return computeLookup(attempt, op, index);
  if (isContraction(op) && !isDepthwise(op))
    return computeContraction(attempt, op, index);
  if (isMap(op))
    return computeMap(attempt, op, index);
  return computeReduction(attempt, op, index);
}

FailureOr<Scalar> Former::computeMap(Attempt &attempt, linalg::LinalgOp op, const Point &index) {
  if (options.precision == Precision::Int8 && quantKind(op) == "quantize" &&
      !attempt.plain.contains(op)) {
    FailureOr<Scalar> quantized = computeQuantize(attempt, op, index);
    if (failed(quantized) && !attempt.space.wanted)
      attempt.beginsAnew = attempt.plain.insert(op).second;
    return quantized;
  }
  if (op == attempt.unscaled) {
    FailureOr<Scalar> integer = pull(attempt, op->getOperand(0), index);
    if (failed(integer) || integer->kind != Scalar::Kind::I8)
      return failure();
    return Scalar{attempt.build.op(AluOp::CvtI8F32, {integer->node}), Scalar::Kind::F32};
  }
  Values known;
  Block &body = *op.getBlock();
  for (auto [i, operand] : llvm::enumerate(op.getDpsInputs())) {
    if (body.getArgument(unsigned(i)).use_empty())
      continue;
    Point at;
    for (AffineExpr expr : op.getIndexingMapsArray()[i].getResults()) {
      std::optional<Linear> part = attempt.space.evaluate(expr, index);
      if (!part)
        return failure();
      at.push_back(*part);
    }
    FailureOr<Scalar> value = pull(attempt, operand, at);
    if (failed(value))
      return failure();
    known[body.getArgument(unsigned(i))] = *value;
  }
  return bodyValue(attempt, body.getTerminator()->getOperand(0), known);
}

} // namespace millrace::forms
