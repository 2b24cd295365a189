// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values in memory: each is written by a kernel of its own, formed when the first consumer asks for
// it.
#include "compiler/Forms/Former/Former.h"

#include "arch/isa/semantics/Losses.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/LargeStack.h"
#include "compiler/Support/OnnxValue.h"

#include "llvm/ADT/ScopeExit.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace millrace::forms {

using namespace mlir;

std::string nameOf(Value value) {
  Location location = value.getLoc();
  if (auto fused = dyn_cast<FusedLoc>(location))
    location = fused.getLocations().front();
  if (auto name = dyn_cast<NameLoc>(location))
    return name.getName().str();
  return "value";
}

FailureOr<ElementType> Former::storedType(Type type) const {
  if (isa<FloatType>(type))
    return activation();
  if (type.isInteger(8))
    return ElementType::Int8;
  if (type.isInteger(1))
    return ElementType::UInt8;
  if (type.isInteger(16) || type.isInteger(32) || type.isInteger(64))
    return ElementType::Int32;
  return failure();
}

/// Whether a quantising or dequantising map takes the value as its scale (or zero point), as it is
/// or through maps of it alone.
bool Former::isScale(Value value) {
  SetVector<Operation *> users;
  collectUsers(value, users);
  return llvm::any_of(users, [&](Operation *user) {
    auto map = dyn_cast_or_null<linalg::LinalgOp>(user);
    if (!map || user == value.getDefiningOp() || user->getNumResults() != 1 || !isMap(map))
      return false;
    const auto first = user->getAttrOfType<IntegerAttr>(kScales);
    if (first || !quantKind(user).empty())
      for (unsigned i = first ? unsigned(first.getInt()) : 1; i < map.getNumDpsInputs(); ++i)
        if (baseOf(user->getOperand(i)) == value)
          return true;
    return map.getNumDpsInputs() == 1 && isScale(user->getResult(0));
  });
}

bool isKept(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return function && function.getArgAttr(argument.getArgNumber(), kKeepFp32);
  }
  return value.getDefiningOp()->hasAttr(kKeepFp32);
}

/// The arguments of the body that a scalar is computed of.
static void collectArguments(Value scalar, SmallPtrSetImpl<Value> &arguments) {
  if (Operation *op = scalar.getDefiningOp())
    for (Value operand : op->getOperands())
      collectArguments(operand, arguments);
  else
    arguments.insert(scalar);
}

/// Whether a scalar may be the argument as it is: selected, or the greatest or the least.
static bool passesOn(Value scalar, Value argument) {
  if (scalar == argument)
    return true;
  Operation *op = scalar.getDefiningOp();
  if (auto select = dyn_cast_or_null<arith::SelectOp>(op))
    return passesOn(select.getTrueValue(), argument) || passesOn(select.getFalseValue(), argument);
  return isa_and_nonnull<arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp, arith::MinNumFOp>(
             op) &&
         llvm::any_of(op->getOperands(),
                      [&](Value operand) { return passesOn(operand, argument); });
}

/// Whether the value, or an element of it that is chosen, is compared with another one that is
/// known at run time alone: then its last bits decide. The MXM multiplies no fp32, so that what
/// products take is rounded all the same.
bool Former::isCompared(Value value, int depth) {
  constexpr int kLongestChain = 8; // of choices
  SetVector<Operation *> users;
  collectUsers(value, users);
  bool compared = false;
  for (Operation *user : users) {
    if (auto concat = dyn_cast_or_null<tensor::ConcatOp>(user))
      compared |= depth < kLongestChain && isCompared(concat.getResult(), depth + 1);
    auto op = dyn_cast_or_null<linalg::LinalgOp>(user);
    if (!op || user == value.getDefiningOp())
      continue;
    if (isContraction(op))
      return false;
    const Value yielded = op.getBlock()->getTerminator()->getOperand(0);
    for (OpOperand *input : op.getDpsInputOperands())
      compared |= depth < kLongestChain && !compared && baseOf(input->get()) == value &&
                  passesOn(yielded, op.getMatchingBlockArgument(input)) &&
                  isCompared(user->getResult(0), depth + 1);
    op.getBlock()->walk([&](arith::CmpFOp compare) {
      SmallPtrSet<Value, 4> sides[2];
      collectArguments(compare.getLhs(), sides[0]);
      collectArguments(compare.getRhs(), sides[1]);
      bool takes = false, varies[2] = {false, false};
      for (OpOperand *input : op.getDpsInputOperands())
        for (int side : {0, 1})
          if (const Value base = baseOf(input->get());
              sides[side].contains(op.getMatchingBlockArgument(input)) && !isConstantValue(base)) {
            varies[side] = true;
            takes |= base == value;
          }
      compared |= takes && varies[0] && varies[1] && compare.getLhs() != compare.getRhs();
    });
  }
  return compared;
}

