// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Softmax, batch, layer, instance and local response normalisation.
#include "compiler/Import/Onnx/Convolution.h"
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/Normalization.h"
#include "compiler/Import/Onnx/Quantization.h"
#include "compiler/Import/Onnx/Reduction.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/IR/Matchers.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Shape axesFrom(int64_t axis, int64_t rank) {
  Shape axes;
  for (int64_t i = axis; i < rank; ++i)
    axes.push_back(i);
  return axes;
}

/// A map of `input` and of `statistic`, which lacks `axes`.
Value mapWith(TensorBuilder &t, Value input, Value statistic, ArrayRef<int64_t> axes,
              llvm::function_ref<Value(Arithmetic &, Value, Value)> body) {
  auto rank = static_cast<unsigned>(shapeOf(input).size());
  return t.map(shapeOf(input), {input, statistic},
               {t.ops().getMultiDimIdentityMap(rank), t.withoutAxes(rank, axes)},
               elementTypeOf(input), [&](Scalars &s, ValueRange x) {
                 Arithmetic a(s);
                 return body(a, x[0], x[1]);
               });
}

Value sumOfSquares(TensorBuilder &t, Value input, ArrayRef<int64_t> axes) {
  return t.reduce(input, axes, t.scalar(elementTypeOf(input), 0),
                  [](Scalars &s, Value x, Value sum) {
                    Arithmetic a(s);
                    return a.add(sum, a.mul(x, x));
                  });
}

double countOver(Value input, ArrayRef<int64_t> axes) {
  double count = 1;
  for (int64_t axis : axes)
    count *= static_cast<double>(shapeOf(input)[axis]);
  return count;
}

/// 1 / sqrt(squares / count + epsilon)
Value inverseDeviation(TensorBuilder &t, Value squares, double count, double epsilon) {
  return t.map({squares}, elementTypeOf(squares), [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    Value variance = a.div(x[0], a.like(x[0], count));
    Value deviation = a.call<math::SqrtOp>(a.add(variance, a.like(variance, epsilon)));
    return a.div(a.like(deviation, 1), deviation);
  });
}

/// centred * inverse deviation * scale + bias, in one map.
Value scaleAndShift(TensorBuilder &t, Value centred, Value inverse, ArrayRef<int64_t> axes,
                    double count, Value scale, Value bias) {
  ArrayRef<int64_t> shape = shapeOf(centred);
  auto rank = static_cast<unsigned>(shape.size());
  SmallVector<Value> inputs{centred, inverse};
  SmallVector<AffineMap> maps{t.ops().getMultiDimIdentityMap(rank), t.withoutAxes(rank, axes)};
  for (Value parameter : {scale, bias}) {
    if (!parameter)
      continue;
    inputs.push_back(parameter);
    maps.push_back(t.broadcastMap(shapeOf(parameter), shape));
  }
  return t.map(shape, inputs, maps, elementTypeOf(centred), [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    const double most = 1.1 * std::sqrt(count); // all of the deviation in one element
    Value result = a.within(a.mul(x[0], x[1]), -most, most);
    if (scale)
      result = a.mul(result, x[2]);
    return bias ? a.add(result, x.back()) : result;
  });
}

} // namespace

Value softmax(TensorBuilder &t, Value input, int64_t axis, bool takeLog) {
  Value centred = mapWith(t, input, t.reduceMax(input, {axis}), {axis},
                          [&](Arithmetic &a, Value x, Value greatest) {
                            Value below = a.sub(x, greatest); // a logarithm keeps what is lowest
                            return takeLog ? below : a.within(below, -kInfinity, 0);
                          });
  Value powers = t.map({centred}, elementTypeOf(input), [](Scalars &s, ValueRange x) {
    return Arithmetic(s).call<math::ExpOp>(x[0]);
  });
  Value sum = t.reduceSum(powers, {axis});
  const double most = std::log(static_cast<double>(shapeOf(input)[axis])); // the greatest gives 1
  if (takeLog)
    return mapWith(t, centred, sum, {axis}, [&](Arithmetic &a, Value x, Value total) {
      return a.sub(x, a.within(a.call<math::LogOp>(total), 0, most + 1));
    });
  return mapWith(t, powers, sum, {axis}, [](Arithmetic &a, Value x, Value total) {
    return a.within(a.div(x, total), 0, 1.01);
  });
}

