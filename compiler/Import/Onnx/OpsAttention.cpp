// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// com.microsoft: Attention and MultiHeadAttention, as matmuls, a mask, a softmax.
// Source: the page ContribOperators of ONNX Runtime.
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Import/Onnx/MatMul.h"
#include "compiler/Import/Onnx/Normalization.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// Extents: B batches, S queries, T keys, of which P come from the past; N heads of D (values: of
/// V) channels.
struct Heads {
  int64_t batch = 1, queries = 1, keys = 1, past = 0, count = 1, size = 1, valueSize = 1;
  double scale = 1;
  bool causal = false;
  bool biased = false; ///< a bias of the model's is added to the scores
  double maskedScore = -10000;
};

/// x[b, s, offset : offset + N * D] as B x N x S x D.
Value splitHeads(TensorBuilder &t, Value x, int64_t offset, int64_t count, int64_t size) {
  Value part = t.sliceAxis(x, 2, offset, count * size);
  Shape shape{shapeOf(x)[0], shapeOf(x)[1], count, size};
  return t.transpose(t.reshape(part, shape), {0, 2, 1, 3});
}

Value mergeHeads(TensorBuilder &t, Value x) {
  Shape shape(shapeOf(x));
  return t.reshape(t.transpose(x, {0, 2, 1, 3}), {shape[0], shape[2], shape[1] * shape[3]});
}

/// scores[b, n, s, t] = sum over d of q[b, n, s, d] * k[b, n, t, d]: the maps transpose k.
Value scoreMatrix(TensorBuilder &t, Value q, Value k, const Heads &heads) {
  return t.contract(
      q, k, {heads.batch, heads.count, heads.queries, heads.keys},
      {t.select(5, {0, 1, 2, 4}), t.select(5, {0, 1, 3, 4}), t.select(5, {0, 1, 2, 3})}, {4});
}

/// Scores of keys that come after a query. ONNX Runtime adds the lowest number; three times what a
/// mask adds does the same in softmax, and fits into 16 bits. Beside a bias, which may be the lowest
/// number itself, nothing finite is lower still.
double laterScore(const Heads &heads) {
  if (heads.biased)
    return -std::numeric_limits<double>::infinity();
  return std::max<double>(std::numeric_limits<float>::lowest(),
                          std::min(-30000.0, 3 * heads.maskedScore));
}

/// What is added to the scores: 0 where a key is seen, `maskedScore` where a mask hides it; null if
/// all are seen. Masks: B x T or B x S x T of 0 and 1, or B key counts. Causal: query s sees the
/// keys up to past + s; the others lie so much lower that a row whose mask hides all that came
/// before still sees none that comes after.
Expected<Value> additiveMask(NodeImporter &node, Value mask, const Heads &heads) {
  TensorBuilder &t = node.t;
  if (!mask && !heads.causal)
    return Value();
  Shape shape{heads.batch, 1, heads.queries, heads.keys};
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  bool isCount = false;
  if (mask) {
    ArrayRef<int64_t> given = shapeOf(mask);
    isCount = given == ArrayRef<int64_t>{heads.batch};
    bool perQuery = given == ArrayRef<int64_t>{heads.batch, heads.queries, heads.keys};
    if (!isCount && !perQuery && given != ArrayRef<int64_t>{heads.batch, heads.keys})
      return node.error("a mask of shape " + shapeText({given.begin(), given.end()}) +
                        " is not supported; it must be " + shapeText({heads.batch, heads.keys}) +
                        " (batch x past and new tokens), " +
                        shapeText({heads.batch, heads.queries, heads.keys}) + " or " +
                        shapeText({heads.batch}));
    inputs.push_back(mask);
    maps.push_back(isCount    ? t.select(4, {0})
                   : perQuery ? t.select(4, {0, 2, 3})
                              : t.select(4, {0, 3}));
  }
  return t.map(shape, inputs, maps, t.ops().getF32Type(), [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    Value zero = a.constant(s.getF32Type(), 0),
          masked = a.constant(s.getF32Type(), heads.maskedScore);
    Value score = zero;
    if (!x.empty()) {
      Value wide = a.cast(x[0], s.getI64Type(), false);
      Value key = arith::IndexCastOp::create(s, s.getI64Type(), linalg::IndexOp::create(s, 3));
      Value seen = isCount ? a.compare(Arithmetic::Order::Less, key, wide)
                           : a.compare(Arithmetic::Order::Less, a.like(wide, 0), wide);
      score = a.choose(seen, zero, masked);
    }
    if (!heads.causal)
      return score;
    Value key = linalg::IndexOp::create(s, 3), query = linalg::IndexOp::create(s, 2);
    Value last = a.add(query, arith::ConstantIndexOp::create(s, heads.past));
    return a.choose(a.compare(Arithmetic::Order::LessOrEqual, key, last), score,
                    a.constant(s.getF32Type(), laterScore(heads)));
  });
}

