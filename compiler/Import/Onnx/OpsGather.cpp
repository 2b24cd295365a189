// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads at positions that are data. All are maps whose body reads the data tensor by
// tensor.extract.
#include "compiler/Import/Onnx/Gather.h"

#include "compiler/Import/Onnx/Handlers.h"

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

Status importGather(NodeImporter &node) {
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", 0), node.rank(0));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  if (Status checked = checkIndices(node, node.shape(0)[*axis]); !checked)
    return checked;
  std::optional<double> one = node.rank(1) == 0 ? node.constantReal(1) : std::nullopt;
  if (!one)
    return node.done(gather(node.t, node.in(0), node.in(1), *axis));
  // One known index is a slice.
  std::optional<int64_t> at = normalAxis(static_cast<int64_t>(*one), node.shape(0)[*axis]);
  Shape shape(node.shape(0));
  shape.erase(shape.begin() + *axis);
  return node.done(node.t.reshape(node.t.sliceAxis(node.in(0), *axis, *at, 1), shape));
}

/// result[i...] = data[i... with indices[i...] at `axis`]
Status importGatherElements(NodeImporter &node) {
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", 0), node.rank(0));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  if (Status checked = checkIndices(node, node.shape(0)[*axis]); !checked)
    return checked;
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

/// Positions in a dimension that begin at `first` and go on by `step` with one index of the result,
/// or stay there.
struct Positions {
  int64_t first = 0, step = 1;
  std::optional<unsigned> loop;
};

/// What `position(i)` gives for the points of `shape`, row major, if it is such positions.
std::optional<Positions> stepsOf(ArrayRef<int64_t> shape,
                                 llvm::function_ref<int64_t(int64_t)> position) {
  Positions all{position(0), 1, std::nullopt};
  const int64_t count = productOf(shape);
  for (int64_t d = 0, pitch = count; d < static_cast<int64_t>(shape.size()); ++d) {
    pitch /= shape[d];
    const int64_t step = shape[d] > 1 ? position(pitch) - all.first : 0;
    if (step < 0 || (step > 0 && all.loop))
      return std::nullopt;
    if (step > 0)
      all.step = step, all.loop = static_cast<unsigned>(d);
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = all.first;
    for (int64_t d = static_cast<int64_t>(shape.size()), rest = i; d-- > 0; rest /= shape[d])
      if (all.loop == static_cast<unsigned>(d))
        at += all.step * (rest % shape[d]);
    if (position(i) != at)
      return std::nullopt;
  }
  return all;
}

/// GatherND at constant indices that step evenly through the data, as masks of attention are read:
/// a slice, broadcast. Nothing for others.
std::optional<Value> gatherSlice(NodeImporter &node, int64_t batch, int64_t depth,
                                 ArrayRef<int64_t> shape) {
  const std::optional<Shape> indices = node.constantIntegers(1);
  ArrayRef<int64_t> extents = node.shape(0), outer = node.shape(1).drop_back();
  if (!indices || indices->empty() || productOf(extents) == 0)
    return std::nullopt;
  const auto rank = static_cast<unsigned>(shape.size());
  Shape offsets(extents.size(), 0), sizes(extents.begin(), extents.end()),
      strides(extents.size(), 1), kept;
  SmallVector<unsigned> loops;
  for (int64_t d = 0; d < static_cast<int64_t>(extents.size()); ++d) {
    unsigned loop = static_cast<unsigned>(
        d < batch ? d : d - batch - depth + static_cast<int64_t>(outer.size()));
    if (d >= batch && d < batch + depth) {
      const std::optional<Positions> its = stepsOf(outer, [&](int64_t i) {
        const int64_t at = (*indices)[i * depth + d - batch];
        return at < 0 ? at + extents[d] : at;
      });
      if (!its)
        return std::nullopt;
      offsets[d] = its->first;
      strides[d] = its->step;
      sizes[d] = its->loop ? outer[*its->loop] : 1;
      if (its->first < 0 || its->first + (sizes[d] - 1) * its->step >= extents[d])
        return std::nullopt;
      if (!its->loop)
        continue;
      loop = *its->loop;
    }
    if (llvm::is_contained(loops, loop)) // a diagonal
      return std::nullopt;
    loops.push_back(loop);
    kept.push_back(sizes[d]);
  }
  Value source = node.t.reshape(node.t.slice(node.in(0), offsets, sizes, strides), kept);
  return node.t.map(shape, {source}, {node.t.select(rank, loops)}, elementTypeOf(source),
                    [](Scalars &, ValueRange x) { return x[0]; });
}

/// The last dimension of the indices addresses the first dimensions of the data (after
/// `batch_dims`).
Status importGatherND(NodeImporter &node) {
  Value data = node.in(0), indices = node.in(1);
  int64_t batch = node.getInt("batch_dims", 0), depth = node.shape(1).back();
  Shape shape(node.shape(1).drop_back());
  auto outer = static_cast<int64_t>(shape.size());
  ArrayRef<int64_t> tail = node.shape(0).drop_front(batch + depth);
  shape.append(tail.begin(), tail.end());
  if (std::optional<Value> slice = gatherSlice(node, batch, depth, shape))
    return node.done(*slice);
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