LayerNorm layerNorm(TensorBuilder &t, Value input, int64_t axis, double epsilon, Value scale,
                    Value bias) {
  Shape axes = axesFrom(axis, static_cast<int64_t>(shapeOf(input).size()));
  Value mean = meanOver(t, input, axes);
  Value centred =
      mapWith(t, input, mean, axes, [](Arithmetic &a, Value x, Value m) { return a.sub(x, m); });
  const double count = countOver(input, axes);
  Value inverse = inverseDeviation(t, sumOfSquares(t, centred, axes), count, epsilon);
  return {scaleAndShift(t, centred, inverse, axes, count, scale, bias), mean, inverse};
}

LayerNorm rmsNorm(TensorBuilder &t, Value input, int64_t axis, double epsilon, Value scale) {
  Shape axes = axesFrom(axis, static_cast<int64_t>(shapeOf(input).size()));
  const double count = countOver(input, axes);
  Value inverse = inverseDeviation(t, sumOfSquares(t, input, axes), count, epsilon);
  return {scaleAndShift(t, input, inverse, axes, count, scale, Value()), Value(), inverse};
}

namespace {

/// The sum over the block that each index of the last dimension lies in, of `parts` equal blocks,
/// handed back to every member.
Value sumOfBlocks(TensorBuilder &t, Value input, int64_t parts) {
  const Shape shape(shapeOf(input));
  const int64_t extent = shape.back(), rows = productOf(shape) / extent, block = extent / parts;
  Value sums = t.reduceSum(t.reshape(input, {rows, parts, block}), {2});
  t.keepFp32(sums);
  Value handed = t.broadcast(t.reshape(sums, {rows, parts, 1}), {rows, parts, block});
  if (handed != sums)
    t.keepFp32(handed);
  return t.reshape(handed, shape);
}

/// A tensor of which the dimensions from `axis` on are normalised together: all of them, or with
/// blocks of the dimension before, of which there are `parts`.
struct Normalised {
  Value input;
  int64_t axis;
  int64_t parts = 0;
};

/// Normalises with blocks. Whole dimensions are summed first, then what is left of a block, in
/// fp32: the tensor itself is read as it is. `scale` and `bias` (may be null) broadcast to the
/// tensor.
Value groupNorm(TensorBuilder &t, const Normalised &of, double epsilon, Value scale, Value bias) {
  const auto [input, axis, parts] = of;
  const Shape axes = axesFrom(axis, int64_t(shapeOf(input).size()));
  const double count = countOver(input, axes) * double(shapeOf(input)[axis - 1] / parts);
  Value sums = t.reduceSum(input, axes);
  t.keepFp32(sums);
  Value total = sumOfBlocks(t, sums, parts);
  Value mean = t.map({total}, elementTypeOf(total), [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    return a.div(x[0], a.like(x[0], count));
  });
  t.keepFp32(mean);
  Value centred =
      mapWith(t, input, mean, axes, [](Arithmetic &a, Value x, Value m) { return a.sub(x, m); });
  Value squares = sumOfSquares(t, centred, axes);
  t.keepFp32(squares);
  Value inverse = inverseDeviation(t, sumOfBlocks(t, squares, parts), count, epsilon);
  t.keepFp32(inverse);
  return scaleAndShift(t, centred, inverse, axes, count, scale, bias);
}

Handler softmaxOp(bool takeLog) {
  return [takeLog](NodeImporter &node) -> Status {
    std::optional<int64_t> axis = normalAxis(node.getInt("axis", -1), node.rank(0));
    if (!axis)
      return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
    return node.done(softmax(node.t, node.in(0), *axis, takeLog));
  };
}

/// In training mode: with the statistics of the batch itself, which outputs 1 and 2 mix with those
/// that are given. Networks standardise weights in this way.
Status normaliseBatch(NodeImporter &node) {
  TensorBuilder &t = node.t;
  Value input = node.in(0);
  const int64_t rank = node.rank(0);
  Shape axes = axesFrom(2, rank), perChannel(size_t(rank) - 1, 1);
  axes.insert(axes.begin(), 0);
  perChannel.front() = node.shape(0)[1];
  const double count = countOver(input, axes), momentum = node.getFloat("momentum", 0.9);
  Value mean = meanOver(t, input, axes);
  Value centred =
      mapWith(t, input, mean, axes, [](Arithmetic &a, Value x, Value m) { return a.sub(x, m); });
  Value squares = sumOfSquares(t, centred, axes);
  Value inverse = inverseDeviation(t, squares, count, node.getFloat("epsilon", 1e-5));
  for (Value statistic : {mean, inverse}) // an error in them moves all elements
    t.keepFp32(statistic);
  for (const auto &[output, statistic, divisor] :
       {std::tuple(1, mean, 1.0), std::tuple(2, squares, count)})
    if (node.wants(size_t(output)))
      node.set(size_t(output),
               t.map({node.in(size_t(output) + 2), statistic}, elementTypeOf(statistic),
                     [&](Scalars &s, ValueRange x) {
                       Arithmetic a(s);
                       return a.add(a.mul(x[0], a.like(x[0], momentum)),
                                    a.mul(x[1], a.like(x[1], (1 - momentum) / divisor)));
                     }),
               node.inType(size_t(output) + 2));
  return node.done(scaleAndShift(t, centred, inverse, axes, count,
                                 t.reshape(node.in(1), perChannel),
                                 t.reshape(node.in(2), perChannel)));
}

/// (x - mean) / sqrt(variance + epsilon) * scale + bias per channel, with statistics that are
/// inputs.
Status importBatchNorm(NodeImporter &node) {
  if (node.rank(0) < 2)
    return node.error("normalises a tensor of rank " + std::to_string(node.rank(0)) +
                      "; the rank must be at least 2");
  if (node.getInt("training_mode", 0) != 0)
    return normaliseBatch(node);
  TensorBuilder &t = node.t;
  Value input = node.in(0);
  double epsilon = node.getFloat("epsilon", 1e-5);
  auto rank = static_cast<unsigned>(node.rank(0));
  AffineMap channel = t.select(rank, {1});
  SmallVector<Value> inputs{input};
  SmallVector<AffineMap> maps{t.ops().getMultiDimIdentityMap(rank)};
  for (size_t i : {1, 2, 3, 4}) {
    inputs.push_back(node.in(i));
    maps.push_back(channel);
  }
  return node.done(
      t.map(node.shape(0), inputs, maps, elementTypeOf(input), [&](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        Value deviation = a.call<math::SqrtOp>(a.add(x[4], a.like(x[4], epsilon)));
        return a.add(a.mul(a.div(a.sub(x[0], x[3]), deviation), x[1]), x[2]);
      }));
}

/// Where a tensor of this shape divides into `count` groups of neighbouring elements: how it is
/// normalised in them.
std::optional<Normalised> inGroups(Value input, int64_t count) {
  ArrayRef<int64_t> shape = shapeOf(input);
  int64_t axis = 0;
  while (axis < int64_t(shape.size()) && count % shape[axis] == 0 &&
         (count > 1 || shape[axis] == 1))
    count /= shape[axis++];
  if (count == 1)
    return Normalised{input, axis};
  if (axis + 1 >= int64_t(shape.size()) || shape[axis] % count != 0)
    return std::nullopt;
  return Normalised{input, axis + 1, count};
}

/// The first `axis` dimensions of `input` are its groups. The same elements in more dimensions, if
/// reshapes merged some: sums over pixels and channels need no tensor in which they lie in one row.
Normalised unmerged(Value input, int64_t axis) {
  const int64_t groups = productOf(shapeOf(input).take_front(axis));
  const auto summed = [](const Normalised &of) { // dimensions, of those that are not 1
    return llvm::count_if(shapeOf(of.input).drop_front(of.axis),
                          [](int64_t extent) { return extent != 1; }) +
           (of.parts ? 1 : 0);
  };
  Normalised best{input, axis};
  for (Operation *op = input.getDefiningOp();
       isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op);
       op = op->getOperand(0).getDefiningOp())
    if (std::optional<Normalised> next = inGroups(op->getOperand(0), groups);
        next && summed(*next) + (next->parts ? 1 : 0) > summed(best))
      best = *next;
  return best;
}

