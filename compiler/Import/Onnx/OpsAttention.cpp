// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// com.microsoft: Attention, QAttention, MultiHeadAttention and GroupQueryAttention, as matmuls, a
// mask, a softmax; RotaryEmbedding. Source: the page ContribOperators of ONNX Runtime.
#include "compiler/Import/Onnx/Gather.h"
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
  double softcap = 0;  ///< c * tanh(score / c), before anything is added; 0: none
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
/// mask adds does the same in softmax, and fits into 16 bits. Beside a bias, which may be the
/// lowest number itself, nothing finite is lower still.
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
    if (heads.softcap != 0)
      result = a.mul(a.call<math::TanhOp>(a.div(result, a.like(result, heads.softcap))),
                     a.like(result, heads.softcap));
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

/// Which inputs of Attention and of its quantised form are what, as far as they differ.
struct PackedInputs {
  size_t mask, past;
  std::optional<size_t> bias; ///< of the scores
};

/// Attention whose input 0 (B x S x I) times input 1 (I x 3 N D) is what `project` makes: queries,
/// keys and values beside each other.
Status attendPacked(NodeImporter &node, const PackedInputs &inputs,
                    llvm::function_ref<Expected<Value>()> project) {
  TensorBuilder &t = node.t;
  if (node.getInt("do_rotary", 0) != 0)
    return node.error("do_rotary is not supported");
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
  const Value given = node.has(inputs.past) ? node.in(inputs.past) : Value();
  if (given && shapeOf(given).size() != 5)
    return node.error("its past must be 2 x B x N x P x D");
  heads.past = given ? shapeOf(given)[3] : 0;
  heads.keys = heads.past + heads.queries;
  double scale = node.getFloat("scale", 0);
  heads.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(heads.size));
  heads.causal = node.getInt("unidirectional", 0) != 0;
  heads.biased = inputs.bias && node.has(*inputs.bias);
  heads.maskedScore = node.getFloat("mask_filter_value", -10000);

  Expected<Value> joint = project();
  if (!joint)
    return joint.takeError();
  Value q = splitHeads(t, *joint, 0, heads.count, heads.size);
  Value k = splitHeads(t, *joint, widths[0], heads.count, heads.size);
  Value v = splitHeads(t, *joint, widths[0] + widths[1], heads.count, heads.valueSize);
  if (heads.past > 0) {
    k = t.concat({pastHalf(t, given, 0), k}, 2);
    v = t.concat({pastHalf(t, given, 1), v}, 2);
  }
  Expected<Value> mask =
      additiveMask(node, node.has(inputs.mask) ? node.in(inputs.mask) : Value(), heads);
  if (!mask)
    return mask.takeError();
  const HostType type = isFloat(node.inType(0)) ? node.inType(0) : HostType::Float32;
  if (node.wants(1))
    node.set(1, stack(t, k, v), type);
  return node.done(
      attend(t, q, k, v, {*mask, heads.biased ? node.in(*inputs.bias) : Value()}, heads), type);
}

/// Inputs: x (B x S x I), weights (I x 3 N D), bias, mask, past (2 x B x N x P x D), attention
/// bias.
Status importAttention(NodeImporter &node) {
  if (node.has(6))
    return node.error("past_sequence_length is not supported");
  return attendPacked(node, {3, 4, 5}, [&]() -> Expected<Value> {
    return linear(node, node.in(0), node.in(1), node.has(2) ? node.in(2) : Value());
  });
}

