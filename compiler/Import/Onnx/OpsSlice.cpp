// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations that cut tensors into parts, put parts together, or surround them.
#include "compiler/Import/Onnx/Handlers.h"

#include <cmath>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

Status importConcat(NodeImporter &node) {
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", 0), node.rank(0));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  SmallVector<Value> inputs;
  for (size_t i = 0; i < node.inputCount(); ++i)
    inputs.push_back(node.in(i));
  return node.done(node.t.concat(inputs, *axis));
}

/// The extents from input 1, or equal parts (the last one smaller) from num_outputs.
std::optional<Shape> splitExtents(NodeImporter &node, int64_t extent) {
  if (node.has(1))
    return node.constantIntegers(1);
  auto parts = node.getInt("num_outputs", static_cast<int64_t>(node.outputCount()));
  int64_t size = (extent + parts - 1) / parts;
  Shape extents(parts, size);
  extents.back() = extent - size * (parts - 1);
  return extents;
}

Status importSplit(NodeImporter &node) {
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", 0), node.rank(0));
  std::optional<Shape> extents = axis ? splitExtents(node, node.shape(0)[*axis]) : std::nullopt;
  if (!extents || extents->size() < node.outputCount())
    return node.error("its axis or its sizes are not valid or not constant");
  int64_t offset = 0;
  for (size_t i = 0; i < node.outputCount(); offset += (*extents)[i++])
    if (node.wants(i))
      node.set(i, node.t.sliceAxis(node.in(0), *axis, offset, (*extents)[i]), node.inType(0));
  return Success{};
}

/// What Slice takes of one dimension: element offset + i * step for 0 <= i < size.
struct Range {
  int64_t offset = 0, size = 0, step = 1;
};

/// ONNX's rules: negative positions count from the end, then all are clamped.
Range sliceRange(int64_t extent, int64_t start, int64_t end, int64_t step) {
  if (extent == 0)
    return {0, 0, 1};
  if (start < 0)
    start += extent;
  if (end < 0)
    end += extent;
  // Longer steps lead outside just the same, and these sums do not overflow.
  step = std::clamp<int64_t>(step, -extent, extent);
  if (step > 0) {
    start = std::clamp<int64_t>(start, 0, extent);
    end = std::clamp<int64_t>(end, 0, extent);
    return {start, std::max<int64_t>(0, (end - start + step - 1) / step), step};
  }
  start = std::clamp<int64_t>(start, 0, extent - 1);
  end = std::clamp<int64_t>(end, -1, extent - 1);
  return {start, std::max<int64_t>(0, (end - start + step + 1) / step), step};
}

/// The dimensions that `backwards` names from their last element to their first.
Value reverse(TensorBuilder &t, Value input, ArrayRef<bool> backwards) {
  const Shape shape(shapeOf(input));
  SmallVector<AffineExpr> exprs;
  for (auto [i, isBackwards] : llvm::enumerate(backwards)) {
    AffineExpr at = t.ops().getAffineDimExpr(static_cast<unsigned>(i));
    exprs.push_back(isBackwards ? shape[i] - 1 - at : at);
  }
  auto map = AffineMap::get(static_cast<unsigned>(shape.size()), 0, exprs, t.ops().getContext());
  return t.map(shape, {input}, {map}, elementTypeOf(input),
               [](Scalars &, ValueRange x) { return x[0]; });
}