/// Parameters that each image has alike, one for some of the indices of the first `outer`
/// dimensions of `input`, in a shape that broadcasts to it. Null for a splat of `neutral`.
Value atGroups(TensorBuilder &t, Value parameters, double neutral, int64_t images, Value input,
               int64_t outer) {
  if (DenseElementsAttr constant; matchPattern(parameters, m_Constant(&constant)) &&
                                  constant.isSplat() &&
                                  constant.getSplatValue<APFloat>().convertToDouble() == neutral)
    return Value();
  const int64_t count = productOf(shapeOf(parameters));
  Shape shape(shapeOf(input).take_front(outer));
  const int64_t block = productOf(shape) / images / count;
  shape.resize(shapeOf(input).size(), 1);
  return t.reshape(t.broadcast(t.reshape(parameters, {1, count, 1}), {images, count, block}),
                   shape);
}

/// Normalises groups of the elements of each image, of `shape` N x C x ... Scales and biases
/// (inputs 1 and 2) differ along the first `outer` dimensions.
Expected<Value> normaliseGroups(NodeImporter &node, const Normalised &of, int64_t outer,
                                ArrayRef<int64_t> shape) {
  TensorBuilder &t = node.t;
  const int64_t channels = shape[1];
  for (size_t i : {1, 2})
    if (const int64_t count = productOf(node.shape(i)); count != channels)
      return node.error("input " + std::to_string(i) + " has " + std::to_string(count) +
                        " elements where there are " + std::to_string(channels) + " channels");
  const double epsilon = node.getFloat("epsilon", 1e-5);
  const auto parameters = [&](size_t i, double neutral) {
    return atGroups(t, node.in(i), neutral, shape[0], of.input, outer);
  };
  Value scale = parameters(1, 1), bias = parameters(2, 0);
  if (of.parts)
    return t.reshape(groupNorm(t, of, epsilon, scale, bias), shape);
  LayerNorm norm = layerNorm(t, of.input, of.axis, epsilon, scale, bias);
  for (Value statistic : {norm.mean, norm.inverseDeviation}) // an error in them moves all elements
    t.keepFp32(statistic);
  return t.reshape(norm.result, shape);
}