/// As which type the value lies in memory. Scales keep fp32: what they scale is 8 bits in the end,
/// and an error of 2^-11 of 255 steps would turn roundings. So do indices and angles that 16 bits
/// would round, and divisors that they would round to 0.
FailureOr<ElementType> Former::memoryType(Value value) {
  const Type element = cast<RankedTensorType>(value.getType()).getElementType();
  if (isa<FloatType>(element) && (wide.contains(value) || isScale(value) ||
                                  ranges.needsFp32(value) || ranges.mayVanish(value) ||
                                  isKept(value) || isCompared(value)))
    return ElementType::Fp32;
  // The lowest fp32 takes in whatever it is added to; the lowest fp16 does not.
  if (element.isF32() && activation() == ElementType::Fp16 && isa<BlockArgument>(value) &&
      isAddedToScores(value))
    return ElementType::Fp32;
  return storedType(element);
}

unsigned Former::newTensor(Value value, ArrayRef<int64_t> shape, unsigned lane,
                           std::optional<ElementType> type) {
  if (!type)
    type = *memoryType(value);
  unsigned tensor = addTensor(graph, nameOf(value),
                              shape.empty() ? std::vector<int64_t>{1} : shape.vec(), *type, lane);
  noteRange(tensor, value);
  return tensor;
}

/// Says, once per constant, which of its numbers the type cannot hold.
void Former::noteBeyond(Value constant, ElementType type, const std::vector<float> &values) {
  const auto end = semantics::rangeEndOf(narrowFromF32(type));
  if (!end)
    return;
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), 4 * values.size());
  const size_t beyond = semantics::countBeyond(*end, bits.data(), bits.size());
  if (beyond && noted.insert(constant).second)
    remarks.push_back((Twine("constant '") + nameOf(constant) + "': " + Twine(beyond) + " of " +
                       Twine(values.size()) + " elements are beyond " + end->format +
                       " and lie at its ends")
                          .str());
}

unsigned Former::constantTensor(Value constant, ElementType type, unsigned lane) {
  auto [entry, isNew] =
      constants.try_emplace({constant.getAsOpaquePointer(), int64_t(type), lane}, 0);
  if (!isNew)
    return entry->second;
  std::optional<ConstantView> view = viewConstant(constant);
  std::vector<int64_t> shape = tensorShape(constant);
  const std::vector<float> values = view->floats();
  noteBeyond(constant, type, values);
  unsigned tensor = addConstant(graph, nameOf(constant), shape, type, lane, values);
  if (type == ElementType::Int32) { // integers do not survive fp32
    for (size_t i = 0; i < values.size(); ++i) {
      auto bits = int32_t(view->integer(int64_t(i)));
      std::memcpy(&graph.tensors[tensor].data[4 * i], &bits, 4);
    }
  }
  graph.tensors[tensor].splat = view->splat;
  return entry->second = tensor;
}

unsigned Former::splat(ArrayRef<int64_t> shape, ElementType type, float value) {
  std::vector<int64_t> key = {int64_t(type), int64_t(bitsOf(value))};
  key.insert(key.end(), shape.begin(), shape.end());
  auto [entry, isNew] = splats.try_emplace(key, 0);
  if (isNew)
    entry->second = addSplat(graph, "ones", shape.vec(), type, 1, value);
  return entry->second;
}

