// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads at positions that are data. All are maps whose body reads the data tensor by
// tensor.extract.
#include "compiler/Import/Onnx/Gather.h"

#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/Steps.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// An index tensor's element as a position in a dimension of `extent`; negative ones count from the
/// end.
Value position(Scalars &s, Value index, int64_t extent) {
  Arithmetic a(s);
  Value wrapped = a.choose(a.compare(Arithmetic::Order::Less, index, a.like(index, 0)),
                           a.add(index, a.like(index, static_cast<double>(extent))), index);
  return arith::IndexCastOp::create(s, s.getIndexType(), wrapped);
}

} // namespace

Value gather(TensorBuilder &t, Value data, Value indices, int64_t axis) {
  Shape dataShape(shapeOf(data)), indexShape(shapeOf(indices));
  auto indexRank = static_cast<int64_t>(indexShape.size()),
       dataRank = static_cast<int64_t>(dataShape.size());
  Shape shape(dataShape.begin(), dataShape.begin() + axis);
  shape.append(indexShape);
  shape.append(dataShape.begin() + axis + 1, dataShape.end());
  SmallVector<unsigned> indexLoops;
  for (int64_t i = 0; i < indexRank; ++i)
    indexLoops.push_back(static_cast<unsigned>(axis + i));
  AffineMap map = t.select(static_cast<unsigned>(shape.size()), indexLoops);
  return t.map(shape, {indices}, {map}, elementTypeOf(data), [&](Scalars &s, ValueRange x) {
    SmallVector<Value> at;
    for (int64_t i = 0; i < dataRank; ++i) {
      if (i == axis)
        at.push_back(position(s, x[0], dataShape[axis]));
      else
        at.push_back(linalg::IndexOp::create(s, i < axis ? i : i + indexRank - 1));
    }
    return tensor::ExtractOp::create(s, data, at);
  });
}

