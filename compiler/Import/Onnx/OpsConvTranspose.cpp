// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ConvTranspose and Col2Im. The first is a convolution that makes, at each place of the input, a
// block of results as large as the strides: each phase of the block is a channel more. The blocks
// are then laid out in space. A result of phase r at place q takes kernel element k times the input
// at
//
//   q + (r + pad - dilation * k) / stride,    where that is whole,
//
// so that all phases see one window of the input, and no zeros are put between its elements.
#include "compiler/Import/Onnx/Convolution.h"

#include "compiler/Import/Onnx/Handlers.h"

#include <algorithm>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// One spatial dimension.
struct Spread {
  int64_t inputs = 0, kernel = 0, stride = 1, dilation = 1;
  int64_t pad = 0, outputs = 0;          ///< results that are cut off before the first one; results
  int64_t first = 0, step = 1, taps = 1; ///< of the window: input elements from q + first on
  /// Of which the window meets the input: results behind those take nothing.
  int64_t places() const { return std::min((outputs + stride - 1) / stride, inputs - first); }
  /// Behind the last element that the window reaches.
  int64_t end() const { return places() + first + (taps - 1) * step; }
  /// The kernel's element that a phase takes at a tap; none: `kernel`.
  int64_t element(int64_t phase, int64_t tap) const {
    const int64_t k = phase + pad - stride * (first + tap * step);
    return k % dilation == 0 && k >= 0 && k / dilation < kernel ? k / dilation : kernel;
  }
  void findWindow() {
    step = stride == 1 ? dilation : 1;
    int64_t last = INT64_MIN;
    first = INT64_MAX;
    for (int64_t phase = 0; phase < stride; ++phase)
      for (int64_t k = 0; k < kernel; ++k)
        if (const int64_t at = phase + pad - dilation * k; at % stride == 0) {
          first = std::min(first, at / stride);
          last = std::max(last, at / stride);
        }
    taps = (last - first) / step + 1;
  }
};

/// Strides, pads and sizes, as attributes state them in any of three ways.
Expected<SmallVector<Spread>> readSpreads(NodeImporter &node, ArrayRef<int64_t> in,
                                          ArrayRef<int64_t> kernel) {
  const size_t rank = in.size() - 2;
  const Shape strides = node.getInts("strides", Shape(rank, 1)),
              dilations = node.getInts("dilations", Shape(rank, 1)),
              pads = node.getInts("pads", Shape(2 * rank, 0)),
              tail = node.getInts("output_padding", Shape(rank, 0));
  Shape wanted = node.getInts("output_shape", {});
  if (wanted.size() == rank + 2) // some exporters name batch and channels, too
    wanted.erase(wanted.begin(), wanted.begin() + 2);
  const auto isBelow = [](ArrayRef<int64_t> values, int64_t least) {
    return llvm::any_of(values, [least](int64_t value) { return value < least; });
  };
  if (strides.size() != rank || dilations.size() != rank || pads.size() != 2 * rank ||
      tail.size() != rank || (!wanted.empty() && wanted.size() != rank) || isBelow(strides, 1) ||
      isBelow(dilations, 1) || isBelow(tail, 0))
    return node.error("its window attributes do not fit " + std::to_string(rank) +
                      " spatial dimensions");
  const std::string automatic = node.getString("auto_pad", "NOTSET");
  const bool isSame = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  SmallVector<Spread> spreads;
  for (size_t i = 0; i < rank; ++i) {
    Spread d{in[i + 2], kernel[i + 2], strides[i], dilations[i]};
    const int64_t all = (d.inputs - 1) * d.stride + (d.kernel - 1) * d.dilation + 1 + tail[i];
    d.pad = automatic == "NOTSET" ? pads[i] : 0;
    d.outputs = automatic == "NOTSET" ? all - pads[i] - pads[rank + i] : all;
    if (!wanted.empty() || isSame) {
      d.outputs = wanted.empty() ? d.inputs * d.stride : wanted[i];
      const int64_t total = std::max<int64_t>(0, all - d.outputs);
      d.pad = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
    }
    if (d.outputs < 1)
      return node.error("its pads leave no result in dimension " + std::to_string(i + 2));
    d.findWindow();
    if (d.first >= d.inputs || d.end() <= 0)
      return node.error("no result of dimension " + std::to_string(i + 2) + " meets the input");
    spreads.push_back(d);
  }
  return spreads;
}