/// softmax(q k^T * scale + masks...) v, heads merged: B x S x N * V.
Value attend(TensorBuilder &t, Value q, Value k, Value v, ArrayRef<Value> masks,
             const Heads &heads) {
  SmallVector<Value> inputs{scoreMatrix(t, q, k, heads)};
  for (Value mask : masks)
    if (mask)
      inputs.push_back(mask);
  Value scores = t.map(inputs, elementTypeOf(q), [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    Value result = a.mul(x[0], a.like(x[0], heads.scale));
    for (Value mask : x.drop_front())
      result = a.add(result, mask);
    return result;
  });
  Value weights = softmax(t, scores, 3);
  Value sums = t.contract(
      weights, v, {heads.batch, heads.count, heads.queries, heads.valueSize},
      {t.select(5, {0, 1, 2, 4}), t.select(5, {0, 1, 4, 3}), t.select(5, {0, 1, 2, 3})}, {4});
  return mergeHeads(t, sums);
}

/// Half `which` of a past tensor 2 x B x N x P x D.
Value pastHalf(TensorBuilder &t, Value past, int64_t which) {
  return t.reshape(t.sliceAxis(past, 0, which, 1), shapeOf(past).drop_front());
}

Value stack(TensorBuilder &t, Value first, Value second) {
  Shape shape(shapeOf(first));
  shape.insert(shape.begin(), 1);
  return t.concat({t.reshape(first, shape), t.reshape(second, shape)}, 0);
}

/// An error unless the heads divide the widths.
Status checkHeads(NodeImporter &node, ArrayRef<int64_t> widths) {
  int64_t count = node.getInt("num_heads", 0);
  for (int64_t width : widths)
    if (count < 1 || width < count || width % count != 0)
      return node.error(std::to_string(count) + " heads do not divide " + std::to_string(width) +
                        " channels");
  return Success{};
}

/// Inputs: x (B x S x I), weights (I x 3 N D), bias, mask, past (2 x B x N x P x D), attention
/// bias.
Status importAttention(NodeImporter &node) {
  TensorBuilder &t = node.t;
  if (node.getInt("do_rotary", 0) != 0 || node.has(6))
    return node.error("do_rotary and past_sequence_length are not supported");
  if (node.rank(0) != 3 || node.rank(1) != 2 || node.shape(0)[2] != node.shape(1)[0])
    return node.error("its input must be B x S x I and its weights I x 3 N D");
  Heads heads;
  heads.count = node.getInt("num_heads", 1);
  Shape widths = node.getInts("qkv_hidden_sizes");
  if (widths.empty())
    widths.assign(3, node.shape(1)[1] / 3);
  if (widths.size() != 3 || widths[0] != widths[1] ||
      widths[0] + widths[1] + widths[2] != node.shape(1)[1])
    return node.error("its qkv_hidden_sizes do not fit weights of " +
                      std::to_string(node.shape(1)[1]) + " columns");
  if (Status checked = checkHeads(node, widths); !checked)
    return checked;
  heads.batch = node.shape(0)[0];
  heads.queries = node.shape(0)[1];
  heads.size = widths[0] / heads.count;
  heads.valueSize = widths[2] / heads.count;
  heads.past = node.has(4) ? node.shape(4)[3] : 0;
  heads.keys = heads.past + heads.queries;
  double scale = node.getFloat("scale", 0);
  heads.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(heads.size));
  heads.causal = node.getInt("unidirectional", 0) != 0;
  heads.biased = node.has(5);
  heads.maskedScore = node.getFloat("mask_filter_value", -10000);

  Value joint = linear(node, node.in(0), node.in(1), node.has(2) ? node.in(2) : Value());
  Value q = splitHeads(t, joint, 0, heads.count, heads.size);
  Value k = splitHeads(t, joint, widths[0], heads.count, heads.size);
  Value v = splitHeads(t, joint, widths[0] + widths[1], heads.count, heads.valueSize);
  if (heads.past > 0) {
    k = t.concat({pastHalf(t, node.in(4), 0), k}, 2);
    v = t.concat({pastHalf(t, node.in(4), 1), v}, 2);
  }
  Expected<Value> mask = additiveMask(node, node.has(3) ? node.in(3) : Value(), heads);
  if (!mask)
    return mask.takeError();
  if (node.wants(1))
    node.set(1, stack(t, k, v), node.inType(0));
  return node.done(attend(t, q, k, v, {*mask, node.has(5) ? node.in(5) : Value()}, heads));
}