/// Forms one kernel over `shape`, cutting loops until every index is affine.
LogicalResult
Former::emitKernel(Value named, ArrayRef<int64_t> shape, unsigned laneDim, Splits splits,
                   Compute compute,
                   llvm::function_ref<void(Attempt &, const Point &, Scalar)> finish) {
  bool frugal = false, storesIntegers = false;
  const Splits asked = splits; // what is stored needs none of the cuts that it took to inline it
  ragged.reset();
  llvm::SmallPtrSet<Operation *, 2> plain;
  constexpr int kTries = 12;
  for (int i = 0; i < kTries; ++i) {
    Attempt attempt(graph, splits);
    attempt.loads = frugal;
    attempt.loadsIntegers = storesIntegers;
    attempt.plain = plain;
    Point point;
    for (unsigned dim = 0; dim < shape.size(); ++dim) {
      point.push_back(attempt.space.dimension({nullptr, dim}, shape[dim], LoopKind::Parallel));
      if (dim == laneDim && !point.back().terms.empty())
        attempt.lane = int(point.back().terms.rbegin()->first); // the innermost part
      if (dim == laneDim)
        attempt.resultLane = point.back();
    }
    FailureOr<Scalar> value = compute(attempt, point);
    // Of what is quantised, operations that were folded into others do not count.
    const auto operations = [&] {
      return value->kind == Scalar::Kind::I8 ? opCountOf(attempt, value->node) : opCount(attempt);
    };
    const bool isTooLong = succeeded(value) && !frugal && operations() >= options.chain;
    if (isTooLong) { // what the kernel computes on its way is stored instead: integers, then all
      frugal = std::exchange(storesIntegers, true) || options.precision != Precision::Int8;
      plain.clear();
      splits = asked;
      continue;
    }
    ragged = succeeded(value) ? std::nullopt : attempt.space.ragged;
    if (succeeded(value)) {
      finish(attempt, point, *value);
      std::string provenance;
      for (const std::string &name : attempt.names)
        if (provenance.find(name) == std::string::npos)
          provenance += (provenance.empty() ? "" : " ") + name;
      if (attempt.build.kernel().loops.empty())
        attempt.build.loop(1);
      attempt.build.finish(nameOf(named), provenance);
      return success();
    }
    if (attempt.space.wanted) {
      splits = *attempt.space.wanted;
    } else if (attempt.beginsAnew) {
      plain = attempt.plain;
    } else if (frugal) {
      return failure();
    } else {
      frugal = true; // each on its own, what is asked for together may be possible
      plain.clear();
      splits = asked;
    }
  }
  return failure();
}

/// Cuts the lane dimension into parts of `size` lanes.
static void splitLanes(Tensor &tensor, int64_t size) {
  tensor.shape.insert(tensor.shape.begin() + tensor.laneDim, tensor.shape[tensor.laneDim] / size);
  tensor.shape[++tensor.laneDim] = size;
}

/// The host sees the parts of a cut lane dimension as one dimension again.
static void joinLanesOnHost(Tensor &tensor) {
  for (unsigned dim = 0; dim < tensor.shape.size(); ++dim) {
    unsigned hostDim = dim < tensor.laneDim ? dim : dim - 1;
    int64_t step = dim + 1 == tensor.laneDim ? tensor.shape[tensor.laneDim] : 1;
    tensor.hostLoops.push_back({tensor.shape[dim], dim, 1, hostDim, step});
  }
  tensor.hostStart.assign(tensor.shape.size() - 1, 0);
}

