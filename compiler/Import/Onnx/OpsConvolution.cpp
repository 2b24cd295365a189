// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conv and ConvInteger in the layout N x C x spatial, weights M x C/group x kernel.
#include "compiler/Import/Onnx/Convolution.h"

#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/IntegerProduct.h"

#include <map>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

template <class Op>
Value createConvolution(NodeImporter &node, Value input, Value weights, ArrayRef<int64_t> shape,
                        const Window &window) {
  Value init = node.t.filled(shape, node.t.scalar(node.t.sumType(elementTypeOf(input)), 0));
  auto op = Op::create(node.t.ops(), TypeRange(init.getType()), ValueRange{input, weights},
                       ValueRange(init), windowAttribute(node, window.strides),
                       windowAttribute(node, window.dilations));
  return op->getResult(0);
}

/// Each channel by itself: weights C x 1 x kernel.
Value depthwise(NodeImporter &node, Value input, Value weights, ArrayRef<int64_t> shape,
                const Window &window) {
  Shape kernel{shape[1]};
  kernel.append(window.kernel);
  weights = node.t.reshape(weights, kernel);
  if (window.rank() == 1)
    return createConvolution<linalg::DepthwiseConv1DNcwCwOp>(node, input, weights, shape, window);
  if (window.rank() == 2)
    return createConvolution<linalg::DepthwiseConv2DNchwChwOp>(node, input, weights, shape, window);
  return createConvolution<linalg::DepthwiseConv3DNcdhwCdhwOp>(node, input, weights, shape, window);
}

/// Several results of each channel: a depthwise convolution for the first ones, for the second ones
/// and so on, whose channels are then interleaved.
Value depthwiseTimes(NodeImporter &node, Value input, Value weights, ArrayRef<int64_t> shape,
                     const Window &window) {
  TensorBuilder &t = node.t;
  const int64_t channels = shapeOf(input)[1], times = shape[1] / channels;
  Shape part(shape), parted(shape), offsets(shapeOf(weights).size(), 0), strides(offsets.size(), 1),
      kernel(shapeOf(weights));
  part[1] = kernel[0] = channels;
  strides[0] = times;
  SmallVector<Value> parts;
  for (int64_t i = 0; i < times; ++i) {
    offsets[0] = i;
    parts.push_back(
        depthwise(node, input, t.slice(weights, offsets, kernel, strides), part, window));
  }
  parted[1] = times;
  parted.insert(parted.begin() + 2, channels);
  Shape order = allAxes(int64_t(parted.size()));
  std::swap(order[1], order[2]);
  return t.reshape(t.transpose(t.reshape(t.concat(parts, 1), parted), order), shape);
}

/// Groups as a dimension of their own: loops n, group, results of one, positions, channels, taps.
Value grouped(NodeImporter &node, Value input, Value weights, ArrayRef<int64_t> shape,
              const Window &window, int64_t group) {
  TensorBuilder &t = node.t;
  const auto rank = static_cast<unsigned>(window.rank()), channel = 3 + rank, tap = channel + 1,
             loops = tap + rank;
  const auto loop = [&](unsigned l) { return t.ops().getAffineDimExpr(l); };
  const auto split = [&](ArrayRef<int64_t> all, unsigned dim) {
    Shape parted(all);
    parted[dim] /= group;
    parted.insert(parted.begin() + dim, group);
    return parted;
  };
  SmallVector<AffineExpr> in{loop(0), loop(1), loop(channel)};
  SmallVector<unsigned> kernel{1, 2, channel}, out{0, 1, 2}, summed{channel};
  for (unsigned i = 0; i < rank; ++i) {
    in.push_back(windowIndex(node, 3 + i, tap + i, window.strides[i], window.dilations[i]));
    kernel.push_back(tap + i);
    out.push_back(3 + i);
    summed.push_back(tap + i);
  }
  const Value result = t.contract(t.reshape(input, split(shapeOf(input), 1)),
                                  t.reshape(weights, split(shapeOf(weights), 0)), split(shape, 1),
                                  {AffineMap::get(loops, 0, in, t.ops().getContext()),
                                   t.select(loops, kernel), t.select(loops, out)},
                                  summed, t.sumType(elementTypeOf(input)));
  return t.reshape(result, shape);
}

} // namespace

