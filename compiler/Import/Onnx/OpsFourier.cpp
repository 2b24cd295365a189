// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The discrete Fourier transform, as a product with a constant matrix, and that of frames of a
// signal, as a convolution.
#include "compiler/Import/Onnx/Arithmetic.h"
#include "compiler/Import/Onnx/Convolution.h"
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Support/Constants.h"

#include <cmath>
#include <numbers>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// What a transform reads and makes along its dimension.
struct Transform {
  int64_t length = 0;            ///< of the signal, cut or with zeros behind it
  int64_t given = 0, wanted = 0; ///< elements of the dimension
  int64_t parts = 1, made = 2;   ///< 1: real numbers; 2: complex ones, real part first
  bool isInverse = false, isOneSided = false;
};

/// What part `from` of each element adds to part `to` of each frequency, or the inverse.
std::vector<float> matrixOf(const Transform &f, int64_t from, int64_t to) {
  std::vector<float> matrix(size_t(f.given * f.wanted));
  const double scale = f.isInverse ? 1.0 / double(f.length) : 1, sign = f.isInverse ? 1 : -1;
  for (int64_t j = 0; j < std::min(f.given, f.length); ++j)
    for (int64_t k = 0; k < f.wanted; ++k) {
      const double angle =
          sign * 2 * std::numbers::pi * double(j * k % f.length) / double(f.length);
      // Of a one-sided spectrum each element but the first and the middle one stands for two, one
      // of them conjugated.
      const double twice = f.isInverse && f.isOneSided && j > 0 && 2 * j != f.length ? 2 : 1;
      const double factor = from == to  ? std::cos(angle)
                            : from == 0 ? std::sin(angle)
                                        : -std::sin(angle);
      matrix[size_t(j * f.wanted + k)] = float(twice * scale * factor);
    }
  return matrix;
}

Status importDft(NodeImporter &node) {
  TensorBuilder &t = node.t;
  const int64_t rank = node.rank(0);
  std::optional<Shape> length, axes;
  if (node.has(1) && !(length = node.constantIntegers(1)))
    return node.error("its length is not constant");
  if (node.has(2) && !(axes = node.constantIntegers(2)))
    return node.error("its axis is not constant");
  // An attribute up to opset 19 (1 if there is none), an input since (the last but one).
  if (rank != 3 && !node.attribute("axis") && !axes)
    return node.error("state its axis: which one is meant without depends on the opset");
  const int64_t usual = axes && !axes->empty() ? axes->front() : node.getInt("axis", 1);
  const std::optional<int64_t> axis = normalAxis(usual, rank);
  if (rank < 2 || !axis || *axis == rank - 1 || !isFloat(node.inType(0)))
    return node.error("its axis " + std::to_string(usual) + " is none of a signal's of rank " +
                      std::to_string(rank));
  const Shape in(node.shape(0));
  Transform f;
  f.isInverse = node.getInt("inverse", 0) != 0;
  f.isOneSided = node.getInt("onesided", 0) != 0;
  f.given = in[size_t(*axis)];
  f.parts = in.back();
  f.length = length && !length->empty()    ? length->front()
             : f.isInverse && f.isOneSided ? 2 * (f.given - 1)
                                           : f.given;
  f.wanted = f.isOneSided && !f.isInverse ? f.length / 2 + 1 : f.length;
  f.made = f.isInverse && f.isOneSided ? 1 : 2;
  if (f.parts < 1 || f.parts > 2 || f.length < 1)
    return node.error("transforms " + std::to_string(f.length) + " numbers of " +
                      std::to_string(f.parts) + " parts");
  if (f.isInverse && f.isOneSided)
    f.given = std::min(f.given, f.length / 2 + 1);
  if (f.given > kMostMade / f.wanted)
    return node.error("a transform of " + std::to_string(f.length) +
                      " numbers is too long for a product; up to 8192 are done");
  Shape order = allAxes(rank - 1); // the axis last; its own inverse
  std::swap(order[size_t(*axis)], order.back());
  const Value signal = t.sliceAxis(node.in(0), *axis, 0, f.given);
  Shape whole(shapeOf(signal).drop_back());
  SmallVector<Value> made;
  for (int64_t to = 0; to < f.made; ++to) {
    Value sum;
    for (int64_t from = 0; from < f.parts; ++from) {
      const Value part =
          t.transpose(t.reshape(t.sliceAxis(signal, rank - 1, from, 1), whole), order);
      const int64_t rows = productOf(whole) / f.given;
      const Value matrix = t.reals({f.given, f.wanted}, matrixOf(f, from, to), elementTypeOf(part));
      const Value its =
          t.contract(t.reshape(part, {rows, f.given}), matrix, {rows, f.wanted},
                     {t.select(3, {0, 2}), t.select(3, {2, 1}), t.select(3, {0, 1})}, {2});
      sum = !sum ? its : t.map({sum, its}, elementTypeOf(its), [](Scalars &s, ValueRange x) {
        return Arithmetic(s).add(x[0], x[1]);
      });
    }
    Shape shape, result(whole);
    for (const int64_t dim : order)
      shape.push_back(whole[size_t(dim)]);
    shape.back() = result[size_t(*axis)] = f.wanted;
    result.push_back(1);
    made.push_back(t.reshape(t.transpose(t.reshape(sum, shape), order), result));
  }
  return node.done(t.concat(made, rank - 1));
}