/// Normalises each channel of each image by itself.
Status importInstanceNorm(NodeImporter &node) {
  if (node.rank(0) < 3)
    return node.error("normalises a tensor of rank " + std::to_string(node.rank(0)) +
                      "; the rank must be at least 3");
  const Normalised of = unmerged(reshapedLast(node.t, node.in(0)), 2);
  Expected<Value> result = normaliseGroups(node, of, of.axis, node.shape(0));
  return result ? node.done(*result) : Status(result.takeError());
}

/// Normalises groups of channels; scale and bias are per channel.
Expected<Value> normaliseGroups(NodeImporter &node, Value input, const char *attribute) {
  const int64_t groups = node.getInt(attribute, 0);
  const Shape shape(shapeOf(input));
  const int64_t channels = shape[1];
  if (groups < 1 || channels % groups != 0)
    return node.error(std::string(attribute) + " " + std::to_string(groups) +
                      " does not divide its " + std::to_string(channels) + " channels");
  if (shape.size() == 2)
    input = node.t.reshape(input, {shape[0], channels, 1});
  if (groups == 1)
    return normaliseGroups(node, {input, 1}, 2, shape);
  return normaliseGroups(node, {input, 2, groups == channels ? 0 : groups}, 2, shape);
}

Status importGroupNorm(NodeImporter &node) {
  if (node.rank(0) < 2)
    return node.error("normalises a tensor of rank " + std::to_string(node.rank(0)) +
                      "; the rank must be at least 2");
  Expected<Value> result = normaliseGroups(node, node.in(0), "num_groups");
  return result ? node.done(*result) : Status(result.takeError());
}

