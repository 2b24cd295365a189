// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// RoiAlign: boxes that are data, each cut into bins, of which each is the mean (or maximum) of
// samples on a regular grid.
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/Reduction.h"
#include "compiler/Import/Onnx/Sampling.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// Where the samples lie in units of bins: bin + (i + 0.5) / samples, in the shape `shape`.
Value binPlaces(TensorBuilder &t, ArrayRef<int64_t> shape, int64_t bins, int64_t samples,
                Type type) {
  SmallVector<float> places;
  for (int64_t bin = 0; bin < bins; ++bin)
    for (int64_t i = 0; i < samples; ++i)
      places.push_back(float(double(bin) + (double(i) + 0.5) / double(samples)));
  return t.reals(shape, places, type);
}

/// Inputs: x (N x C x H x W), boxes (R x (x1, y1, x2, y2)), for each the number of its image (R).
Status importRoiAlign(NodeImporter &node) {
  TensorBuilder &t = node.t;
  const Shape in(node.shape(0));
  if (in.size() != 4 || node.rank(1) != 2 || node.shape(1)[1] != 4 || node.rank(2) != 1 ||
      node.shape(2)[0] != node.shape(1)[0])
    return node.error("images N x C x H x W, boxes R x 4 and R numbers of images are supported");
  const int64_t bins[2] = {node.getInt("output_height", 1), node.getInt("output_width", 1)},
                samples = node.getInt("sampling_ratio", 0), boxes = node.shape(1)[0];
  const std::string mode = node.getString("mode", "avg"),
                    corners = node.getString("coordinate_transformation_mode", "half_pixel");
  if (samples < 1)
    return node.error("with sampling_ratio 0 the boxes, which are known at run time, decide how "
                      "many samples a bin has; export it with a number, such as 2");
  if (bins[0] < 1 || bins[1] < 1 || (mode != "avg" && mode != "max"))
    return node.error("its output must have at least a bin, and its mode be avg or max");
  if (productOf({boxes, bins[0], samples, bins[1], samples, in[1]}) > kMostElements ||
      std::max(productOf({bins[0], samples}), productOf({bins[1], samples})) > kMostMade)
    return node.error("its samples would be more than a tensor can hold; use fewer bins or samples");
  const bool isHalfPixel = corners == "half_pixel", isMean = mode == "avg";
  const double scale = node.getFloat("spatial_scale", 1);
  const Type real = elementTypeOf(node.in(0)), whole = t.ops().getI64Type();
  const int64_t pixels = in[2] * in[3];
  const auto corner = [&](int64_t which) {
    return t.reshape(t.sliceAxis(node.in(1), 1, which, 1), {boxes, 1, 1, 1, 1});
  };
  const Value first = t.map({node.in(2)}, whole, [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    return a.mul(a.cast(x[0], whole, false), a.constant(whole, double(pixels)));
  });
  const auto along = [&](Arithmetic &a, Value low, Value high, Value place, int64_t count,
                         int64_t extent) {
    const Value from = a.mul(low, a.like(low, scale)),
                size = a.sub(a.mul(high, a.like(high, scale)), from),
                used = isHalfPixel ? size : a.max(size, a.like(size, 1));
    const Value step = a.mul(a.mul(used, a.like(used, 1.0 / double(count))), place);
    const Value at = a.add(isHalfPixel ? a.sub(from, a.like(from, 0.5)) : from, step),
                inside = a.clamp(at, -1, double(extent));
    return std::pair(a.clamp(at, 0, double(extent - 1)),
                     a.compare(Arithmetic::Order::Equal, at, inside));
  };
  const Value sampled = sample(
      t,
      {t.reshape(t.transpose(node.in(0), {0, 2, 3, 1}), {in[0] * pixels, in[1]}),
       t.reshape(first, {boxes, 1, 1, 1, 1}), in[2], in[3]},
      {corner(0), corner(1), corner(2), corner(3),
       binPlaces(t, {1, bins[0], 1, samples, 1}, bins[0], samples, real),
       binPlaces(t, {1, 1, bins[1], 1, samples}, bins[1], samples, real)},
      [&](Arithmetic &a, ValueRange x) -> SampledPlace {
        const auto [row, isRow] = along(a, x[1], x[3], x[4], bins[0], in[2]);
        const auto [column, isColumn] = along(a, x[0], x[2], x[5], bins[1], in[3]);
        const Value one = a.like(row, 1), zero = a.like(row, 0);
        return {row, column, a.choose(isRow, a.choose(isColumn, one, zero), zero)};
      },
      isMean ? Interpolation::Linear : Interpolation::GreatestShare);
  const Value result = isMean ? meanOver(t, sampled, {3, 4}) : t.reduceMax(sampled, {3, 4});
  return node.done(t.transpose(result, {0, 3, 1, 2}));
}

} // namespace

void addRoiAlignOps(HandlerTable &table) { table[":RoiAlign"] = importRoiAlign; }

} // namespace millrace::onnx_import
