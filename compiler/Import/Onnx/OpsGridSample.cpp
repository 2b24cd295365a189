// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GridSample: an image at places that are data, from -1 to 1.
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/Sampling.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

struct Sampling {
  bool isNearest = false, alignsCorners = false;
  enum class Outside { Zeros, Border, Reflection } outside = Outside::Zeros;
};

/// A coordinate from -1 to 1 as a pixel's, of `extent`; within the image unless zeros lie around.
Value pixelOf(Arithmetic &a, Value at, int64_t extent, const Sampling &how) {
  const auto size = double(extent);
  const Value one = a.like(at, 1), half = a.like(at, 0.5);
  Value pixel = how.alignsCorners
                    ? a.mul(a.mul(a.add(at, one), half), a.like(at, size - 1))
                    : a.mul(a.sub(a.mul(a.add(at, one), a.like(at, size)), one), half);
  if (how.outside == Sampling::Outside::Reflection) {
    // Back and forth between both ends.
    const double low = how.alignsCorners ? 0 : -0.5, span = how.alignsCorners ? size - 1 : size;
    if (span > 0) {
      const Value from = a.abs(a.sub(pixel, a.like(at, low))), twice = a.like(at, 2 * span);
      const Value turns = a.call<math::FloorOp>(a.div(from, twice));
      const Value within = a.sub(from, a.mul(turns, twice));
      pixel = a.add(a.min(within, a.sub(twice, within)), a.like(at, low));
    } else {
      pixel = a.like(at, 0);
    }
  }
  return how.outside == Sampling::Outside::Zeros ? nearImage(a, pixel, extent)
                                                 : a.clamp(pixel, 0, size - 1);
}

Status importGridSample(NodeImporter &node) {
  TensorBuilder &t = node.t;
  const Shape in(node.shape(0)), grid(node.shape(1));
  if (in.size() != 4 || grid.size() != 4 || grid.back() != 2 || grid[0] != in[0])
    return node.error("samples a tensor of shape " + shapeText({in.begin(), in.end()}) +
                      " at places of shape " + shapeText({grid.begin(), grid.end()}) +
                      "; images N x C x H x W and places N x H x W x 2 are supported");
  const std::string mode = node.getString("mode", "linear"),
                    padding = node.getString("padding_mode", "zeros");
  Sampling how{mode == "nearest", node.getInt("align_corners", 0) != 0};
  if (mode != "nearest" && mode != "linear" && mode != "bilinear")
    return node.error("mode '" + mode + "' is not supported; linear and nearest are");
  how.outside = padding == "border"       ? Sampling::Outside::Border
                : padding == "reflection" ? Sampling::Outside::Reflection
                                          : Sampling::Outside::Zeros;
  const Shape places{grid[0], grid[1], grid[2]};
  const int64_t height = in[2], width = in[3];
  const Value rows =
      t.reshape(t.transpose(node.in(0), {0, 2, 3, 1}), {in[0] * height * width, in[1]});
  const auto coordinate = [&](int64_t which) {
    return t.reshape(t.sliceAxis(node.in(1), 3, which, 1), places);
  };
  const Value x = coordinate(0), y = coordinate(1);
  SmallVector<int64_t> firsts;
  for (int64_t n = 0; n < in[0]; ++n)
    firsts.push_back(n * height * width);
  const Value first = t.reshape(t.integers(firsts), {in[0], 1, 1});
  const Value samples = sample(
      t, {rows, first, height, width}, {x, y},
      [&](Arithmetic &a, ValueRange at) -> SampledPlace {
        return {pixelOf(a, at[1], height, how), pixelOf(a, at[0], width, how), {}};
      },
      how.isNearest ? Interpolation::Nearest : Interpolation::Linear);
  return node.done(t.transpose(samples, {0, 3, 1, 2}));
}

} // namespace

void addGridSampleOps(HandlerTable &table) { table[":GridSample"] = importGridSample; }

} // namespace millrace::onnx_import