/// com.microsoft: inputs x (N x H x W x C, or N x C x H x W without channels_last), scale, bias
/// and, of SkipGroupNorm, what is added before: another x (or N x C) and C numbers (may be absent).
/// The sum is output 1.
Handler imageGroupNorm(bool skips) {
  return [skips](NodeImporter &node) -> Status {
    TensorBuilder &t = node.t;
    if (node.rank(0) != 4)
      return node.error("normalises a tensor of rank " + std::to_string(node.rank(0)) +
                        "; the rank must be 4");
    const bool isLast = node.getInt("channels_last", 1) != 0;
    const auto ofChannels = [&](Value x) { // N x C or C, so that it broadcasts to the images
      const Shape given(shapeOf(x));
      if (given.size() > 2 || given.empty())
        return x;
      Shape shape(4, 1);
      shape[isLast ? 3 : 1] = given.back();
      shape[0] = given.size() == 2 ? given[0] : 1;
      return t.reshape(x, shape);
    };
    SmallVector<Value> added{node.in(0)};
    for (size_t i : {3, 4})
      if (skips && node.has(i))
        added.push_back(ofChannels(node.in(i)));
    for (const Value x : added)
      if (const auto shape = broadcastShapes(shapeOf(x), node.shape(0));
          !shape || ArrayRef(*shape) != node.shape(0))
        return node.error("what is added does not fit its input");
    Value sum = node.in(0);
    if (added.size() > 1)
      sum = t.map(added, elementTypeOf(sum), [](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        Value result = x.front();
        for (Value other : x.drop_front())
          result = a.add(result, other);
        return result;
      });
    if (skips && node.wants(1))
      node.set(1, sum, node.inType(0));
    Expected<Value> normal =
        normaliseGroups(node, isLast ? t.transpose(sum, {0, 3, 1, 2}) : sum, "groups");
    if (!normal)
      return normal.takeError();
    Value result = isLast ? t.transpose(*normal, {0, 2, 3, 1}) : *normal;
    if (node.getInt("activation", 0) != 0)
      result = t.map({result}, elementTypeOf(result), [](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        return a.mul(x[0], a.sigmoid(x[0]));
      });
    return node.done(result);
  };
}

/// Statistics come with extent 1 where they were reduced.
Status setLayerNorm(NodeImporter &node, const LayerNorm &norm, int64_t axis, size_t meanAt,
                    size_t inverseAt) {
  Shape kept = keepDims(shapeOf(norm.result),
                        axesFrom(axis, static_cast<int64_t>(shapeOf(norm.result).size())));
  node.set(0, norm.result, node.inType(0));
  if (norm.mean && node.wants(meanAt))
    node.set(meanAt, node.t.reshape(norm.mean, kept), HostType::Float32);
  if (node.wants(inverseAt))
    node.set(inverseAt, node.t.reshape(norm.inverseDeviation, kept), HostType::Float32);
  return Success{};
}

Status importLayerNorm(NodeImporter &node) {
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", -1), node.rank(0));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  Value bias = node.has(2) ? node.in(2) : Value();
  LayerNorm norm =
      layerNorm(node.t, node.in(0), *axis, node.getFloat("epsilon", 1e-5), node.in(1), bias);
  return setLayerNorm(node, norm, *axis, 1, 2);
}

Status importRmsNorm(NodeImporter &node) {
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", -1), node.rank(0));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  LayerNorm norm = rmsNorm(node.t, node.in(0), *axis, node.getFloat("epsilon", 1e-5), node.in(1));
  return setLayerNorm(node, norm, *axis, node.outputCount(), 1);
}

/// com.microsoft: inputs x, skip, gamma, beta, bias; the normalised sum, and the sum as output 3.
Handler skipLayerNorm(bool simplified) {
  return [simplified](NodeImporter &node) -> Status {
    size_t biasAt = simplified ? 3 : 4;
    SmallVector<Value> inputs{node.in(0), node.in(1)};
    if (node.has(biasAt))
      inputs.push_back(node.in(biasAt));
    Value sum = node.t.map(inputs, elementTypeOf(node.in(0)), [](Scalars &s, ValueRange x) {
      Arithmetic a(s);
      Value result = a.add(x[0], x[1]);
      return x.size() == 3 ? a.add(result, x[2]) : result;
    });
    if (node.rank(0) == 0 || shapeOf(sum) != node.shape(0))
      return node.error("what is added does not fit its input");
    int64_t axis = node.rank(0) - 1;
    for (size_t i = 2; i < biasAt; ++i)
      if (node.has(i) && node.shape(i) != node.shape(0).take_back())
        return node.error(
            "input " + std::to_string(i) + " has " + std::to_string(productOf(node.shape(i))) +
            " elements; give it one dimension of " + std::to_string(node.shape(0).back()));
    double epsilon = node.getFloat("epsilon", 1e-12);
    Value bias = !simplified && node.has(3) ? node.in(3) : Value();
    LayerNorm norm = simplified ? rmsNorm(node.t, sum, axis, epsilon, node.in(2))
                                : layerNorm(node.t, sum, axis, epsilon, node.in(2), bias);
    if (node.wants(3))
      node.set(3, sum, node.inType(0));
    return setLayerNorm(node, norm, axis, 1, 2);
  };
}

