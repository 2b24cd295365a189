// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Resize by nearest and linear interpolation: addresses alone where each output takes one input and
// the steps are even, else one contraction per resized axis with a constant matrix of weights.
#include "compiler/Import/Onnx/Handlers.h"

#include <cmath>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

struct Axis {
  int64_t axis, inputs, outputs;
  float scale; ///< outputs per input, as the model says it
};

/// The axes that change, from `scales` (input 2) or `sizes` (input 3).
Expected<SmallVector<Axis>> readResized(NodeImporter &node) {
  Shape axes = node.getInts("axes", allAxes(node.rank(0)));
  std::optional<Shape> sizes = node.has(3) ? node.constantIntegers(3) : std::nullopt;
  SmallVector<float> scales;
  std::optional<ConstantView> view = node.has(2) ? viewConstant(node.in(2)) : std::nullopt;
  for (int64_t i = 0; view && i < view->type.getNumElements(); ++i)
    scales.push_back(static_cast<float>(view->real(i)));
  if (node.getString("keep_aspect_ratio_policy", "stretch") != "stretch")
    return node.error("keep_aspect_ratio_policy is not supported");
  if (sizes ? sizes->size() != axes.size() : scales.size() != axes.size())
    return node.error("its scales or sizes are not constant, or not one per axis");
  SmallVector<Axis> resized;
  for (auto [i, given] : llvm::enumerate(axes)) {
    std::optional<int64_t> axis = normalAxis(given, node.rank(0));
    if (!axis)
      return node.error("an axis lies outside of rank " + std::to_string(node.rank(0)));
    int64_t inputs = node.shape(0)[*axis];
    int64_t outputs =
        sizes ? (*sizes)[i]
              : static_cast<int64_t>(std::floor(static_cast<float>(inputs) * scales[i]));
    float scale = sizes ? static_cast<float>(outputs) / static_cast<float>(inputs) : scales[i];
    if (outputs < 1)
      return node.error("resizes dimension " + std::to_string(*axis) + " to " +
                        std::to_string(outputs));
    if (outputs != inputs || scale != 1)
      resized.push_back({*axis, inputs, outputs, scale});
  }
  return resized;
}

/// Where output `x` lies among the inputs (coordinate_transformation_mode); nothing for an unknown
/// mode. In fp32, as ONNX Runtime computes it: which neighbour is nearest hangs on its rounding.
std::optional<float> sourcePosition(const std::string &mode, const Axis &axis, int64_t x) {
  auto at = static_cast<float>(x), inputs = static_cast<float>(axis.inputs),
       outputs = static_cast<float>(axis.outputs);
  if (mode == "half_pixel")
    return (at + 0.5F) / axis.scale - 0.5F;
  if (mode == "half_pixel_symmetric") {
    float centre = inputs / 2, offset = centre * (1 - outputs / (axis.scale * inputs));
    return offset + (at + 0.5F) / axis.scale - 0.5F;
  }
  if (mode == "pytorch_half_pixel")
    return axis.outputs > 1 ? (at + 0.5F) / axis.scale - 0.5F : 0;
  if (mode == "align_corners")
    return axis.outputs > 1 ? at * (inputs - 1) / (axis.scale * inputs - 1) : 0;
  if (mode == "asymmetric")
    return at / axis.scale;
  return std::nullopt;
}

/// nearest_mode, or "simple": the rule until opset 10, which follows the direction.
float roundNearest(std::string mode, const Axis &axis, float position) {
  if (mode == "simple")
    mode = axis.scale < 1 ? "ceil" : "floor";
  if (mode == "floor")
    return std::floor(position);
  if (mode == "ceil")
    return std::ceil(position);
  // round_prefer_floor and round_prefer_ceil differ at halves.
  bool isHalf = position == std::floor(position) + 0.5F;
  return mode == "round_prefer_floor" && isHalf ? std::floor(position) : std::round(position);
}