/// Stores a value of any kind as the tensor's type. `model`: the type that the model's tensor has.
/// What overflows is infinite only where the model's type says so.
void Former::storeScalar(KernelBuilder &build, Scalar value, const Access &to, Type model) {
  const ElementType type = graph.tensors[to.tensor].type;
  const Type element = getElementTypeOrSelf(model);
  switch (value.kind) {
  case Scalar::Kind::F32:
    if ((element.isF16() && type == ElementType::Fp16) ||
        (element.isBF16() && type == ElementType::Bf16))
      build.storeBits(build.op(overflowing(type), {value.node}), to);
    else
      build.store(value.node, to);
    return;
  case Scalar::Kind::I8:
  case Scalar::Kind::Raw:
    build.storeBits(value.node, to);
    return;
  case Scalar::Kind::FlagF32:
    value.node = build.op(AluOp::CvtF32I32, {value.node});
    break;
  case Scalar::Kind::I32:
  case Scalar::Kind::FlagI32:
    break;
  }
  if (graph.tensors[to.tensor].type == ElementType::Int8)
    value.node = build.op(AluOp::CvtI32I8, {value.node});
  build.storeBits(value.node, to);
}

/// A point of a value whose box begins at `begin`.
static Point pointIn(ArrayRef<int64_t> begin, Point point) {
  for (auto [at, first] : llvm::zip_equal(point, begin))
    at.offset += first;
  return point;
}

/// Writes a box of the value into `tensor` at `offsets`, by one kernel.
LogicalResult Former::emitBox(Value root, const Box &box, unsigned tensor,
                              ArrayRef<int64_t> offsets, unsigned lane, int64_t &laneSplit,
                              bool isStored) {
  Splits splits;
  ArrayRef<int64_t> shape = box.size;
  if (laneSplit)
    splits[{nullptr, lane}] = {shape[lane] / laneSplit, laneSplit};
  bool isScalar = shapeOf(root).empty();
  return emitKernel(
      root, shape, lane, splits,
      [&](Attempt &attempt, const Point &point) {
        // What is stored already is written once more with other lanes.
        attempt.recomputes = stored.count(root) && !stored[root].empty();
        attempt.root = root;
        attempt.shifts = !offsets.empty() && offsets[lane] != 0;
        const Point index = isScalar ? Point() : pointIn(box.begin, point);
        return isStored ? pull(attempt, root, index) : compute(attempt, root, index);
      },
      [&](Attempt &attempt, const Point &point, Scalar value) {
        Access to{tensor, {}, 0};
        if (attempt.laneSplit && !laneSplit && offsets.empty()) {
          laneSplit = attempt.laneSplit;
          splitLanes(graph.tensors[tensor], laneSplit);
          if (graph.tensors[tensor].role == TensorRole::Output)
            joinLanesOnHost(graph.tensors[tensor]);
        }
        for (auto [dim, at] : llvm::enumerate(pointIn(box.begin, point))) {
          Linear index = at;
          index.offset += offsets.empty() ? 0 : offsets[dim];
          if (laneSplit && dim == lane) {
            Linear part = *attempt.space.divide(index, laneSplit);
            to.index.push_back(part.affine());
            index.add(part, -laneSplit);
          }
          to.index.push_back(index.affine());
        }
        storeScalar(attempt.build, value, to, root.getType());
      });
}

/// The views that the operation takes, or takes padded.
SmallVector<Operation *> Former::viewsBelow(Operation *op) const {
  SmallVector<Operation *> views;
  auto form = dyn_cast<linalg::LinalgOp>(op); // not a view itself
  if (!form)
    return views;
  for (Value operand : form.getDpsInputs()) {
    Operation *source = operand.getDefiningOp();
    while (isa_and_nonnull<tensor::PadOp>(source))
      source = source->getOperand(0).getDefiningOp();
    if (source && isView(source) && !isConstantValue(baseOf(source->getResult(0))))
      views.push_back(source);
  }
  return views;
}

