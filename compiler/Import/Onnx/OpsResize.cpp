// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Resize by nearest and linear interpolation: one contraction per resized axis with a constant
// matrix of weights.
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