/// Row x of the matrix has the weights of the inputs in output x.
Expected<SmallVector<float>> weightMatrix(NodeImporter &node, const Axis &axis) {
  std::string coordinates = node.getString("coordinate_transformation_mode", "half_pixel");
  std::string nearest = node.getString("nearest_mode", "round_prefer_floor"),
              mode = node.getString("mode", "nearest");
  if ((mode != "nearest" && mode != "linear") || node.getInt("antialias", 0) != 0)
    return node.error("mode '" + mode +
                      "' (or antialias) is not supported; nearest and linear are");
  if (axis.inputs > kMostMade / std::max<int64_t>(axis.outputs, 1))
    return node.error("resizes " + std::to_string(axis.inputs) + " elements to " +
                      std::to_string(axis.outputs) +
                      ", which takes more than 2^26 weights; use smaller extents");
  SmallVector<float> matrix(axis.outputs * axis.inputs, 0);
  auto add = [&](int64_t x, float input, float weight) {
    auto at = std::clamp<int64_t>(static_cast<int64_t>(input), 0, axis.inputs - 1);
    matrix[x * axis.inputs + at] += weight;
  };
  for (int64_t x = 0; x < axis.outputs; ++x) {
    std::optional<float> position = sourcePosition(coordinates, axis, x);
    if (!position)
      return node.error("coordinate_transformation_mode '" + coordinates + "' is not supported");
    if (mode == "nearest") {
      add(x, roundNearest(nearest, axis, *position), 1);
      continue;
    }
    float below = std::floor(*position), share = *position - below;
    add(x, below, 1 - share);
    add(x, below + 1, share);
  }
  return matrix;
}

/// Which input each output takes, whole: of the weights one is 1 and all others are 0.
std::optional<Shape> takenInputs(const Axis &axis, ArrayRef<float> matrix) {
  Shape taken;
  for (int64_t x = 0; x < axis.outputs; ++x) {
    ArrayRef<float> row = matrix.slice(x * axis.inputs, axis.inputs);
    const float *one = llvm::find(row, 1.0F);
    if (one == row.end() || llvm::count(row, 0.0F) != axis.inputs - 1)
      return std::nullopt;
    taken.push_back(one - row.begin());
  }
  return taken;
}

/// Outputs that repeat every input equally often, or take inputs at an even step, are addresses
/// alone. Nothing for others.
Value resizeByAddress(TensorBuilder &t, Value input, const Axis &axis, ArrayRef<int64_t> taken) {
  Shape shape(shapeOf(input));
  if (axis.outputs % axis.inputs == 0) {
    const int64_t times = axis.outputs / axis.inputs;
    bool isEven = true;
    for (int64_t x = 0; x < axis.outputs; ++x)
      isEven &= taken[x] == x / times;
    if (isEven) {
      Shape single(shape), repeated(shape), result(shape);
      single.insert(single.begin() + axis.axis + 1, 1);
      repeated.insert(repeated.begin() + axis.axis + 1, times);
      result[axis.axis] = axis.outputs;
      return t.reshape(t.broadcast(t.reshape(input, single), repeated), result);
    }
  }
  const int64_t step = axis.outputs > 1 ? taken[1] - taken[0] : 1;
  for (int64_t x = 1; x < axis.outputs; ++x)
    if (step < 1 || taken[x] - taken[x - 1] != step)
      return {};
  Shape offsets(shape.size(), 0), strides(shape.size(), 1);
  offsets[axis.axis] = taken[0];
  strides[axis.axis] = step;
  shape[axis.axis] = axis.outputs;
  return t.slice(input, offsets, shape, strides);
}

Status importResize(NodeImporter &node) {
  if (!isFloat(node.inType(0)))
    return node.error("resizes " + std::string(onnxName(node.inType(0))) +
                      "; only floats are supported");
  Expected<SmallVector<Axis>> resized = readResized(node);
  if (!resized)
    return resized.takeError();
  TensorBuilder &t = node.t;
  Value result = node.in(0);
  auto rank = static_cast<unsigned>(node.rank(0));
  for (const Axis &axis : *resized) {
    Expected<SmallVector<float>> matrix = weightMatrix(node, axis);
    if (!matrix)
      return matrix.takeError();
    if (std::optional<Shape> taken = takenInputs(axis, *matrix))
      if (Value moved = resizeByAddress(t, result, axis, *taken)) {
        result = moved;
        continue;
      }
    Shape shape(shapeOf(result));
    shape[axis.axis] = axis.outputs;
    SmallVector<unsigned> source, target;
    for (unsigned i = 0; i < rank; ++i) {
      source.push_back(i == axis.axis ? rank : i);
      target.push_back(i);
    }
    AffineMap weights = t.select(rank + 1, {static_cast<unsigned>(axis.axis), rank});
    result = t.contract(result,
                        t.reals({axis.outputs, axis.inputs}, *matrix, elementTypeOf(result)), shape,
                        {t.select(rank + 1, source), weights, t.select(rank + 1, target)}, {rank});
  }
  return node.done(result);
}

} // namespace

void addResizeOps(HandlerTable &table) { table[":Resize"] = importResize; }

} // namespace millrace::onnx_import
