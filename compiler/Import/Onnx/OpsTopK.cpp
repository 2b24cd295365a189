// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The k largest (or smallest) elements along an axis, in order, and their indices. Of equal
// elements the one of the lower index comes first. Nothing is sorted: what is chosen follows from
// comparisons alone, element by element.
#include "compiler/Import/Onnx/Handlers.h"

#include "compiler/Support/OnnxValue.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// The axis is the last one, indices are numbers of `type`.
class TopK {
public:
  TopK(TensorBuilder &t, Value input, int64_t k, bool largest, bool isUnsigned)
      : t(t), input(input), k(k), largest(largest), isUnsigned(isUnsigned), outer(shapeOf(input)),
        n(outer.pop_back_val()), type(elementTypeOf(input)), rank(unsigned(outer.size())) {}

  /// Values and indices, [outer..., k].
  std::pair<Value, Value> choose() { return comparesAllPairs() ? byRanks() : byRounds(); }

private:
  TensorBuilder &t;
  Value input;
  int64_t k;
  bool largest, isUnsigned;
  Shape outer;
  int64_t n;
  Type type;
  unsigned rank; ///< of `outer`

  Type indexType() { return t.ops().getF32Type(); }

  /// Vectors that work either way: all pairs and the choice, or two reductions a round, each of
  /// which waits for the one before.
  bool comparesAllPairs() const {
    constexpr int64_t kLatency = 200;
    return n * n + 2 * k * n <= 2 * k * (n + kLatency);
  }

  Shape with(std::initializer_list<int64_t> last) const {
    Shape shape(outer);
    shape.append(last);
    return shape;
  }
  /// (outer..., further loops...) to (outer..., the named ones of the further loops).
  AffineMap along(unsigned further, std::initializer_list<unsigned> named) {
    SmallVector<unsigned> loops;
    for (unsigned i = 0; i < rank; ++i)
      loops.push_back(i);
    for (unsigned loop : named)
      loops.push_back(rank + loop);
    return t.select(rank + further, loops);
  }
  AffineMap only(unsigned further, unsigned loop) {
    return t.select(rank + further, {rank + loop});
  }