/// The transform of each frame of a signal, each times a window, is a convolution with the waves
/// times that.
Status importStft(NodeImporter &node) {
  TensorBuilder &t = node.t;
  const Shape in(node.shape(0));
  const std::optional<Shape> step = node.constantIntegers(1);
  std::optional<Shape> length;
  if (!step || step->size() != 1 || (node.has(3) && !(length = node.constantIntegers(3))))
    return node.error("its frame_step or frame_length is not constant");
  std::optional<ConstantView> window;
  if (node.has(2) && !(window = viewConstant(node.in(2))))
    return node.error("its window is not constant");
  if (in.size() < 2 || in.size() > 3 || (in.size() == 3 && in[2] != 1) || !isFloat(node.inType(0)))
    return node.error("its signal is none of real numbers, batch x length (x 1)");
  const int64_t given = length && !length->empty() ? length->front()
                        : window                   ? node.shape(2)[0]
                                                   : 0,
                every = step->front();
  if (given < 1 || given > in[1] || every < 1 || (window && node.shape(2)[0] != given))
    return node.error("takes frames of " + std::to_string(given) + " of " + std::to_string(in[1]) +
                      " numbers, every " + std::to_string(every));
  Transform f{given, given, given, 1, 2, false, node.getInt("onesided", 1) != 0};
  f.wanted = f.isOneSided ? given / 2 + 1 : given;
  if (given > kMostMade / (2 * f.wanted))
    return node.error("a transform of " + std::to_string(given) +
                      " numbers is too long for a product; up to 8192 are done");
  std::vector<float> waves;
  for (int64_t part = 0; part < f.made; ++part) {
    const std::vector<float> matrix = matrixOf(f, 0, part);
    for (int64_t k = 0; k < f.wanted; ++k)
      for (int64_t j = 0; j < given; ++j)
        waves.push_back(matrix[size_t(j * f.wanted + k)] *
                        float(window ? window->real(window->splat ? 0 : j) : 1.0));
  }
  const int64_t frames = (in[1] - given) / every + 1;
  const Value signal = t.reshape(node.in(0), {in[0], 1, in[1]}),
              weights = t.reals({f.made * f.wanted, 1, given}, waves, elementTypeOf(signal)),
              made =
                  convolve(node, signal, weights, {{given}, {every}, {1}, {0}, {0}, {0}, {frames}});
  return node.done(t.transpose(t.reshape(made, {in[0], f.made, f.wanted, frames}), {0, 3, 2, 1}));
}

} // namespace

void addFourierOps(HandlerTable &table) {
  table[":DFT"] = importDft;
  table[":STFT"] = importStft;
}

} // namespace millrace::onnx_import