Status importSlice(NodeImporter &node) {
  std::optional<Shape> starts = node.constantIntegers(1), ends = node.constantIntegers(2), axes,
                       steps;
  if (!starts || !ends || starts->size() != ends->size())
    return node.error("its starts and ends are not constant");
  axes = node.has(3) ? node.constantIntegers(3) : allAxes(static_cast<int64_t>(starts->size()));
  steps = node.has(4) ? node.constantIntegers(4) : Shape(starts->size(), 1);
  if (!axes || !steps || axes->size() != starts->size() || steps->size() != starts->size())
    return node.error("its axes and steps are not constant");
  SmallVector<Range> ranges;
  for (int64_t extent : node.shape(0))
    ranges.push_back({0, extent, 1});
  SmallVector<bool> backwards(ranges.size(), false);
  for (auto [start, end, axis, step] : llvm::zip_equal(*starts, *ends, *axes, *steps)) {
    std::optional<int64_t> at = normalAxis(axis, node.rank(0));
    if (!at || step == 0)
      return node.error("an axis lies outside of its rank, or a step is 0");
    ranges[*at] = sliceRange(node.shape(0)[*at], start, end, step);
    backwards[*at] = step < 0;
  }
  Shape offsets, sizes, strides;
  for (const Range &range : ranges) { // forwards first: a slice begins at the lowest element
    const int64_t last = range.offset + std::max<int64_t>(0, range.size - 1) * range.step;
    offsets.push_back(std::min(range.offset, last));
    sizes.push_back(range.size);
    strides.push_back(std::abs(range.step));
  }
  Value slice = node.t.slice(node.in(0), offsets, sizes, strides);
  const bool isReversed = llvm::is_contained(backwards, true) && productOf(sizes) != 0;
  return node.done(isReversed ? reverse(node.t, slice, backwards) : slice);
}

/// edge, reflect and wrap pad one axis at a time: each padded element is a copy of one inside.
Value padByCopies(TensorBuilder &t, Value input, int64_t axis, int64_t low, int64_t high,
                  StringRef mode) {
  int64_t extent = shapeOf(input)[axis];
  auto source = [&](int64_t at) {
    if (mode == "edge")
      return std::clamp<int64_t>(at, 0, extent - 1);
    if (mode == "wrap")
      return (at % extent + extent) % extent;
    int64_t period = std::max<int64_t>(1, 2 * (extent - 1)),
            folded = (at % period + period) % period;
    return folded < extent ? folded : period - folded;
  };
  SmallVector<Value> parts;
  SmallVector<bool> along(shapeOf(input).size(), false);
  along[size_t(axis)] = true;
  const auto add = [&](int64_t from, int64_t to) { // runs of copies that go one way
    for (int64_t i = from, end; i < to; i = end) {
      const int64_t step = i + 1 < to ? source(i + 1) - source(i) : 0;
      for (end = i + 1; end < to && source(end) - source(end - 1) == step;)
        ++end;
      const int64_t count = end - i, lowest = std::min(source(i), source(end - 1));
      const Value run = t.sliceAxis(input, axis, lowest, step == 0 ? 1 : count);
      parts.push_back(step < 0                 ? reverse(t, run, along)
                      : step == 0 && count > 1 ? t.repeat(run, axis, count)
                                               : run);
    }
  };
  add(-low, 0);
  parts.push_back(input);
  add(extent, extent + high);
  return t.concat(parts, axis);
}

/// The first elements of each batch backwards, the others as they are.
Status importReverseSequence(NodeImporter &node) {
  const std::optional<Shape> lengths = node.constantIntegers(1);
  const std::optional<int64_t> batch = normalAxis(node.getInt("batch_axis", 1), node.rank(0)),
                               time = normalAxis(node.getInt("time_axis", 0), node.rank(0));
  if (!lengths)
    return node.error("its sequence_lens are not constant");
  if (!batch || !time || *batch == *time || int64_t(lengths->size()) != node.shape(0)[*batch])
    return node.error("its axes or its " + std::to_string(lengths->size()) +
                      " sequence_lens do not fit its input");
  SmallVector<bool> along(size_t(node.rank(0)), false);
  along[size_t(*time)] = true;
  const int64_t extent = node.shape(0)[*time];
  SmallVector<Value> batches;
  for (size_t first = 0, end; first < lengths->size(); first = end) { // of one length
    const int64_t length = (*lengths)[first];
    if (length < 0 || length > extent)
      return node.error("reverses " + std::to_string(length) + " of " + std::to_string(extent) +
                        " elements");
    for (end = first + 1; end < lengths->size() && (*lengths)[end] == length;)
      ++end;
    const Value its = node.t.sliceAxis(node.in(0), *batch, int64_t(first), int64_t(end - first));
    SmallVector<Value> parts;
    if (length > 0)
      parts.push_back(reverse(node.t, node.t.sliceAxis(its, *time, 0, length), along));
    if (length < extent)
      parts.push_back(node.t.sliceAxis(its, *time, length, extent - length));
    batches.push_back(node.t.concat(parts, *time));
  }
  return node.done(node.t.concat(batches, *batch));
}