/// Weights C x M/group x kernel as M/group results of each phase, phase by phase in each group:
/// (group, phases, M/group) x C/group x taps.
Value weightsOfPhases(TensorBuilder &t, Value weights, int64_t group, ArrayRef<Spread> spreads) {
  const int64_t inputs = shapeOf(weights)[0], results = shapeOf(weights)[1];
  const size_t rank = spreads.size();
  const Value zero = t.scalar(elementTypeOf(weights), 0);
  for (size_t i = 0; i < rank; ++i) {
    const Spread &d = spreads[i];
    const auto dim = int64_t(i + 2);
    Shape low(rank + 2, 0), high(rank + 2, 0);
    high[size_t(dim)] = 1; // for taps that a phase does not take
    const Value padded = t.pad(weights, low, high, zero);
    SmallVector<Value> elements;
    for (int64_t phase = 0; phase < d.stride; ++phase)
      for (int64_t tap = 0; tap < d.taps; ++tap)
        elements.push_back(t.sliceAxis(padded, dim, d.element(phase, tap), 1));
    weights = t.concat(elements, dim);
  }
  Shape parted{group, inputs / group, results}, order{0}, taps, shape{group * results};
  for (size_t i = 0; i < rank; ++i) {
    parted.append({spreads[i].stride, spreads[i].taps});
    order.push_back(int64_t(3 + 2 * i));
    taps.push_back(int64_t(4 + 2 * i));
    shape.front() *= spreads[i].stride;
  }
  order.append({2, 1});
  order.append(taps);
  shape.push_back(inputs / group);
  for (const Spread &d : spreads)
    shape.push_back(d.taps);
  return t.reshape(t.transpose(t.reshape(weights, parted), order), shape);
}

/// N x (group, phases, M/group) x places as N x M x outputs, with zeros behind what there is.
Value layOutBlocks(TensorBuilder &t, Value blocks, int64_t group, ArrayRef<Spread> spreads) {
  const size_t rank = spreads.size();
  Shape parted{shapeOf(blocks)[0], group}, order{0, 1, int64_t(2 + rank)}, shape;
  int64_t phases = 1;
  for (const Spread &d : spreads) {
    parted.push_back(d.stride);
    phases *= d.stride;
  }
  const int64_t channels = shapeOf(blocks)[1] / phases;
  parted.push_back(channels / group);
  shape = {parted.front(), channels};
  Shape sizes(shape), none(rank + 2, 0), high(none);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t made = spreads[i].places() * spreads[i].stride;
    parted.push_back(spreads[i].places());
    order.append({int64_t(3 + rank + i), int64_t(2 + i)});
    shape.push_back(made);
    sizes.push_back(std::min(made, spreads[i].outputs));
    high[i + 2] = spreads[i].outputs - sizes.back();
  }
  const Value all = t.reshape(t.transpose(t.reshape(blocks, parted), order), shape);
  return t.pad(t.slice(all, none, sizes), none, high, t.scalar(elementTypeOf(blocks), 0));
}

/// The part of the input that the window reaches, with zeros where it reaches further.
Value reached(TensorBuilder &t, Value input, ArrayRef<Spread> spreads) {
  Shape offsets{0, 0}, sizes(shapeOf(input).take_front(2)), low{0, 0}, high{0, 0};
  for (const Spread &d : spreads) {
    const int64_t begin = std::max<int64_t>(0, d.first), end = std::min(d.inputs, d.end());
    offsets.push_back(begin);
    sizes.push_back(end - begin);
    low.push_back(begin - d.first);
    high.push_back(d.end() - end);
  }
  return t.pad(t.slice(input, offsets, sizes), low, high, t.scalar(elementTypeOf(input), 0));
}

Status importConvTranspose(NodeImporter &node) {
  TensorBuilder &t = node.t;
  const Shape in(node.shape(0)), kernel(node.shape(1));
  const int64_t group = node.getInt("group", 1);
  if (in.size() < 3 || in.size() > 5 || kernel.size() != in.size())
    return node.error("convolves tensors of rank " + std::to_string(in.size()) + " and " +
                      std::to_string(kernel.size()) + "; 1 to 3 spatial dimensions are supported");
  if (kernel[0] != in[1] || group < 1 || in[1] % group != 0)
    return node.error(std::to_string(in[1]) + " channels do not fit weights of " +
                      std::to_string(kernel[0]) + " x " + std::to_string(kernel[1]) + " in " +
                      std::to_string(group) + " groups");
  const Expected<SmallVector<Spread>> spreads = readSpreads(node, in, kernel);
  if (!spreads)
    return Error{spreads.error()};
  Window window;
  for (const Spread &d : *spreads) {
    window.kernel.push_back(d.taps);
    window.strides.push_back(1);
    window.dilations.push_back(d.step);
    window.outputs.push_back(d.places());
    for (Shape *none : {&window.low, &window.high, &window.extra})
      none->push_back(0);
  }
  const Value blocks = convolve(node, reached(t, node.in(0), *spreads),
                                weightsOfPhases(t, node.in(1), group, *spreads), window);
  const Value result = layOutBlocks(t, blocks, group, *spreads);
  return node.done(node.has(2) ? addChannelBias(node, result, node.in(2)) : result);
}

