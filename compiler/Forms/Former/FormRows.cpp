// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A value for each row, which operands have in all lanes.
#include "compiler/Forms/Former/Former.h"

#include "compiler/Forms/Builders.h"

using namespace mlir;

namespace millrace::forms {

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
unsigned Former::diagonal(unsigned tensor, int64_t first, int64_t blocks, int64_t block) {
  const auto [known, isNew] = diagonals.try_emplace({tensor, first, block}, 0);
  if (!isNew)
    return known->second;
  const Tensor source = graph.tensors[tensor];
  std::vector<int64_t> shape = source.shape;
  shape[source.laneDim] = blocks * block;
  shape.push_back(block);
  const ElementType type = source.type == ElementType::UInt8 ? ElementType::Int8 : source.type;
  unsigned result =
      addTensor(graph, source.name + ".diagonal", shape, type, unsigned(shape.size() - 1));
  KernelBuilder build(graph);
  Access from{tensor, {}, 0}, to{result, {}, 0};
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
  unsigned onDiagonal = build.load({selection(block, activation()), {row, lane}, 0});
  build.store(build.op(AluOp::SelectF32, {onDiagonal, build.load(from), build.constant(0)}), to);
  build.finish(source.name + ".diagonal");
  return diagonals[{tensor, first, block}] = result;
}

int64_t partOf(int64_t width, int64_t vector) {
  for (int64_t part = std::min(width, vector); 2 * part >= std::min(width, vector); --part)
    if (width % part == 0)
      return part;
  return vector;
}

/// Fills `rows`, a row for each element of the value, from where that lies along lanes: a diagonal
/// of rows times ones, vector by vector.
LogicalResult Former::spreadLanes(Value value, unsigned rows) {
  FailureOr<Stored> source = store(value, std::nullopt);
  if (failed(source) || source->laneSplit)
    return failure();
  const Tensor from = graph.tensors[source->tensor];
  const bool isFlag = from.type == ElementType::UInt8; // its diagonal is int8
  const SmallVector<unsigned, 3> parts =
      isFlag ? SmallVector<unsigned, 3>{source->tensor} : partsToSum(source->tensor);
  if (parts.empty()) // the MXM makes no products of them
    return failure();
  const int64_t width = from.shape[from.laneDim], extent = graph.tensors[rows].shape.back();
  const int64_t part = partOf(width, options.lanes);
  const bool isFloat = isa<FloatType>(cast<RankedTensorType>(value.getType()).getElementType());
  const auto spread = [&](int64_t first, int64_t blocks, int64_t block) {
    KernelBuilder build(graph);
    Access a{0, {}, 0}, to{rows, {}, 0};
    const auto loopOf = [&](int64_t size) { return size > 1 ? at(build.loop(size)) : fixed(0); };
    for (auto [dim, size] : llvm::enumerate(from.shape)) {
      to.index.push_back(loopOf(dim == from.laneDim ? blocks * block : size));
      a.index.push_back(to.index.back());
      if (dim == from.laneDim)
        to.index.back().offset = first;
    }
    to.index.push_back(loopOf(extent));
    const AffineIndex k = at(build.loop(block, LoopKind::Contracted));
    a.index.push_back(k);
    for (unsigned part : parts) {
      a.tensor = diagonal(part, first, blocks, block);
      build.term(
          a, {splat({extent, block}, graph.tensors[a.tensor].type, 1), {to.index.back(), k}, 0}, 0);
    }
    storeScalar(build, {build.accumulator(), isFloat ? Scalar::Kind::F32 : Scalar::Kind::I32}, to,
                value.getType());
    build.finish(nameOf(value));
  };
  spread(0, width / part, part);
  if (const int64_t rest = width % part)
    spread(width - rest, 1, rest);
  return success();
}

/// A value per row, in `extent` lanes: the value's shape with one more dimension.
FailureOr<unsigned> Former::storeBroadcast(Value value, int64_t extent) {
  auto key = std::make_tuple(value.getAsOpaquePointer(), extent, ~0u);
  if (auto found = broadcasts.find(key); found != broadcasts.end())
    return found->second;
  std::vector<int64_t> shape = tensorShape(value);
  shape.push_back(extent);
  unsigned lane = unsigned(shape.size() - 1);
  bool isScalar = shapeOf(value).empty();
  linalg::LinalgOp op = formOf(value);
  bool isSum =
      op && !isMap(op) && !isContraction(op) && reducesLanes(op) && combinerOf(op) == Combiner::Sum;
  FailureOr<ElementType> type = memoryType(value);
  if (failed(type))
    return failure();
  const bool isWide = *type == ElementType::Fp32; // of which the MXM makes no products
  if (auto argument = dyn_cast<BlockArgument>(value); argument && isWide)
    return broadcasts[key] = storeRepeated(argument, extent, *type);
  bool isRowMap = op && isMap(op) && isFormable(op) && (!stored.count(value) || isWide);
  // The maximum of scores comes along lanes from their transposed copy.
  bool isMax = op && !isMap(op) && combinerOf(op) == Combiner::Max && reducesLanes(op) &&
               !isRunTimeScores(reducedInput(op));
  const Type element = cast<RankedTensorType>(value.getType()).getElementType();
  const bool isFloat = isa<FloatType>(element);
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
    if (isScalar)
      index.clear();
    return compute(attempt, value, index);
  };
  if ((!isSum && !isRowMap && !isMax) ||
      failed(emitKernel(value, shape, lane, {}, inRows, toResult)))
    if (failed(spreadLanes(value, tensor)))
      return failure();
  broadcasts[key] = tensor;
  return tensor;
}

} // namespace millrace::forms