  /// 0, 1 ... count - 1.
  Value numbers(int64_t count) {
    SmallVector<float> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(i));
    return t.reals({count}, values, indexType());
  }
  /// Made outside of the bodies that use it.
  Value worst() { return largest ? t.lowest(type, isUnsigned) : t.highest(type, isUnsigned); }
  Value before(Arithmetic &a, Value x, Value y) {
    return largest ? a.compare(Arithmetic::Order::Less, y, x)
                   : a.compare(Arithmetic::Order::Less, x, y);
  }

  /// What the element has of which so many others (0, 1 ... k - 1) are before: of what is `least`
  /// elsewhere the greatest, which a sum of fp32 in parts would round.
  Value pick(Value ranks, Value what, AffineMap map, Value least) {
    Value chosen =
        t.map(with({k, n}), {ranks, numbers(k), what}, {along(2, {1}), only(2, 0), map},
              elementTypeOf(what), [&](Scalars &s, ValueRange x) {
                Arithmetic a(s);
                return a.choose(a.compare(Arithmetic::Order::Equal, x[0], x[1]), x[2], least);
              });
    if (Operation *op = chosen.getDefiningOp(); op && isa<FloatType>(elementTypeOf(what)))
      op->setAttr(kKeepFp32, t.ops().getUnitAttr());
    return t.reduce(chosen, {int64_t(rank) + 1}, least, [&](Scalars &s, Value x, Value sum) {
      return Arithmetic(s, isUnsigned).max(sum, x);
    });
  }

  std::pair<Value, Value> byRanks() {
    SmallVector<float> earlier(size_t(n * n), 0); // [i][j]: 1 if j < i
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < i; ++j)
        earlier[size_t(i * n + j)] = 1;
    Value pairs = t.map(with({n, n}), {input, input, t.reals({n, n}, earlier, indexType())},
                        {along(2, {0}), along(2, {1}), t.select(rank + 2, {rank, rank + 1})},
                        indexType(), [&](Scalars &s, ValueRange x) {
                          Arithmetic a(s, isUnsigned);
                          Value equal = a.compare(Arithmetic::Order::Equal, x[1], x[0]);
                          return a.choose(before(a, x[1], x[0]), a.like(x[2], 1),
                                          a.choose(equal, x[2], a.like(x[2], 0)));
                        });
    Value ranks = t.reduceSum(pairs, {int64_t(rank) + 1});
    const Value none = t.scalar(indexType(), -1);
    return {pick(ranks, input, along(2, {1}), t.lowest(type, isUnsigned)),
            pick(ranks, numbers(n), only(2, 1), none)};
  }

  /// Does element x of index `at` come after the last one chosen: worse, or equal and of a higher
  /// index?
  Value isLeft(Arithmetic &a, Value x, Value at, Value last, Value lastAt) {
    Value equal = a.compare(Arithmetic::Order::Equal, x, last);
    return a.choose(equal, a.compare(Arithmetic::Order::Less, lastAt, at), before(a, last, x));
  }

  /// Round by round the best of what is left.
  std::pair<Value, Value> byRounds() {
    const int64_t axis = rank;
    const Value places = numbers(n), none = worst();
    SmallVector<Value> values, indices;
    Value last, lastAt;
    auto isLeftIn = [&](Arithmetic &a, ValueRange x) { return isLeft(a, x[0], x[1], x[2], x[3]); };
    for (int64_t round = 0; round < k; ++round) {
      SmallVector<Value> inputs{input, places};
      SmallVector<AffineMap> maps{along(1, {0}), only(1, 0)};
      if (round) {
        inputs.append({last, lastAt});
        maps.append({along(1, {}), along(1, {})});
      }
      Value left = round ? t.map(with({n}), inputs, maps, type,
                                 [&](Scalars &s, ValueRange x) {
                                   Arithmetic a(s, isUnsigned);
                                   return a.choose(isLeftIn(a, x), x[0], none);
                                 })
                         : input;
      Value best = t.reduce(left, {axis}, none, [&](Scalars &s, Value x, Value sum) {
        Arithmetic a(s, isUnsigned);
        return largest ? a.max(sum, x) : a.min(sum, x);
      });
      inputs.push_back(best);
      maps.push_back(along(1, {}));
      Value here = t.map(with({n}), inputs, maps, indexType(), [&](Scalars &s, ValueRange x) {
        Arithmetic a(s, isUnsigned);
        Value nowhere = a.like(x[1], double(n));
        Value found = a.choose(a.compare(Arithmetic::Order::Equal, x[0], x.back()), x[1], nowhere);
        return round ? a.choose(isLeftIn(a, x), found, nowhere) : found;
      });
      last = best;
      lastAt = t.reduce(here, {axis}, t.scalar(indexType(), double(n)),
                        [&](Scalars &s, Value x, Value sum) { return Arithmetic(s).min(sum, x); });
      values.push_back(t.reshape(last, with({1})));
      indices.push_back(t.reshape(lastAt, with({1})));
    }
    return {t.concat(values, axis), t.concat(indices, axis)};
  }
};

Status importTopK(NodeImporter &node) {
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", -1), node.rank(0));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  std::optional<Shape> given =
      node.has(1) ? node.constantIntegers(1) : std::optional(Shape{node.getInt("k", -1)});
  if (!given || given->size() != 1)
    return node.error("its k is not constant");
  const int64_t k = given->front(), n = node.shape(0)[*axis];
  if (k < 1 || k > n)
    return node.error("takes " + std::to_string(k) + " of " + std::to_string(n) +
                      " elements; give 1 to " + std::to_string(n));
  TensorBuilder &t = node.t;
  Shape toLast, back;
  for (int64_t i = 0; i < node.rank(0); ++i)
    if (i != *axis)
      toLast.push_back(i);
  toLast.push_back(*axis);
  for (int64_t i = 0; i < node.rank(0); ++i)
    back.push_back(i < *axis ? i : i == *axis ? node.rank(0) - 1 : i - 1);
  const bool isLast = *axis == node.rank(0) - 1;
  Value input = isLast ? node.in(0) : t.transpose(node.in(0), toLast);
  auto [values, indices] =
      TopK(t, input, k, node.getInt("largest", 1) != 0, isUnsigned(node.inType(0))).choose();
  indices = t.map({indices}, t.ops().getI64Type(), [](Scalars &s, ValueRange x) {
    return Arithmetic(s).cast(x[0], s.getI64Type(), false);
  });
  node.set(0, isLast ? values : t.transpose(values, back), node.inType(0));
  node.set(1, isLast ? indices : t.transpose(indices, back), HostType::Int64);
  return Success{};
}

} // namespace

void addTopKOps(HandlerTable &table) { table[":TopK"] = importTopK; }

} // namespace millrace::onnx_import