/// Sums columns of one spatial dimension to where they overlap: axis `taps` of the kernel's extent
/// goes, axis `places` of the input's becomes the outputs'.
Value addColumns(TensorBuilder &t, Value columns, int64_t taps, int64_t places, const Spread &d) {
  const size_t rank = shapeOf(columns).size();
  const Value zero = t.scalar(elementTypeOf(columns), 0);
  Shape low(rank, 0), high(rank, 0);
  high[size_t(taps)] = 1; // for taps that a phase does not take
  low[size_t(places)] = std::max<int64_t>(0, -d.first);
  high[size_t(places)] = std::max<int64_t>(0, d.end() - d.inputs);
  const Value padded = t.pad(columns, low, high, zero);
  Value sum;
  for (int64_t tap = 0; tap < d.taps; ++tap) {
    SmallVector<Value> phases;
    for (int64_t phase = 0; phase < d.stride; ++phase)
      phases.push_back(t.sliceAxis(t.sliceAxis(padded, taps, d.element(phase, tap), 1), places,
                                   d.first + low[size_t(places)] + tap * d.step, d.places()));
    const Value its = t.concat(phases, taps);
    sum = !sum ? its : t.map({sum, its}, elementTypeOf(its), [](Scalars &s, ValueRange x) {
      return Arithmetic(s).add(x[0], x[1]);
    });
  }
  Shape order, joined;
  for (size_t dim = 0; dim < rank; ++dim) { // phases behind places
    if (int64_t(dim) == taps)
      continue;
    order.push_back(int64_t(dim));
    joined.push_back(shapeOf(sum)[dim]);
    if (int64_t(dim) == places) {
      order.push_back(taps);
      joined.back() *= d.stride;
    }
  }
  const auto at = size_t(places - (taps < places));
  const Value all = t.reshape(t.transpose(sum, order), joined);
  Shape none(rank - 1, 0), sizes(joined), behind(none);
  sizes[at] = std::min(sizes[at], d.outputs);
  behind[at] = d.outputs - sizes[at];
  return t.pad(t.slice(all, none, sizes), none, behind, zero);
}

/// N x (C, kernel) x places: what a window saw of each place, added up where it lay.
Status importCol2Im(NodeImporter &node) {
  const std::optional<Shape> image = node.constantIntegers(1), kernel = node.constantIntegers(2);
  if (!image || !kernel)
    return node.error("its shapes of the image and of the block are not constant");
  const size_t rank = image->size();
  const Shape strides = node.getInts("strides", Shape(rank, 1)),
              dilations = node.getInts("dilations", Shape(rank, 1)),
              pads = node.getInts("pads", Shape(2 * rank, 0)), in(node.shape(0));
  if (rank < 1 || in.size() != 3 || kernel->size() != rank || strides.size() != rank ||
      dilations.size() != rank || pads.size() != 2 * rank)
    return node.error("its window attributes do not fit " + std::to_string(rank) +
                      " spatial dimensions");
  SmallVector<Spread> spreads;
  for (size_t i = 0; i < rank; ++i) {
    Spread d{0, (*kernel)[i], strides[i], dilations[i], pads[i], (*image)[i]};
    const int64_t reach = (d.kernel - 1) * d.dilation + 1,
                  padded = d.outputs + pads[i] + pads[rank + i];
    if (d.kernel < 1 || d.stride < 1 || d.dilation < 1 || padded < reach)
      return node.error("its block does not fit dimension " + std::to_string(i) + " of the image");
    d.inputs = (padded - reach) / d.stride + 1;
    d.findWindow();
    spreads.push_back(d);
  }
  const int64_t taps = productOf(*kernel);
  int64_t places = 1;
  for (const Spread &d : spreads)
    places *= d.inputs;
  if (in[1] % taps || in[2] != places)
    return node.error("its " + std::to_string(in[1]) + " x " + std::to_string(in[2]) +
                      " columns are not " + std::to_string(places) + " of blocks of " +
                      std::to_string(taps));
  Shape parted{in[0], in[1] / taps};
  parted.append(*kernel);
  for (const Spread &d : spreads)
    parted.push_back(d.inputs);
  Value columns = node.t.reshape(node.in(0), parted);
  for (size_t i = 0; i < rank; ++i) // the first of the kernel's axes goes each time
    columns = addColumns(node.t, columns, 2, int64_t(2 + (rank - i) + i), spreads[i]);
  return node.done(columns);
}

} // namespace

void addConvTransposeOps(HandlerTable &table) {
  table[":ConvTranspose"] = importConvTranspose;
  table[":Col2Im"] = importCol2Im;
}

} // namespace millrace::onnx_import