/// Inputs: x and weights (bytes), bias, both scales, mask, both zero points, past.
Status importQAttention(NodeImporter &node) {
  return attendPacked(node, {5, 8, std::nullopt}, [&] {
    return scaledProduct(node, signedBytes(node, 0, 6), 1, 7, node.in(3), node.in(4), node.in(2));
  });
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

/// Pairs of x (B x N x S x D) turned by the angles of which `cosines` and `sines` hold a row of R /
/// 2 for each token (1 or B x S x R / 2): lanes i and i + R / 2 of the first R, or neighbours.
Value rotate(TensorBuilder &t, Value x, Value cosines, Value sines, bool isInterleaved) {
  const Shape shape(shapeOf(x));
  const int64_t half = shapeOf(cosines)[2], turned = 2 * half, rest = shape[3] - turned;
  const Value first = rest ? t.sliceAxis(x, 3, 0, turned) : x;
  const auto negated = [&](Value part) {
    return t.map({part}, elementTypeOf(part),
                 [](Scalars &s, ValueRange v) { return Arithmetic(s).neg(v[0]); });
  };
  const auto ofPairs = [&](Value angles) { // 1 or B x 1 x S x R
    const Value both = isInterleaved ? t.repeat(angles, 2, 2) : t.concat({angles, angles}, 2);
    return t.reshape(both, {shapeOf(angles)[0], 1, shapeOf(angles)[1], turned});
  };
  Value other;
  if (isInterleaved) {
    const Value pairs = t.reshape(first, {shape[0], shape[1], shape[2], half, 2});
    other =
        t.reshape(t.concat({negated(t.sliceAxis(pairs, 4, 1, 1)), t.sliceAxis(pairs, 4, 0, 1)}, 4),
                  shapeOf(first));
  } else {
    other =
        t.concat({negated(t.sliceAxis(first, 3, half, half)), t.sliceAxis(first, 3, 0, half)}, 3);
  }
  const Value result = t.map({first, ofPairs(cosines), other, ofPairs(sines)}, elementTypeOf(x),
                             [](Scalars &s, ValueRange v) {
                               Arithmetic a(s);
                               return a.add(a.mul(v[0], v[1]), a.mul(v[2], v[3]));
                             });
  return rest ? t.concat({result, t.sliceAxis(x, 3, turned, rest)}, 3) : result;
}

/// Rows of the tables that inputs `at` and `at + 1` are, for tokens at `positions` (1 or B x S), or
/// the first S of them (null). Nothing if they do not fit D channels.
std::optional<std::pair<Value, Value>> angles(NodeImporter &node, size_t at, Value positions,
                                              int64_t tokens, int64_t channels) {
  TensorBuilder &t = node.t;
  Value rows[2];
  for (const size_t i : {0, 1}) {
    if (!node.has(at + i) || node.rank(at + i) != 2 || node.shape(at + i) != node.shape(at) ||
        2 * node.shape(at)[1] > channels || (!positions && node.shape(at)[0] < tokens))
      return std::nullopt;
    const Value table = node.in(at + i);
    rows[i] = positions
                  ? gather(t, table, positions, 0)
                  : t.reshape(t.sliceAxis(table, 0, 0, tokens), {1, tokens, node.shape(at)[1]});
  }
  return std::pair(rows[0], rows[1]);
}

/// Inputs: x (B x S x N D or B x N x S x D), positions (one that is the first token's, or B x S),
/// cosines and sines (positions x R / 2).
Status importRotaryEmbedding(NodeImporter &node) {
  TensorBuilder &t = node.t;
  if (node.getInt("is_packed_batching", 0) != 0 || node.getFloat("scale", 1) != 1)
    return node.error("is_packed_batching and a scale are not supported");
  const bool isSplit = node.rank(0) == 4;
  const int64_t given = node.getInt("num_heads", 0),
                half = node.rank(2) == 2 ? node.shape(2)[1] : 0,
                width = isSplit             ? node.shape(0)[3]
                        : node.rank(0) == 3 ? node.shape(0)[2]
                                            : 0,
                size = isSplit     ? width
                       : given > 0 ? width / given
                                   : 2 * half;
  if (size < 1 || width % size != 0)
    return node.error("its input and its tables do not fit each other");
  const int64_t tokens = node.shape(0)[isSplit ? 2 : 1];
  Value positions = node.in(1);
  if (productOf(shapeOf(positions)) == 1 && tokens > 1) { // of the first token
    const Value first = t.reshape(positions, {1, 1});
    positions = t.map(
        {1, tokens}, {first},
        {AffineMap::get(2, 0, {t.ops().getAffineConstantExpr(0), t.ops().getAffineConstantExpr(0)},
                        t.ops().getContext())},
        elementTypeOf(first), [](Scalars &s, ValueRange v) {
          Value index =
              arith::IndexCastOp::create(s, v[0].getType(), linalg::IndexOp::create(s, 1));
          return Arithmetic(s).add(v[0], index);
        });
  } else if (productOf(shapeOf(positions)) == tokens) {
    positions = t.reshape(positions, {1, tokens});
  }
  const auto rows = angles(node, 2, positions, tokens, size);
  if (!rows || shapeOf(positions).size() != 2)
    return node.error("its positions or its tables do not fit its input");
  const Value x = isSplit ? node.in(0) : splitHeads(t, node.in(0), 0, width / size, size);
  const Value turned = rotate(t, x, rows->first, rows->second, node.getInt("interleaved", 0) != 0);
  return node.done(isSplit ? turned : mergeHeads(t, turned));
}

/// What is added to the scores of GroupQueryAttention: 0 where query i sees key j. Its tokens
/// follow the first `seqlens - S + 1` of the P keys of the past, of which there may be more.
Value groupMask(NodeImporter &node, const Heads &heads, int64_t window) {
  TensorBuilder &t = node.t;
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  if (heads.past > 0) {
    inputs.push_back(t.reshape(node.in(5), {heads.batch}));
    maps.push_back(t.select(4, {0}));
  }
  return t.map({heads.batch, 1, heads.queries, heads.keys}, inputs, maps, t.ops().getF32Type(),
               [&](Scalars &s, ValueRange x) {
                 using Order = Arithmetic::Order;
                 Arithmetic a(s);
                 const Type i32 = s.getI32Type();
                 const auto index = [&](unsigned loop) -> Value {
                   return arith::IndexCastOp::create(s, i32, linalg::IndexOp::create(s, loop));
                 };
                 const auto number = [&](int64_t n) { return a.constant(i32, double(n)); };
                 const Value key = index(3), query = index(2), past = number(heads.past),
                             zero = a.constant(s.getF32Type(), 0),
                             hidden = a.constant(s.getF32Type(), laterScore(heads));
                 // Keys known before: those there are. New ones: up to the query.
                 const Value known = x.empty() ? past : a.sub(x[0], number(heads.queries - 1));
                 const Value isNew = a.compare(Order::LessOrEqual, past, key);
                 const Value last = a.choose(isNew, a.add(past, query), a.sub(known, number(1)));
                 Value score = a.choose(a.compare(Order::LessOrEqual, key, last), zero, hidden);
                 if (window < 0)
                   return score;
                 const Value place = a.choose(isNew, a.add(known, a.sub(key, past)), key),
                             first = a.sub(a.add(known, query), number(window - 1));
                 return a.choose(a.compare(Order::LessOrEqual, first, place), score, hidden);
               });
}

/// Inputs: query (B x S x N D, or with keys and values behind it in one), key and value (B x S x K
/// D), past key and value (B x K x P x D), for each batch the number of its last token, the number
/// of all tokens, cosines and sines, positions, a bias of the scores. Tokens are appended to the
/// past.
Status importGroupQueryAttention(NodeImporter &node) {
  TensorBuilder &t = node.t;
  const int64_t keyHeads = node.getInt("kv_num_heads", 0);
  Heads heads;
  heads.count = node.getInt("num_heads", 0);
  if (node.rank(0) != 3 || keyHeads < 1 || heads.count < 1 || heads.count > kMostElements ||
      heads.count % keyHeads != 0)
    return node.error("its query must be B x S x N D, and its kv_num_heads divide its num_heads");
  if (node.has(11) || node.getInt("smooth_softmax", 0) > 0)
    return node.error("head_sink and smooth_softmax are not supported");
  const bool isPacked = !node.has(1);
  heads.batch = node.shape(0)[0];
  heads.queries = node.shape(0)[1];
  const int64_t all = isPacked ? heads.count + 2 * keyHeads : heads.count;
  heads.size = heads.valueSize = node.shape(0)[2] / all;
  const Shape keyShape{heads.batch, heads.queries, keyHeads * heads.size};
  if (node.shape(0)[2] % all != 0 || heads.size < 1 ||
      (!isPacked && (!node.has(2) || node.shape(1) != ArrayRef(keyShape) ||
                     node.shape(2) != ArrayRef(keyShape))))
    return node.error("its heads do not divide its query, or key and value are not B x S x K D");
  if (node.has(3)) {
    if (!node.has(4) || node.rank(3) != 4 || node.shape(3) != node.shape(4) ||
        node.shape(3)[0] != heads.batch || node.shape(3)[1] != keyHeads ||
        node.shape(3)[3] != heads.size)
      return node.error("its past does not fit its keys");
    heads.past = node.shape(3)[2];
  }
  heads.keys = heads.past + heads.queries;
  if (const auto total = node.has(6) ? node.constantIntegers(6) : std::nullopt;
      total && total->size() == 1 && (*total)[0] != heads.keys)
    return node.error("of " + std::to_string((*total)[0]) + " tokens in all, " +
                      std::to_string(heads.past) + " lie in the past and " +
                      std::to_string(heads.queries) +
                      " are new; a past with room for new ones is not supported");
  if (node.rank(5) > 2 || productOf(node.shape(5)) != heads.batch)
    return node.error("its seqlens_k has no number for each batch");
  const double scale = node.getFloat("scale", 0);
  heads.scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(heads.size));
  heads.softcap = node.getFloat("softcap", 0);
  heads.biased = node.has(10);

  const Value keys = isPacked ? node.in(0) : node.in(1),
              values = isPacked ? node.in(0) : node.in(2);
  const int64_t keysAt = isPacked ? heads.count * heads.size : 0,
                valuesAt = isPacked ? keysAt + keyHeads * heads.size : 0;
  Value q = splitHeads(t, node.in(0), 0, heads.count, heads.size),
        k = splitHeads(t, keys, keysAt, keyHeads, heads.size),
        v = splitHeads(t, values, valuesAt, keyHeads, heads.size);
  if (node.getInt("do_rotary", 0) != 0) {
    Value positions;
    if (node.has(9))
      positions = t.reshape(node.in(9), {heads.batch, heads.queries});
    else if (heads.past > 0)
      positions = t.map({heads.batch, heads.queries}, {t.reshape(node.in(5), {heads.batch})},
                        {t.select(2, {0})}, t.ops().getI32Type(), [&](Scalars &s, ValueRange x) {
                          Arithmetic a(s);
                          Value index = arith::IndexCastOp::create(s, s.getI32Type(),
                                                                   linalg::IndexOp::create(s, 1));
                          return a.add(a.sub(x[0], a.like(x[0], double(heads.queries - 1))), index);
                        });
    const auto rows = angles(node, 7, positions, heads.queries, heads.size);
    if (!rows)
      return node.error("its cos_cache and sin_cache do not fit its heads");
    const bool isInterleaved = node.getInt("rotary_interleaved", 0) != 0;
    q = rotate(t, q, rows->first, rows->second, isInterleaved);
    k = rotate(t, k, rows->first, rows->second, isInterleaved);
  }
  if (heads.past > 0) {
    k = t.concat({node.in(3), k}, 2);
    v = t.concat({node.in(4), v}, 2);
  }
  if (node.wants(1))
    node.set(1, k, node.inType(0));
  if (node.wants(2))
    node.set(2, v, node.inType(0));
  const int64_t times = heads.count / keyHeads;
  return node.done(attend(t, q, t.repeat(k, 1, times), t.repeat(v, 1, times),
                          {groupMask(node, heads, node.getInt("local_window_size", -1)),
                           node.has(10) ? node.in(10) : Value()},
                          heads));
}

} // namespace

void addAttentionOps(HandlerTable &table) {
  table["com.microsoft:Attention"] =
      needing({0, 1}, typed({reals(0, 3), reals(1, 2), reals(2, 1)}, importAttention));
  table["com.microsoft:QAttention"] =
      needing({0, 1, 2, 3, 4},
              typed({bytes(0, 3), bytes(1, 2), reals(2, 1), reals(3), reals(4)}, importQAttention));
  table["com.microsoft:MultiHeadAttention"] =
      needing({0}, typed({reals(0), reals(1), reals(2), reals(3, 1)}, importMultiHeadAttention));
  table["com.microsoft:GroupQueryAttention"] =
      needing({0, 5}, typed({reals(0), reals(1), reals(2), reals(3), reals(4), indices(5)},
                            importGroupQueryAttention));
  table["com.microsoft:RotaryEmbedding"] = needing(
      {0, 1, 2, 3}, typed({reals(0), indices(1), reals(2, 2), reals(3, 2)}, importRotaryEmbedding));
}

} // namespace millrace::onnx_import