Expected<Window> readConvolution(NodeImporter &node, Value input, Value weights) {
  ArrayRef<int64_t> in = shapeOf(input), kernel = shapeOf(weights);
  if (in.size() < 3 || in.size() > 5 || kernel.size() != in.size())
    return node.error("convolves tensors of rank " + std::to_string(in.size()) + " and " +
                      std::to_string(kernel.size()) + "; 1 to 3 spatial dimensions are supported");
  int64_t group = node.getInt("group", 1);
  if (group < 1 || in[1] != kernel[1] * group || kernel[0] % group != 0)
    return node.error(std::to_string(in[1]) + " channels do not fit weights of " +
                      std::to_string(kernel[0]) + " x " + std::to_string(kernel[1]) + " in " +
                      std::to_string(group) + " groups");
  Shape taps(kernel.drop_front(2)), given = node.getInts("kernel_shape", taps);
  if (given != taps)
    return node.error("its kernel_shape " + shapeText({given.begin(), given.end()}) +
                      " is not that of its weights, " + shapeText({taps.begin(), taps.end()}));
  return readWindow(node, in.drop_front(2), taps);
}

Value convolve(NodeImporter &node, Value input, Value weights, Window window) {
  int64_t group = node.getInt("group", 1);
  input = padWindow(node, input, window, node.t.scalar(elementTypeOf(input), 0));
  Shape shape{shapeOf(input)[0], shapeOf(weights)[0]};
  shape.append(window.outputs);
  if (group > 1 && group == shapeOf(input)[1])
    return group == shape[1] ? depthwise(node, input, weights, shape, window)
                             : depthwiseTimes(node, input, weights, shape, window);
  if (group > 1)
    return grouped(node, input, weights, shape, window, group);
  if (window.rank() == 1)
    return createConvolution<linalg::Conv1DNcwFcwOp>(node, input, weights, shape, window);
  if (window.rank() == 2)
    return createConvolution<linalg::Conv2DNchwFchwOp>(node, input, weights, shape, window);
  return createConvolution<linalg::Conv3DNcdhwFcdhwOp>(node, input, weights, shape, window);
}

Value addChannelBias(NodeImporter &node, Value input, Value bias) {
  auto rank = static_cast<unsigned>(shapeOf(input).size());
  auto identity = node.t.ops().getMultiDimIdentityMap(rank);
  return node.t.map(shapeOf(input), {input, bias}, {identity, node.t.select(rank, {1})},
                    elementTypeOf(input),
                    [](Scalars &s, ValueRange x) { return Arithmetic(s).add(x[0], x[1]); });
}

Value perChannel(NodeImporter &node, Value input, Value channels,
                 llvm::function_ref<Value(Arithmetic &, Value, Value)> body) {
  auto rank = static_cast<unsigned>(shapeOf(input).size());
  auto identity = node.t.ops().getMultiDimIdentityMap(rank);
  AffineMap map = shapeOf(channels).empty() ? node.t.select(rank, {}) : node.t.select(rank, {1});
  return node.t.map(shapeOf(input), {input, channels}, {identity, map}, elementTypeOf(input),
                    [&](Scalars &s, ValueRange x) {
                      Arithmetic a(s);
                      return body(a, x[0], x[1]);
                    });
}