FailureOr<Stored> Former::store(Value base, std::optional<unsigned> lane, bool isExact) {
  if (isTooDeep || isStackShort()) {
    if (!isTooDeep)
      function.emitError("its longest chain of operations is too long for the stack, of which the "
                         "system grants too little; raise the limit of address space (ulimit -v)");
    isTooDeep = true;
    return failure();
  }
  const SmallVector<Stored> known = stored.lookup(base);
  for (Stored value : known) {
    const Tensor &tensor = graph.tensors[value.tensor];
    unsigned dim = value.laneSplit ? tensor.laneDim - 1 : tensor.laneDim;
    if (!lane || dim == *lane || (shapeOf(base)[*lane] == 1 && !isExact))
      return value;
  }
  const bool isWanted = lane && (isExact || shapeOf(base).empty() || shapeOf(base)[*lane] > 1);
  const unsigned wanted = isWanted ? *lane : preferredLane(base);
  const auto place = std::make_pair(base, wanted);
  if (!storing.insert(place).second)
    return failure(); // what another way to make it asked for
  const auto done = llvm::scope_exit([&] { storing.erase(place); });
  Operation *op = base.getDefiningOp();
  FailureOr<Stored> result = failure();
  if (!op)
    result = storeArgument(base, wanted); // the host writes one copy for each layout
  else if (op->hasTrait<OpTrait::ConstantLike>())
    result = Stored{
        constantTensor(base, *storedType(cast<RankedTensorType>(base.getType()).getElementType()),
                       wanted),
        0};
  else if (auto concat = dyn_cast<tensor::ConcatOp>(op);
           concat && !hosted.contains(base) && !op->hasAttr(kDevice)) {
    result = storeConcat(concat, wanted);
    if (failed(result))
      result = known.empty() ? storeByHost(base, wanted) : storeTransposed(base, known[0], wanted);
  } else if (FailureOr<Stored> shown = storeShown(base, wanted); succeeded(shown))
    result = shown;
  else if (FailureOr<Stored> input = storeQuantizedInput(base, wanted); succeeded(input))
    result = input;
  else if (isLookup(op) && known.empty() && wanted != preferredLane(base)) {
    result = storePreferred(base, wanted); // gathered by rows, then turned
  } else if (const std::optional<unsigned> sum = laneOfSum(base, wanted),
             turned = sum ? sum : laneOfScores(base, wanted),
             natural = turned ? turned : laneBeforeTurning(base, wanted);
             natural && known.empty() && !hosted.contains(base) &&
             !storing.contains({base, *natural})) {
    if (FailureOr<Stored> made = store(base, natural, /*isExact=*/true); succeeded(made))
      result = storeTransposed(base, *made, wanted);
    if (failed(result))
      result = storeByHost(base, wanted);
  } else if (const std::optional<unsigned> uncut = laneBesideJoined(base, wanted)) {
    if (FailureOr<Stored> made = store(base, uncut, /*isExact=*/true); succeeded(made))
      result = storeTransposed(base, *made, wanted);
    if (failed(result))
      result = storeByHost(base, wanted);
  } else if (FailureOr<Stored> turned =
                 known.empty() ? storeAlongMaxima(base, wanted) : FailureOr<Stored>(failure());
             succeeded(turned)) {
    result = turned;
  } else if (FailureOr<Stored> turned =
                 !known.empty() &&
                         (options.sparesRoom() ? holdsWeights(base)
                                               : isTurnedSooner(base, known[0], wanted) ||
                                                     laneOfScores(base, wanted))
                     ? storeTransposed(base, known[0], wanted)
                     : FailureOr<Stored>(failure());
             succeeded(turned)) {
    result = turned; // computed once more, its weights would be stored in another way, too
  } else if (isFormable(op) && !hosted.contains(base)) {
    ArrayRef<int64_t> shape = shapeOf(base);
    int64_t split = 0;
    if (meetsMaximum(base, wanted) && shape[wanted] > options.lanes &&
        !isMultiplied(base, /*two=*/true)) { // the other would have to be split as well
      int64_t part = options.lanes;
      while (shape[wanted] % part != 0)
        --part;
      split = part < options.lanes / 4 ? 0 : part; // vectors of few lanes are many
    }
    unsigned tensor = newTensor(base, tensorShape(base), wanted);
    if (split)
      splitLanes(graph.tensors[tensor], split);
    if (succeeded(emit(base, tensor, {}, wanted, split)))
      result = Stored{tensor, split};
    else if (!known.empty())
      result = storeTransposed(base, known[0], wanted);
    else if (FailureOr<Stored> made = storePreferred(base, wanted); succeeded(made))
      result = made;
    else if (const SmallVector<Operation *> views = viewsBelow(op); !views.empty()) {
      for (Operation *view : views)
        setCopied(view); // each as it shows
      const unsigned whole = newTensor(base, tensorShape(base), wanted);
      split = 0;
      if (succeeded(emit(base, whole, {}, wanted, split))) {
        result = Stored{whole, split};
      } else {
        for (Operation *view : views)
          setCopied(view, false);
        result = storeByHost(base, wanted);
      }
    } else
      result = storeByHost(base, wanted);
  } else {
    result = known.empty() ? storeByHost(base, wanted) : storeTransposed(base, known[0], wanted);
  }
  if (failed(result))
    return failure();
  if (op && !result->laneSplit)
    if (auto name = op->getAttrOfType<StringAttr>(kOnnxValue))
      graph.tensors[result->tensor].value = name.str();
  noteStored(base, *result);
  return *result;
}