/// Inputs: query (B x S x N D), key, value (B x T x ...), bias (3 N D), mask, attention bias, past
/// key and value (B x N x P x D). Packed and cross-attention layouts (key of rank 4 or 5) are not
/// supported.
Status importMultiHeadAttention(NodeImporter &node) {
  TensorBuilder &t = node.t;
  if (!node.has(1) || !node.has(2) || node.rank(0) != 3 || node.rank(1) != 3 || node.rank(2) != 3)
    return node.error(
        "packed and 4-D layouts are not supported; query, key and value must have rank 3");
  Heads heads;
  heads.count = node.getInt("num_heads", 1);
  heads.batch = node.shape(0)[0];
  heads.queries = node.shape(0)[1];
  int64_t width = node.shape(0)[2], valueWidth = node.shape(2)[2];
  if (Status checked = checkHeads(node, {width, valueWidth}); !checked)
    return checked;
  heads.size = width / heads.count;
  heads.valueSize = valueWidth / heads.count;
  heads.past = node.has(6) ? node.shape(6)[2] : 0;
  heads.keys = heads.past + node.shape(1)[1];
  double scale = node.getFloat("scale", 0);
  heads.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(heads.size));
  heads.causal = node.getInt("unidirectional", 0) != 0;
  heads.biased = node.has(5);
  heads.maskedScore = node.getFloat("mask_filter_value", -10000);

  auto prepare = [&](size_t i, int64_t offset, int64_t size) {
    Value x = node.in(i);
    if (node.has(3)) {
      Value bias = t.sliceAxis(node.in(3), 0, offset, node.shape(i)[2]);
      x = t.map({x, bias}, elementTypeOf(x),
                [](Scalars &s, ValueRange y) { return Arithmetic(s).add(y[0], y[1]); });
    }
    return splitHeads(t, x, 0, heads.count, size);
  };
  Value q = prepare(0, 0, heads.size), k = prepare(1, width, heads.size),
        v = prepare(2, 2 * width, heads.valueSize);
  if (heads.past > 0) {
    k = t.concat({node.in(6), k}, 2);
    v = t.concat({node.in(7), v}, 2);
  }
  Expected<Value> mask = additiveMask(node, node.has(4) ? node.in(4) : Value(), heads);
  if (!mask)
    return mask.takeError();
  if (node.wants(1))
    node.set(1, k, node.inType(1));
  if (node.wants(2))
    node.set(2, v, node.inType(2));
  return node.done(attend(t, q, k, v, {*mask, node.has(5) ? node.in(5) : Value()}, heads));
}

} // namespace

void addAttentionOps(HandlerTable &table) {
  table["com.microsoft:Attention"] = needing({0, 1}, importAttention);
  table["com.microsoft:MultiHeadAttention"] = needing({0}, importMultiHeadAttention);
}

} // namespace millrace::onnx_import