namespace {

Status importConv(NodeImporter &node) {
  Expected<Window> window = readConvolution(node, node.in(0), node.in(1));
  if (!window)
    return window.takeError();
  Value result = convolve(node, node.in(0), node.in(1), *window);
  return node.done(node.has(2) ? addChannelBias(node, result, node.in(2)) : result);
}

/// For each channel and place of the result, the sum of the weights that lie on its window's
/// inside: 1 x M x places, or x 1 where no window leaves the input. Nothing if that is too large.
Value windowSums(TensorBuilder &t, const CentredConstant &weights, ArrayRef<int64_t> input,
                 const Window &window) {
  const int64_t channels = weights.shape()[0], taps = productOf(window.kernel),
                perTap = weights.shape()[1];
  std::vector<int32_t> ofTap(size_t(channels * taps), 0); // summed over the input's channels
  for (int64_t m = 0; m < channels; ++m)
    for (int64_t c = 0; c < perTap; ++c)
      for (int64_t k = 0; k < taps; ++k)
        ofTap[size_t(m * taps + k)] += int32_t(weights[(m * perTap + c) * taps + k]);
  const auto isZero = [](int64_t n) { return n == 0; };
  const bool isPadded = !llvm::all_of(window.low, isZero) || !llvm::all_of(window.high, isZero) ||
                        !llvm::all_of(window.extra, isZero);
  Shape places(window.outputs);
  if (!isPadded)
    places.assign(window.rank(), 1);
  const int64_t all = productOf(places);
  if (channels == 0 || all > kMostMade / channels)
    return nullptr;
  std::vector<int32_t> sums(size_t(channels * all));
  std::map<std::vector<std::pair<int64_t, int64_t>>, int64_t> first; // place of equal insides
  for (int64_t place = 0; place < all; ++place) {
    std::vector<std::pair<int64_t, int64_t>> inside(window.rank()); // taps [from, to)
    int64_t rest = place;
    for (size_t d = window.rank(); d-- > 0; rest /= places[d]) {
      const int64_t begin = isPadded ? rest % places[d] * window.strides[d] - window.low[d] : 0;
      auto &[from, to] = inside[d];
      while (from < window.kernel[d] && begin + from * window.dilations[d] < 0)
        ++from;
      to = from;
      while (to < window.kernel[d] &&
             (!isPadded || begin + to * window.dilations[d] < input[2 + d]))
        ++to;
    }
    const auto [same, isNew] = first.try_emplace(inside, place);
    for (int64_t m = 0; m < channels; ++m) {
      int32_t &sum = sums[size_t(m * all + place)];
      if (!isNew) {
        sum = sums[size_t(m * all + same->second)];
        continue;
      }
      for (int64_t k = 0; k < taps; ++k) {
        bool isInside = true;
        int64_t tap = k;
        for (size_t d = window.rank(); d-- > 0; tap /= window.kernel[d]) {
          const int64_t at = tap % window.kernel[d];
          isInside &= at >= inside[d].first && at < inside[d].second;
        }
        sum += isInside ? ofTap[size_t(m * taps + k)] : 0;
      }
    }
  }
  Shape shape{1, channels};
  shape.append(places);
  return int32Constant(t, shape, sums);
}

/// int32 sums of (x - zero point) * (w - zero point); exact.
Status importConvInteger(NodeImporter &node) {
  if (const std::optional<CentredConstant> constant = CentredConstant::of(node, 1, 3, 0)) {
    TensorBuilder &t = node.t;
    const SignedBytes x = signedBytes(node, 0, 2);
    const SmallVector<Value> parts = constant->parts(t);
    Expected<Window> window = readConvolution(node, x.bytes, parts.front());
    if (!window)
      return window.takeError();
    const bool isScalar = !x.zero || productOf(shapeOf(x.zero)) == 1;
    const Value zero = x.zero && isScalar ? t.reshape(x.zero, {}) : Value();
    const Value sums = zero ? windowSums(t, *constant, shapeOf(x.bytes), *window) : Value();
    if (isScalar && bool(zero) == bool(sums))
      return node.done(integerProduct(
                           t, zero, parts,
                           [&](Value part) { return convolve(node, x.bytes, part, *window); },
                           sums),
                       HostType::Int32);
  }
  Type i32 = node.t.ops().getI32Type();
  auto centred = [&](size_t i, size_t zeroPoint, unsigned channelLoop) {
    SmallVector<Value> inputs{node.in(i)};
    auto rank = static_cast<unsigned>(node.rank(i));
    SmallVector<AffineMap> maps{node.t.ops().getMultiDimIdentityMap(rank)};
    if (node.has(zeroPoint)) {
      inputs.push_back(node.in(zeroPoint));
      bool isScalar = productOf(node.shape(zeroPoint)) == 1;
      if (isScalar)
        inputs[1] = node.t.reshape(inputs[1], {});
      maps.push_back(isScalar ? node.t.select(rank, {}) : node.t.select(rank, {channelLoop}));
    }
    return node.t.map(node.shape(i), inputs, maps, i32, [&](Scalars &s, ValueRange x) {
      Arithmetic a(s, isUnsigned(node.inType(i)));
      Value wide = a.cast(x[0], i32, false);
      return x.size() == 2 ? a.sub(wide, a.cast(x[1], i32, false)) : wide;
    });
  };
  Value input = centred(0, 2, 1), weights = centred(1, 3, 0);
  Expected<Window> window = readConvolution(node, input, weights);
  if (!window)
    return window.takeError();
  return node.done(convolve(node, input, weights, *window), HostType::Int32);
}

} // namespace

void addConvolutionOps(HandlerTable &table) {
  table[":Conv"] = importConv;
  table[":ConvInteger"] = importConvInteger;
}

} // namespace millrace::onnx_import
