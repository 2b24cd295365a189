// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// DeformConv: a convolution whose taps lie at places that are data. The image is sampled at each
// tap of each window; the samples are the channels of a convolution of one tap.
#include "compiler/Import/Onnx/Convolution.h"
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/Sampling.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// Where the taps of the windows lie along dimension `d` before they are moved: 1 x 1 x taps x
/// positions, of all taps of both dimensions, with extent 1 for the positions of the other.
Value regularPlaces(TensorBuilder &t, const Window &window, size_t d, Type type) {
  SmallVector<float> places;
  const int64_t taps = productOf(window.kernel);
  for (int64_t tap = 0; tap < taps; ++tap)
    for (int64_t i = 0; i < window.outputs[d]; ++i) {
      const int64_t along = d == 0 ? tap / window.kernel[1] : tap % window.kernel[1];
      places.push_back(float(i * window.strides[d] - window.low[d] + along * window.dilations[d]));
    }
  Shape shape{1, 1, taps, 1, 1};
  shape[3 + d] = window.outputs[d];
  return t.reals(shape, places, type);
}

/// Inputs: x (N x C x H x W), weights (M x C / group x kH x kW), offsets (N x offset groups, kH, kW
/// and (y, x) as one dimension x positions), bias (M), mask (N x offset groups, kH and kW as one x
/// positions).
Status importDeformConv(NodeImporter &node) {
  TensorBuilder &t = node.t;
  if (node.rank(0) != 4)
    return node.error("convolves a tensor of rank " + std::to_string(node.rank(0)) +
                      "; two spatial dimensions are supported");
  Expected<Window> window = readConvolution(node, node.in(0), node.in(1));
  if (!window)
    return window.takeError();
  const Shape in(node.shape(0));
  const int64_t taps = productOf(window->kernel), parts = node.getInt("offset_group", 1),
                height = in[2], width = in[3];
  if (parts < 1 || in[1] % parts != 0)
    return node.error(std::to_string(parts) + " offset groups do not divide " +
                      std::to_string(in[1]) + " channels");
  const int64_t channels = in[1] / parts;
  const auto fits = [&](size_t i, int64_t each) {
    Shape shape{in[0], parts * taps * each};
    shape.append(window->outputs);
    return node.shape(i) == ArrayRef(shape);
  };
  if (!fits(2, 2) || (node.has(4) && !fits(4, 1)))
    return node.error("its offsets or its mask do not have the shape of its windows");
  if (node.has(3) && node.shape(3) != ArrayRef<int64_t>{node.shape(1)[0]})
    return node.error("its bias does not have a number for each channel of its result");

  const Value rows = t.reshape(
      t.transpose(t.reshape(node.in(0), {in[0], parts, channels, height, width}), {0, 1, 3, 4, 2}),
      {in[0] * parts * height * width, channels});
  SmallVector<int64_t> firsts;
  for (int64_t i = 0; i < in[0] * parts; ++i)
    firsts.push_back(i * height * width);
  const Shape places{in[0], parts, taps, window->outputs[0], window->outputs[1]};
  Shape moves(places);
  moves.insert(moves.begin() + 3, 2);
  const Value offsets = t.reshape(node.in(2), moves);
  const auto moved = [&](int64_t which) {
    return t.reshape(t.sliceAxis(offsets, 3, which, 1), places);
  };
  const Type real = elementTypeOf(node.in(0));
  SmallVector<Value> at{moved(0), moved(1), regularPlaces(t, *window, 0, real),
                        regularPlaces(t, *window, 1, real)};
  if (node.has(4))
    at.push_back(t.reshape(node.in(4), places));
  const Value samples = sample(
      t, {rows, t.reshape(t.integers(firsts), {in[0], parts, 1, 1, 1}), height, width}, at,
      [&](Arithmetic &a, ValueRange x) -> SampledPlace {
        return {nearImage(a, a.add(x[2], x[0]), height), nearImage(a, a.add(x[3], x[1]), width),
                x.size() == 5 ? x[4] : Value()};
      },
      Interpolation::Linear);

  const Value columns = t.reshape(t.transpose(samples, {0, 1, 5, 2, 3, 4}),
                                  {in[0], in[1] * taps, places[3], places[4]});
  const Value weights = t.reshape(node.in(1), {node.shape(1)[0], node.shape(1)[1] * taps, 1, 1});
  const Window single{{1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {0, 0}, window->outputs};
  const Value result = convolve(node, columns, weights, single);
  return node.done(node.has(3) ? addChannelBias(node, result, node.in(3)) : result);
}

} // namespace

void addDeformConvOps(HandlerTable &table) { table[":DeformConv"] = importDeformConv; }

} // namespace millrace::onnx_import