FailureOr<Stored> Former::storeArgument(Value base, unsigned lane) {
  auto argument = cast<BlockArgument>(base);
  FailureOr<ElementType> type = memoryType(base);
  if (failed(type))
    return failure();
  unsigned tensor = addTensor(graph, "input", tensorShape(base), *type, lane, TensorRole::Input);
  nameArgument(graph.tensors[tensor], argument);
  noteRange(tensor, base);
  return Stored{tensor, 0};
}

/// The host's side of an input.
void Former::nameArgument(Tensor &tensor, BlockArgument argument) {
  tensor.name = tensor.hostName = "input" + std::to_string(argument.getArgNumber());
  if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "onnx.name"))
    tensor.name = tensor.hostName = name.str();
  if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), "onnx.type"))
    tensor.hostType = name.str();
  tensor.hostShape.assign(shapeOf(argument).begin(), shapeOf(argument).end());
}

/// Whether a kernel that computes the value, and what is for it alone, sums or reduces something;
/// products count with `orProduct`.
bool Former::computesSum(Value base, bool orProduct, int depth) {
  constexpr int kLongestChain = 8; // of maps
  linalg::LinalgOp op = formOf(base);
  if (!op || !isMap(op))
    return op && (orProduct || !isContraction(op));
  return depth < kLongestChain && llvm::any_of(op.getDpsInputs(), [&](Value input) {
           const Value source = baseOf(input);
           return demand(source) == 1 && computesSum(source, orProduct, depth + 1);
         });
}

bool isMoved(Value value) {
  SetVector<Value> values; // each once
  values.insert(value);
  for (size_t n = 0; n < values.size(); ++n) {
    Operation *op = values[n].getDefiningOp();
    auto map = dyn_cast_or_null<linalg::GenericOp>(op);
    if (!isa<FloatType>(getElementTypeOrSelf(values[n].getType())))
      return false;
    if (!op || op->hasTrait<OpTrait::ConstantLike>())
      continue;
    if (isa<tensor::ConcatOp>(op))
      values.insert(op->operand_begin(), op->operand_end());
    else if (isa<tensor::ExtractSliceOp, tensor::PadOp, tensor::CollapseShapeOp,
                 tensor::ExpandShapeOp, linalg::TransposeOp>(op))
      values.insert(op->getOperand(0));
    else if (map && isMap(map) && isa<BlockArgument>(map.getBody()->getTerminator()->getOperand(0)))
      for (Value input : map.getDpsInputs())
        values.insert(input);
    else
      return false;
  }
  return true;
}

/// Whether the host puts parts of arguments together, as it writes them: rows of few lanes would be
/// most of what they take of the memory, and it writes what it gives as its readers take it.
static bool isPutTogetherByHost(tensor::ConcatOp op, unsigned lane, int64_t lanes) {
  constexpr int64_t kFew = 16, kMany = 256; // how often lanes fit into a vector, rows
  const ArrayRef<int64_t> shape = shapeOf(op.getResult());
  return kFew * shape[lane] <= lanes && ShapedType::getNumElements(shape) / shape[lane] >= kMany &&
         isMoved(op.getResult());
}