Status importPad(NodeImporter &node) {
  std::optional<Shape> pads = node.constantIntegers(1);
  std::optional<Shape> axes = node.has(3) ? node.constantIntegers(3) : allAxes(node.rank(0));
  if (!pads || !axes || pads->size() != 2 * axes->size())
    return node.error("its pads are not constant, or not two per axis");
  Shape low(node.rank(0), 0), high(node.rank(0), 0);
  for (auto [i, axis] : llvm::enumerate(*axes)) {
    std::optional<int64_t> at = normalAxis(axis, node.rank(0));
    if (!at)
      return node.error("an axis lies outside of rank " + std::to_string(node.rank(0)));
    low[*at] = (*pads)[i];
    high[*at] = (*pads)[i + axes->size()];
  }
  // Negative pads remove elements.
  Value input = node.in(0);
  for (int64_t axis = 0; axis < node.rank(0); ++axis) {
    int64_t before = std::max<int64_t>(0, -low[axis]), after = std::max<int64_t>(0, -high[axis]);
    input = node.t.sliceAxis(input, axis, before, shapeOf(input)[axis] - before - after);
    low[axis] = std::max<int64_t>(0, low[axis]);
    high[axis] = std::max<int64_t>(0, high[axis]);
  }
  std::string mode = node.getString("mode", "constant");
  if (mode == "constant") {
    const std::optional<double> constant = node.has(2) ? node.constantReal(2) : 0.0;
    constexpr double kExact = 1e15; // no integer below it is rounded
    const bool isKnown =
        constant && (isa<FloatType>(elementTypeOf(input)) || std::abs(*constant) < kExact);
    const Value scalar =
        isKnown
            ? node.t.scalar(elementTypeOf(input), *constant)
            : tensor::ExtractOp::create(node.t.ops(), node.t.reshape(node.in(2), {}), ValueRange());
    return node.done(node.t.pad(input, low, high, scalar));
  }
  for (int64_t axis = 0; axis < node.rank(0); ++axis)
    if (low[axis] + high[axis] > 0 && shapeOf(input)[axis] == 0)
      return node.error("pads dimension " + std::to_string(axis) +
                        " by copies of its elements, and it has none; pad with a constant");
  for (int64_t axis = 0; axis < node.rank(0); ++axis)
    if (low[axis] + high[axis] > 0)
      input = padByCopies(node.t, input, axis, low[axis], high[axis], mode);
  return node.done(input);
}

/// Keeps the upper (or lower) triangle from diagonal k on; zeros elsewhere.
Status importTrilu(NodeImporter &node) {
  std::optional<double> k = node.has(1) ? node.constantReal(1) : 0.0;
  if (!k || node.rank(0) < 2)
    return node.error("its diagonal is not constant, or its input has rank below 2");
  bool upper = node.getInt("upper", 1) != 0;
  return node.done(
      node.t.map({node.in(0)}, elementTypeOf(node.in(0)), [&](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        Value row = linalg::IndexOp::create(s, node.rank(0) - 2);
        Value column = linalg::IndexOp::create(s, node.rank(0) - 1);
        Value edge = a.add(row, arith::ConstantIndexOp::create(s, static_cast<int64_t>(*k)));
        Value keeps = upper ? a.compare(Arithmetic::Order::LessOrEqual, edge, column)
                            : a.compare(Arithmetic::Order::LessOrEqual, column, edge);
        return a.choose(keeps, x[0], a.like(x[0], 0));
      }));
}

} // namespace

void addSliceOps(HandlerTable &table) {
  table[":Concat"] = importConcat;
  table[":Split"] = importSplit;
  table[":ReverseSequence"] = importReverseSequence;
  table[":Slice"] = importSlice;
  table[":Pad"] = importPad;
  table[":Trilu"] = importTrilu;
}

} // namespace millrace::onnx_import
