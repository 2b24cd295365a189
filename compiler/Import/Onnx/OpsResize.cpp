// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Resize by nearest, linear and cubic interpolation: addresses alone where each output takes one
// input and the steps are even, else one contraction per resized axis with a constant matrix of
// weights.
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
  if (sizes ? sizes->size() != axes.size() : scales.size() != axes.size())
    return node.error("its scales or sizes are not constant, or not one per axis");
  for (int64_t &given : axes) {
    std::optional<int64_t> axis = normalAxis(given, node.rank(0));
    if (!axis)
      return node.error("an axis lies outside of rank " + std::to_string(node.rank(0)));
    given = *axis;
  }
  const std::string policy = node.getString("keep_aspect_ratio_policy", "stretch");
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
    return node.error("keep_aspect_ratio_policy '" + policy + "' is not supported");
  std::optional<float> common; // scale, where the ratio of the axes stays
  for (size_t i = 0; i < axes.size() && sizes && policy != "stretch"; ++i) {
    const float scale =
        static_cast<float>((*sizes)[i]) / static_cast<float>(node.shape(0)[axes[i]]);
    common = !common                  ? scale
             : policy == "not_larger" ? std::min(*common, scale)
                                      : std::max(*common, scale);
  }
  SmallVector<Axis> resized;
  for (auto [i, axis] : llvm::enumerate(axes)) {
    int64_t inputs = node.shape(0)[axis];
    int64_t outputs =
        common  ? static_cast<int64_t>(std::floor(static_cast<float>(inputs) * *common + 0.5F))
        : sizes ? (*sizes)[i]
                : static_cast<int64_t>(std::floor(static_cast<float>(inputs) * scales[i]));
    float scale = common  ? *common
                  : sizes ? static_cast<float>(outputs) / static_cast<float>(inputs)
                          : scales[i];
    if (outputs < 1)
      return node.error("resizes dimension " + std::to_string(axis) + " to " +
                        std::to_string(outputs));
    if (outputs != inputs || scale != 1)
      resized.push_back({axis, inputs, outputs, scale});
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

/// The weight of an input that lies `distance` inputs from where the output lies.
double linearWeight(double distance) { return std::max(0.0, 1 - std::fabs(distance)); }

/// Keys' cubic convolution with the parameter a.
double cubicWeight(double distance, double a) {
  const double x = std::fabs(distance);
  if (x <= 1)
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// Row x of the matrix has the weights of the inputs in output x.
Expected<SmallVector<float>> weightMatrix(NodeImporter &node, const Axis &axis) {
  std::string coordinates = node.getString("coordinate_transformation_mode", "half_pixel");
  std::string nearest = node.getString("nearest_mode", "round_prefer_floor"),
              mode = node.getString("mode", "nearest");
  if (mode != "nearest" && mode != "linear" && mode != "cubic")
    return node.error("mode '" + mode + "' is not supported; nearest, linear and cubic are");
  if (axis.inputs > kMostMade / std::max<int64_t>(axis.outputs, 1))
    return node.error("resizes " + std::to_string(axis.inputs) + " elements to " +
                      std::to_string(axis.outputs) +
                      ", which takes more than 2^26 weights; use smaller extents");
  const bool isCubic = mode == "cubic", leavesOutside = node.getInt("exclude_outside", 0) != 0;
  const double a = node.getFloat("cubic_coeff_a", -0.75);
  // Where there are fewer outputs, a filter against aliasing is as much wider.
  const double step = node.getInt("antialias", 0) != 0 ? std::min<double>(axis.scale, 1) : 1;
  const auto reach = int64_t(std::ceil((isCubic ? 2 : 1) / step));
  SmallVector<float> matrix(axis.outputs * axis.inputs, 0);
  for (int64_t x = 0; x < axis.outputs; ++x) {
    std::optional<float> position = sourcePosition(coordinates, axis, x);
    if (!position)
      return node.error("coordinate_transformation_mode '" + coordinates + "' is not supported");
    const auto at = [&](int64_t input) -> float & {
      return matrix[x * axis.inputs + std::clamp<int64_t>(input, 0, axis.inputs - 1)];
    };
    if (mode == "nearest") {
      at(static_cast<int64_t>(roundNearest(nearest, axis, *position))) = 1;
      continue;
    }
    const auto below = static_cast<int64_t>(std::floor(*position));
    SmallVector<std::pair<int64_t, double>>
        weights; // of inputs; those beyond the edges are its own
    double sum = 0;
    for (int64_t input = below - reach; input <= below + reach + 1; ++input) {
      const double distance = (double(input) - double(*position)) * step;
      const bool isOutside = input < 0 || input >= axis.inputs;
      weights.push_back({input, leavesOutside && isOutside ? 0
                                : isCubic                  ? cubicWeight(distance, a)
                                                           : linearWeight(distance)});
      sum += weights.back().second;
    }
    for (auto [input, weight] : weights)
      at(input) += sum == 0 ? 0 : static_cast<float>(weight / sum); // all are outside: nothing
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
    if (isEven)
      return t.repeat(input, axis.axis, times);
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