/// Whether kernels write the tensor's lanes in several pieces, each much shorter than a vector.
static bool isInShortPieces(const KernelGraph &graph, unsigned tensor, int64_t vector) {
  constexpr int64_t kFew = 16, kMany = 4; // how often a piece fits into a vector, pieces
  const Tensor &its = graph.tensors[tensor];
  int64_t longest = 0;
  for (const Kernel &kernel : graph.kernels)
    for (const Result &r : kernel.results)
      if (r.access.tensor == tensor) {
        int64_t run = 1;
        for (const auto &[loop, step] : r.access.index[its.laneDim].terms)
          run = step == 1 ? std::max(run, kernel.loops[loop].extent) : run;
        longest = std::max(longest, run);
      }
  const int64_t extent = its.shape[its.laneDim];
  return longest > 0 && kFew * longest <= vector && kMany * longest <= extent && extent <= vector;
}

/// What is multiplied meets other lanes in as many pieces as it is written in: a copy, by a product
/// with an identity, that is written whole.
std::optional<unsigned> Former::joinedPieces(unsigned tensor) {
  const std::optional<Parts> parts =
      isInShortPieces(graph, tensor, options.lanes) ? partsToSelect(tensor) : std::nullopt;
  if (!parts)
    return std::nullopt;
  const Tensor from = graph.tensors[tensor];
  const unsigned whole =
      addTensor(graph, from.name + ".whole", from.shape, from.type, from.laneDim);
  graph.tensors[whole].unbounded = from.unbounded;
  KernelBuilder build(graph);
  Access x{tensor, {}, 0}, to{whole, {}, 0};
  for (const int64_t extent : from.shape) {
    x.index.push_back(at(build.loop(extent)));
    to.index.push_back(x.index.back());
  }
  const int64_t extent = from.shape[from.laneDim];
  const AffineIndex along = at(build.loop(extent, LoopKind::Contracted)),
                    lane = to.index[from.laneDim];
  x.index[from.laneDim] = along;
  for (auto [part, factor] : parts->terms) {
    x.tensor = part;
    build.term(x, {selection(extent, graph.tensors[part].type, factor), {lane, along}, 0}, 0);
  }
  storeJoined(build, *parts, to);
  build.finish(from.name + ".whole");
  return whole;
}

/// Parts write one tensor; sums that have other consumers, and what has no kernel, are copied into
/// it.
FailureOr<Stored> Former::storeConcat(tensor::ConcatOp op, unsigned lane) {
  if (isPutTogetherByHost(op, lane, options.lanes))
    return storeByHost(op.getResult(), lane);
  unsigned tensor = newTensor(op.getResult(), shapeOf(op.getResult()), lane);
  SmallVector<int64_t> offsets(shapeOf(op.getResult()).size(), 0);
  int64_t split = 0; // parts keep whole lanes
  for (Value part : op.getInputs())
    storeBehindRagged(part);
  for (Value part : op.getInputs()) {
    linalg::LinalgOp form = formOf(part);
    const bool isShared = (baseOf(part) == part && demand(part) > 1 && computesSum(part)) ||
                          (form && quantizesInput(form));
    const bool isStored = turnsAfterwards(part, baseOf(part), lane) ? storeTurned(part, lane)
                          : isShared                                ? succeeded(store(part, lane))
                                                                    : false;
    if (failed(emit(part, tensor, offsets, lane, split, isStored)) &&
        (!isStored || failed(emit(part, tensor, offsets, lane, split)))) {
      const Value base = baseOf(part);
      const bool wasStored = stored.count(base);
      if (!wasStored && failed(store(base, std::nullopt)))
        return failure();
      if ((wasStored || failed(emit(part, tensor, offsets, lane, split))) &&
          failed(emit(part, tensor, offsets, lane, split, /*isStored=*/true)))
        return failure();
    }
    offsets[op.getDim()] += shapeOf(part)[op.getDim()];
  }
  if (isMultiplied(op.getResult()))
    tensor = joinedPieces(tensor).value_or(tensor);
  return Stored{tensor, 0};
}

} // namespace millrace::forms