/// x / (bias + alpha / size * sum of squares over `size` channels around)^beta. The sum is a
/// pooling over channels: loops n, c, rest..., tap on the padded squares.
Status importLrn(NodeImporter &node) {
  TensorBuilder &t = node.t;
  Value input = node.in(0);
  int64_t size = node.getInt("size", 1);
  double alpha = node.getFloat("alpha", 1e-4), beta = node.getFloat("beta", 0.75),
         bias = node.getFloat("bias", 1);
  auto rank = static_cast<unsigned>(node.rank(0));
  Type type = elementTypeOf(input);
  Value squares =
      t.map({input}, type, [](Scalars &s, ValueRange x) { return Arithmetic(s).mul(x[0], x[0]); });
  Shape low(rank, 0), high(rank, 0);
  low[1] = (size - 1) / 2;
  high[1] = size - 1 - low[1];
  Value padded = t.pad(squares, low, high, t.scalar(type, 0));
  SmallVector<AffineExpr> in;
  for (unsigned i = 0; i < rank; ++i)
    in.push_back(t.ops().getAffineDimExpr(i));
  in[1] = in[1] + t.ops().getAffineDimExpr(rank);
  SmallVector<utils::IteratorType> iterators(rank + 1, utils::IteratorType::parallel);
  iterators[rank] = utils::IteratorType::reduction;
  Value init = t.filled(node.shape(0), t.scalar(type, 0)), window = t.empty({size}, type);
  SmallVector<AffineMap> maps{AffineMap::get(rank + 1, 0, in, t.ops().getContext()),
                              t.select(rank + 1, {rank}),
                              t.withoutAxes(rank + 1, {static_cast<int64_t>(rank)})};
  auto sums = linalg::GenericOp::create(
      t.ops(), TypeRange(init.getType()), ValueRange{padded, window}, ValueRange(init), maps,
      iterators, [](OpBuilder &builder, Location loc, ValueRange x) {
        Scalars s(loc, builder);
        linalg::YieldOp::create(s, Arithmetic(s).add(x[2], x[0]));
      });
  return node.done(t.map({input, sums.getResult(0)}, type, [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    Value scaled = a.mul(x[1], a.like(x[1], alpha / static_cast<double>(size)));
    Value base = a.add(scaled, a.like(scaled, bias));
    return a.div(x[0], math::PowFOp::create(s, base, a.like(base, beta)));
  }));
}

} // namespace

void addNormalizationOps(HandlerTable &table) {
  table[":Softmax"] = softmaxOp(false);
  table[":LogSoftmax"] = softmaxOp(true);
  table[":BatchNormalization"] = importBatchNorm;
  table[":InstanceNormalization"] = importInstanceNorm;
  table[":GroupNormalization"] = importGroupNorm;
  table[":LayerNormalization"] = needing({0, 1}, importLayerNorm);
  table[":RMSNormalization"] = table[":SimplifiedLayerNormalization"] =
      needing({0, 1}, importRmsNorm);
  table["com.microsoft:SkipLayerNormalization"] =
      needing({0, 1, 2}, typed({reals(0), reals(1), reals(2)}, skipLayerNorm(false)));
  table["com.microsoft:SkipSimplifiedLayerNormalization"] =
      needing({0, 1, 2}, typed({reals(0), reals(1), reals(2)}, skipLayerNorm(true)));
  table["com.microsoft:GroupNorm"] =
      needing({0, 1, 2}, typed({reals(0), reals(1), reals(2)}, imageGroupNorm(false)));
  table["com.microsoft:SkipGroupNorm"] =
      needing({0, 1, 2, 3}, typed({reals(0), reals(1), reals(2), reals(3)}, imageGroupNorm(true)));
  table[":LRN"] = importLrn;
}

} // namespace millrace::onnx_import