namespace {

/// An error if the indices, input 1, are constant and one of them lies outside of `extent`, or if
/// nothing at all lies inside.
Status checkIndices(NodeImporter &node, int64_t extent) {
  if (extent == 0 && productOf(node.shape(1)) > 0)
    return node.error("looks up a dimension that has no elements");
  std::optional<Shape> indices = node.constantIntegers(1);
  for (int64_t index : indices.value_or(Shape()))
    if (!normalAxis(index, extent))
      return node.error("its index " + std::to_string(index) + " lies outside of extent " +
                        std::to_string(extent) + "; give " + std::to_string(-extent) + " to " +
                        std::to_string(extent - 1));
  return Success{};
}

/// `data` at constant `positions` along `axis`, which `shape` replaces: a slice, shown with steps,
/// backwards or as windows; or few slices, one after the other. Nothing for others.
std::optional<Value> sliceAt(TensorBuilder &t, Value data, int64_t axis, ArrayRef<int64_t> shape,
                             ArrayRef<int64_t> positions) {
  const Shape extents(shapeOf(data));
  Shape before(extents.begin(), extents.begin() + axis),
      after(extents.begin() + axis + 1, extents.end());
  auto around = [&](ArrayRef<int64_t> middle) {
    Shape all(before);
    all.append(middle.begin(), middle.end());
    all.append(after);
    return all;
  };
  auto take = [&](const Steps &steps, ArrayRef<int64_t> middle) {
    const Taken taken = takenBy(steps, middle, static_cast<unsigned>(axis), t.ops());
    Shape offsets(extents.size(), 0), sizes(extents), strides(extents.size(), 1);
    offsets[axis] = taken.offset, sizes[axis] = taken.size, strides[axis] = taken.stride;
    Value slice = t.slice(data, offsets, sizes, strides);
    const Shape result = around(middle);
    if (taken.isForward)
      return t.reshape(slice, result);
    SmallVector<AffineExpr> at;
    for (int64_t d = 0; d < static_cast<int64_t>(extents.size()); ++d) {
      const int64_t loop = d < axis ? d : d + static_cast<int64_t>(middle.size()) - 1;
      at.push_back(d == axis ? taken.at : t.ops().getAffineDimExpr(static_cast<unsigned>(loop)));
    }
    auto map = AffineMap::get(static_cast<unsigned>(result.size()), 0, at, t.ops().getContext());
    return t.map(result, {slice}, {map}, elementTypeOf(data),
                 [](Scalars &, ValueRange x) { return x[0]; });
  };
  const auto count = static_cast<int64_t>(positions.size());
  if (auto flat = stepsOf({count}, [&](int64_t i) { return positions[i]; }))
    return t.reshape(take(*flat, {count}), around(shape));
  if (auto steps = stepsOf(shape, [&](int64_t i) { return positions[i]; }))
    return take(*steps, shape);
  SmallVector<Value> parts;
  const std::optional<SmallVector<Run>> runs = fewRuns(positions);
  if (!runs)
    return std::nullopt;
  for (const Run &run : *runs)
    parts.push_back(take({run.first, {run.step}}, {run.size}));
  return t.reshape(t.concat(parts, axis), around(shape));
}

/// The indices, input 1, if they are constant and the data is not, as positions in `extent`.
/// Constant data stays a look-up, whose result is a constant, too.
std::optional<Shape> constantPositions(NodeImporter &node, int64_t extent) {
  std::optional<Shape> positions = node.constantIntegers(1);
  if (!positions || positions->empty() || matchPattern(node.in(0), m_Constant()))
    return std::nullopt;
  for (int64_t &at : *positions)
    at = at < 0 ? at + extent : at;
  return positions;
}

std::optional<Value> gatherSlices(NodeImporter &node, Value data, int64_t axis,
                                  ArrayRef<int64_t> shape) {
  const int64_t extent = shapeOf(data)[axis];
  if (std::optional<double> one = shape.empty() ? node.constantReal(1) : std::nullopt) {
    const int64_t at = *normalAxis(static_cast<int64_t>(*one), extent);
    return sliceAt(node.t, data, axis, shape, {at});
  }
  const std::optional<Shape> positions = constantPositions(node, extent);
  return positions ? sliceAt(node.t, data, axis, shape, *positions) : std::nullopt;
}

/// GatherElements whose constant indices change along `axis` alone.
std::optional<Value> gatherElementSlices(NodeImporter &node, int64_t axis) {
  const std::optional<Shape> positions = constantPositions(node, node.shape(0)[axis]);
  if (!positions)
    return std::nullopt;
  const Shape shape(node.shape(1));
  int64_t pitch = 1;
  for (int64_t d = axis + 1; d < node.rank(1); ++d)
    pitch *= shape[d];
  Shape along;
  for (int64_t i = 0; i < shape[axis]; ++i)
    along.push_back((*positions)[i * pitch]);
  for (int64_t i = 0; i < static_cast<int64_t>(positions->size()); ++i)
    if ((*positions)[i] != along[i / pitch % shape[axis]])
      return std::nullopt;
  Shape sizes(shape);
  sizes[axis] = node.shape(0)[axis];
  Value data = node.t.slice(node.in(0), Shape(sizes.size(), 0), sizes);
  return sliceAt(node.t, data, axis, {shape[axis]}, along);
}

Status importGather(NodeImporter &node) {
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", 0), node.rank(0));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  if (Status checked = checkIndices(node, node.shape(0)[*axis]); !checked)
    return checked;
  if (std::optional<Value> slices = gatherSlices(node, node.in(0), *axis, node.shape(1)))
    return node.done(*slices);
  return node.done(gather(node.t, node.in(0), node.in(1), *axis));
}

/// result[i...] = data[i... with indices[i...] at `axis`]
Status importGatherElements(NodeImporter &node) {
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", 0), node.rank(0));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  if (Status checked = checkIndices(node, node.shape(0)[*axis]); !checked)
    return checked;
  if (std::optional<Value> slices = gatherElementSlices(node, *axis))
    return node.done(*slices);
  Value data = node.in(0);
  auto identity = node.t.ops().getMultiDimIdentityMap(static_cast<unsigned>(node.rank(1)));
  Value result = node.t.map(
      node.shape(1), {node.in(1)}, {identity}, elementTypeOf(data), [&](Scalars &s, ValueRange x) {
        SmallVector<Value> at;
        for (int64_t i = 0; i < node.rank(0); ++i)
          at.push_back(i == *axis ? position(s, x[0], shapeOf(data)[i])
                                  : linalg::IndexOp::create(s, i).getResult());
        return tensor::ExtractOp::create(s, data, at);
      });
  return node.done(result);
}

/// Dimensions of `shape` along which `position`, of its points row major, changes.
Shape changingAlong(ArrayRef<int64_t> shape, llvm::function_ref<int64_t(int64_t)> position) {
  Shape dims;
  const int64_t count = productOf(shape);
  int64_t pitch = count;
  for (auto [d, extent] : llvm::enumerate(shape)) {
    pitch /= extent;
    for (int64_t i = 0; i < count; ++i)
      if (i / pitch % extent > 0 && position(i) != position(i - pitch)) {
        dims.push_back(int64_t(d));
        break;
      }
  }
  return dims;
}

/// GatherND at constant indices each of which changes along dimensions of its own, as windows of
/// pooling and masks of attention are read: one Gather after the other. Nothing for others.
std::optional<Value> gatherSeparably(NodeImporter &node, int64_t batch, int64_t depth,
                                     ArrayRef<int64_t> shape) {
  const std::optional<Shape> indices = node.constantIntegers(1);
  const ArrayRef<int64_t> outer = node.shape(1).drop_back();
  if (!indices || indices->empty() || productOf(node.shape(0)) == 0)
    return std::nullopt;
  Value taken = node.in(0);
  SmallVector<int64_t> loops; ///< per dimension of what is taken so far, behind the batch
  SmallVector<bool> isUsed(outer.size(), false); // twice would be a diagonal
  std::fill_n(isUsed.begin(), batch, true);
  for (int64_t d = depth - 1; d >= 0; --d) {
    const int64_t extent = node.shape(0)[batch + d];
    const auto position = [&](int64_t i) {
      const int64_t index = (*indices)[i * depth + d];
      return index < 0 ? index + extent : index;
    };
    const Shape its = changingAlong(outer, position);
    Shape extents, positions;
    for (const int64_t o : its) {
      if (std::exchange(isUsed[o], true))
        return std::nullopt;
      extents.push_back(outer[o]);
    }
    for (int64_t i = 0; i < productOf(outer); ++i) {
      bool isFirst = true; // of all points that differ in other dimensions
      int64_t pitch = 1;
      for (int64_t o = int64_t(outer.size()) - 1; o >= 0; pitch *= outer[o--])
        isFirst &= llvm::is_contained(its, o) || i / pitch % outer[o] == 0;
      if (!isFirst)
        continue;
      positions.push_back(position(i));
    }
    const std::optional<Value> slices = sliceAt(node.t, taken, batch + d, extents, positions);
    if (!slices)
      return std::nullopt;
    taken = *slices;
    loops.insert(loops.begin(), its.begin(), its.end());
  }
  SmallVector<AffineExpr> at;
  for (int64_t d = 0; d < batch; ++d)
    at.push_back(node.t.ops().getAffineDimExpr(unsigned(d)));
  for (const int64_t loop : loops)
    at.push_back(node.t.ops().getAffineDimExpr(unsigned(loop)));
  for (size_t d = outer.size(); d < shape.size(); ++d)
    at.push_back(node.t.ops().getAffineDimExpr(unsigned(d)));
  const auto map = AffineMap::get(unsigned(shape.size()), 0, at, node.t.ops().getContext());
  return map.isIdentity() ? taken
                          : node.t.map(shape, {taken}, {map}, elementTypeOf(taken),
                                       [](Scalars &, ValueRange x) { return x[0]; });
}

/// The last dimension of the indices addresses the first dimensions of the data (after
/// `batch_dims`).
Status importGatherND(NodeImporter &node) {
  Value data = node.in(0), indices = node.in(1);
  const int64_t batch = node.getInt("batch_dims", 0),
                depth = node.shape(1).empty() ? 0 : node.shape(1).back();
  if (batch < 0 || batch >= node.rank(1) || batch + depth > node.rank(0))
    return node.error("its indices address " + std::to_string(depth) + " dimensions behind " +
                      std::to_string(batch) + " of the batch, but its data has " +
                      std::to_string(node.rank(0)) +
                      "; give indices whose last extent is at most the rest");
  const Shape constants = node.constantIntegers(1).value_or(Shape());
  for (auto [i, index] : llvm::enumerate(constants))
    if (const int64_t extent = node.shape(0)[batch + int64_t(i) % depth];
        !normalAxis(index, extent))
      return node.error("its index " + std::to_string(index) + " lies outside of extent " +
                        std::to_string(extent) + "; give " + std::to_string(-extent) + " to " +
                        std::to_string(extent - 1));
  Shape shape(node.shape(1).drop_back());
  auto outer = static_cast<int64_t>(shape.size());
  ArrayRef<int64_t> tail = node.shape(0).drop_front(batch + depth);
  shape.append(tail.begin(), tail.end());
  if (std::optional<Value> slices = gatherSeparably(node, batch, depth, shape))
    return node.done(*slices);
  auto rank = static_cast<unsigned>(shape.size());
  SmallVector<Value> parts;
  SmallVector<AffineMap> maps;
  SmallVector<unsigned> loops;
  for (int64_t i = 0; i < outer; ++i)
    loops.push_back(static_cast<unsigned>(i));
  for (int64_t i = 0; i < depth; ++i) {
    parts.push_back(
        node.t.reshape(node.t.sliceAxis(indices, outer, i, 1), node.shape(1).drop_back()));
    maps.push_back(node.t.select(rank, loops));
  }
  Value result = node.t.map(shape, parts, maps, elementTypeOf(data), [&](Scalars &s, ValueRange x) {
    SmallVector<Value> at;
    for (int64_t i = 0; i < batch; ++i)
      at.push_back(linalg::IndexOp::create(s, i));
    for (int64_t i = 0; i < depth; ++i)
      at.push_back(position(s, x[i], shapeOf(data)[batch + i]));
    for (int64_t i = outer; i < static_cast<int64_t>(rank); ++i)
      at.push_back(linalg::IndexOp::create(s, i));
    return tensor::ExtractOp::create(s, data, at);
  });
  return node.done(result);
}

/// values[1] where the new dimension's index equals the input, values[0] elsewhere.
Status importOneHot(NodeImporter &node) {
  std::optional<double> depth = node.constantReal(1);
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", -1), node.rank(0) + 1);
  if (!depth || !axis)
    return node.error("its depth is not constant, or its axis lies outside of its rank");
  Shape shape(node.shape(0));
  shape.insert(shape.begin() + *axis, static_cast<int64_t>(*depth));
  auto rank = static_cast<unsigned>(shape.size());
  Value off = node.t.reshape(node.t.sliceAxis(node.in(2), 0, 0, 1), {});
  Value on = node.t.reshape(node.t.sliceAxis(node.in(2), 0, 1, 1), {});
  Value result = node.t.map(
      shape, {node.in(0), off, on},
      {node.t.withoutAxes(rank, {*axis}), node.t.select(rank, {}), node.t.select(rank, {})},
      elementTypeOf(node.in(2)), [&](Scalars &s, ValueRange x) {
        Arithmetic a(s, isUnsigned(node.inType(0)));
        Value index = a.cast(x[0], s.getI64Type(), false);
        Value here = linalg::IndexOp::create(s, *axis);
        Value isHere = a.compare(Arithmetic::Order::Equal, position(s, index, shape[*axis]), here);
        return a.choose(isHere, x[2], x[1]);
      });
  return node.done(result, node.inType(2));
}

} // namespace

void addGatherOps(HandlerTable &table) {
  table[":Gather"] = importGather;
  table[":GatherElements"] = importGatherElements;
  table[":GatherND"] = importGatherND;
  table[":OneHot"] = importOneHot;
}

} // namespace millrace::onnx_import
