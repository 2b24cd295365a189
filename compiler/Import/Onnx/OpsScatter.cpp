// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes at positions that are given: ScatterND and ScatterElements. Constant positions cut data
// and updates into runs of rows, which are joined anew; positions that are data make every row look
// through all updates.
#include "compiler/Import/Onnx/Handlers.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// How an update joins what is there: body(scalars, there, update).
using Join = llvm::function_ref<Value(Scalars &, Value, Value)>;

/// Rows [first, first + rows) of the data, or updates [first, first + rows).
struct Run {
  bool updated = false;
  int64_t first = 0, rows = 0, update = 0;
};

/// `updateOf[row]`: which update a row gets, -1 if none.
SmallVector<Run> runsOf(ArrayRef<int64_t> updateOf) {
  SmallVector<Run> runs;
  for (auto [row, update] : llvm::enumerate(updateOf)) {
    const bool updated = update >= 0;
    if (!runs.empty()) {
      Run &last = runs.back();
      if (last.updated == updated && (!updated || last.update + last.rows == update)) {
        ++last.rows;
        continue;
      }
    }
    runs.push_back({updated, int64_t(row), 1, updated ? update : 0});
  }
  return runs;
}

/// The same row by row, where they alternate.
Value joinRows(TensorBuilder &t, Value data, Value updates, ArrayRef<int64_t> updateOf, Join join) {
  return t.map(shapeOf(data), {data, t.integers(updateOf)}, {t.select(2, {0, 1}), t.select(2, {0})},
               elementTypeOf(data), [&](Scalars &s, ValueRange x) {
                 Arithmetic a(s);
                 Value none = a.like(x[1], 0);
                 Value row = arith::IndexCastOp::create(s, s.getIndexType(),
                                                        arith::MaxSIOp::create(s, x[1], none));
                 Value update = tensor::ExtractOp::create(
                     s, updates, ValueRange{row, linalg::IndexOp::create(s, 1)});
                 return a.choose(a.compare(Arithmetic::Order::Less, x[1], none), x[0],
                                 join(s, x[0], update));
               });
}

/// Data [rows, width] with updates [count, width] in the given rows; each at most once.
Value joinRuns(TensorBuilder &t, Value data, Value updates, ArrayRef<int64_t> updateOf,
               bool replaces, Join join) {
  constexpr size_t kMostParts = 256;
  SmallVector<Value> parts;
  const SmallVector<Run> runs = runsOf(updateOf);
  if (runs.size() > kMostParts)
    return joinRows(t, data, updates, updateOf, join);
  for (const Run &run : runs) {
    Value there = t.sliceAxis(data, 0, run.first, run.rows);
    if (run.updated) {
      Value update = t.sliceAxis(updates, 0, run.update, run.rows);
      there = replaces ? update
                       : t.map({there, update}, elementTypeOf(data),
                               [&](Scalars &s, ValueRange x) { return join(s, x[0], x[1]); });
    }
    parts.push_back(there);
  }
  return parts.size() == 1 ? parts.front() : t.concat(parts, 0);
}

/// result[row] = data[row], then joined with every update of which `rows` says so, in order.
Value searchAll(TensorBuilder &t, Value data, Value updates, Value rows, Join join) {
  AffineMap point = t.select(3, {0, 1});
  auto generic = linalg::GenericOp::create(
      t.ops(), TypeRange(data.getType()), ValueRange{updates, rows}, ValueRange(data),
      {t.select(3, {2, 1}), t.select(3, {2}), point},
      {utils::IteratorType::parallel, utils::IteratorType::parallel,
       utils::IteratorType::reduction},
      [&](OpBuilder &builder, Location location, ValueRange x) {
        Scalars s(location, builder);
        Arithmetic a(s);
        Value here = arith::IndexCastOp::create(s, x[1].getType(), linalg::IndexOp::create(s, 0));
        Value isHere = a.compare(Arithmetic::Order::Equal, x[1], here);
        linalg::YieldOp::create(s, a.choose(isHere, join(s, x[2], x[0]), x[2]));
      });
  return generic.getResult(0);
}

/// Negative indices count from the end.
Value fromEnd(Arithmetic &a, Value index, int64_t extent) {
  return a.choose(a.compare(Arithmetic::Order::Less, index, a.like(index, 0)),
                  a.add(index, a.like(index, double(extent))), index);
}

/// The reduction attribute as a body.
Expected<std::function<Value(Scalars &, Value, Value)>> joinOf(NodeImporter &node) {
  const std::string reduction = node.getString("reduction", "none");
  const bool unsignedInput = isUnsigned(node.inType(0));
  if (reduction == "none")
    return std::function([](Scalars &, Value, Value update) { return update; });
  if (reduction != "add" && reduction != "mul" && reduction != "max" && reduction != "min")
    return node.error("reduction '" + reduction +
                      "' is not supported; none, add, mul, max and min are");
  return std::function([reduction, unsignedInput](Scalars &s, Value there, Value update) {
    Arithmetic a(s, unsignedInput);
    return reduction == "add"   ? a.add(there, update)
           : reduction == "mul" ? a.mul(there, update)
           : reduction == "max" ? a.max(there, update)
                                : a.min(there, update);
  });
}

/// Data [rows, width] with update u in row `rows[u]`. Rows that get several updates get them in
/// their order; of those that replace, the last one counts.
Value scatterConstant(TensorBuilder &t, Value data, Value updates, ArrayRef<int64_t> rows,
                      bool replaces, Join join) {
  SmallVector<int64_t> all(shapeOf(data)[0], -1), left(rows);
  if (replaces) {
    for (auto [update, row] : llvm::enumerate(rows))
      all[row] = int64_t(update);
    return joinRuns(t, data, updates, all, true, join);
  }
  for (bool any = true; any;) { // the first update of every row that has some left
    any = false;
    std::fill(all.begin(), all.end(), -1);
    for (auto [update, row] : llvm::enumerate(left))
      if (row >= 0 && all[row] < 0) {
        all[row] = int64_t(update);
        left[update] = -1;
        any = true;
      }
    if (any)
      data = joinRuns(t, data, updates, all, false, join);
  }
  return data;
}

/// Data and updates (inputs 0 and 2) seen as rows; `rows` are constant if `constant` is given.
Status scatter(NodeImporter &node, int64_t rows, int64_t width,
               const std::optional<Shape> &constant, llvm::function_ref<Value()> computedRows,
               int64_t count) {
  auto join = joinOf(node);
  if (!join)
    return join.takeError();
  TensorBuilder &t = node.t;
  if (rows == 0 || width == 0 || count == 0)
    return node.done(node.in(0));
  Value data = t.reshape(node.in(0), {rows, width}),
        updates = t.reshape(node.in(2), {count, width});
  const bool replaces = node.getString("reduction", "none") == "none";
  Value result = constant ? scatterConstant(t, data, updates, *constant, replaces, *join)
                          : searchAll(t, data, updates, computedRows(), *join);
  return node.done(t.reshape(result, node.shape(0)));
}

/// data[indices[i...]] = updates[i...]: the last dimension of the indices addresses the first
/// dimensions of the data.
Status importScatterND(NodeImporter &node) {
  const int64_t depth = node.shape(1).empty() ? 0 : node.shape(1).back();
  if (node.shape(1).empty() || depth > node.rank(0))
    return node.error("its indices address " + std::to_string(depth) +
                      " dimensions, but its data has " + std::to_string(node.rank(0)) +
                      "; give indices whose last extent is 1 to that");
  ArrayRef<int64_t> addressed = node.shape(0).take_front(depth);
  const int64_t rows = productOf(addressed), width = productOf(node.shape(0).drop_front(depth)),
                count = productOf(node.shape(1).drop_back());
  std::optional<Shape> indices = node.constantIntegers(1), given;
  if (indices) {
    given.emplace();
    for (int64_t u = 0; u < count; ++u) {
      int64_t row = 0;
      for (int64_t d = 0; d < depth; ++d) {
        std::optional<int64_t> at = normalAxis((*indices)[u * depth + d], addressed[d]);
        if (!at)
          return node.error("its index " + std::to_string((*indices)[u * depth + d]) +
                            " lies outside of extent " + std::to_string(addressed[d]));
        row = row * addressed[d] + *at;
      }
      given->push_back(row);
    }
  }
  return scatter(
      node, rows, width, given,
      [&] {
        TensorBuilder &t = node.t;
        Value parts = t.reshape(node.in(1), {count, depth}), row;
        for (int64_t d = 0; d < depth; ++d) {
          Value part = t.reshape(t.sliceAxis(parts, 1, d, 1), {count});
          part = t.map({part}, elementTypeOf(part), [&](Scalars &s, ValueRange x) {
            Arithmetic a(s);
            return fromEnd(a, x[0], addressed[d]);
          });
          row = d == 0 ? part
                       : t.map({row, part}, elementTypeOf(part), [&](Scalars &s, ValueRange x) {
                           Arithmetic a(s);
                           return a.add(a.mul(x[0], a.like(x[0], double(addressed[d]))), x[1]);
                         });
        }
        return row;
      },
      count);
}

/// data[i... with indices[i...] at `axis`] = updates[i...]
Status importScatterElements(NodeImporter &node) {
  std::optional<int64_t> axis = normalAxis(node.getInt("axis", 0), node.rank(0));
  if (!axis)
    return node.error("its axis lies outside of rank " + std::to_string(node.rank(0)));
  ArrayRef<int64_t> shape = node.shape(0), updated = node.shape(1);
  const int64_t count = productOf(updated), extent = shape[*axis];
  Shape strides(shape.size(), 1);
  for (size_t d = shape.size() - 1; d-- > 0;)
    strides[d] = strides[d + 1] * shape[d + 1];
  std::optional<Shape> indices = node.constantIntegers(1), given;
  if (indices) {
    given.emplace();
    for (int64_t u = 0; u < count; ++u) {
      std::optional<int64_t> at = normalAxis((*indices)[u], extent);
      if (!at)
        return node.error("its index " + std::to_string((*indices)[u]) +
                          " lies outside of extent " + std::to_string(extent));
      int64_t row = *at * strides[*axis];
      for (int64_t d = node.rank(0) - 1, left = u; d >= 0; left /= updated[d], --d)
        row += d == *axis ? 0 : left % updated[d] * strides[d];
      given->push_back(row);
    }
  }
  return scatter(
      node, productOf(shape), 1, given,
      [&] {
        auto identity = node.t.ops().getMultiDimIdentityMap(static_cast<unsigned>(node.rank(1)));
        const Type type = elementTypeOf(node.in(1));
        Value rows =
            node.t.map(updated, {node.in(1)}, {identity}, type, [&](Scalars &s, ValueRange x) {
              Arithmetic a(s);
              Value row = a.mul(fromEnd(a, x[0], extent), a.like(x[0], double(strides[*axis])));
              for (int64_t d = 0; d < node.rank(0); ++d)
                if (d != *axis)
                  row = a.add(
                      row, a.mul(arith::IndexCastOp::create(s, type, linalg::IndexOp::create(s, d)),
                                 a.like(row, double(strides[d]))));
              return row;
            });
        return node.t.reshape(rows, {count});
      },
      count);
}

/// Writes runs of `update` along an axis, for each index of dimension 0 from a number on (inputs:
/// cache, update, the numbers or none for 0). With that axis second, the runs are rows.
Status importTensorScatter(NodeImporter &node) {
  TensorBuilder &t = node.t;
  const std::optional<int64_t> axis = normalAxis(node.getInt("axis", -2), node.rank(0));
  if (!axis || *axis == 0)
    return node.error("its axis must be one behind the first of rank " +
                      std::to_string(node.rank(0)));
  Shape written(node.shape(0));
  if (node.rank(1) == node.rank(0))
    written[size_t(*axis)] = node.shape(1)[size_t(*axis)];
  if (node.shape(1) != ArrayRef(written) ||
      (node.has(2) && node.shape(2) != ArrayRef<int64_t>{written[0]}))
    return node.error("its update or its numbers do not fit its cache");
  const bool isCircular = node.getString("mode", "linear") == "circular";
  const int64_t batch = node.shape(0)[0], extent = node.shape(0)[*axis],
                count = node.shape(1)[*axis];
  constexpr int64_t kMostRows = int64_t(1) << 26; // of which each has a number
  if (productOf({batch, count}) > kMostRows)
    return node.error("writes " + std::to_string(count) + " tokens for each of " +
                      std::to_string(batch) + " sequences; give it " + std::to_string(kMostRows) +
                      " in all at most");
  Shape order = allAxes(node.rank(0)), back(order.size());
  order.erase(order.begin() + *axis);
  order.insert(order.begin() + 1, *axis);
  for (auto [i, dim] : llvm::enumerate(order))
    back[size_t(dim)] = int64_t(i);
  const Value cache = t.transpose(node.in(0), order), update = t.transpose(node.in(1), order);
  const Shape shape(shapeOf(cache));
  const int64_t width = productOf(shape) / (batch * extent);
  const Value data = t.reshape(cache, {batch * extent, width}),
              updates = t.reshape(update, {batch * count, width});
  const auto replaced = [](Scalars &, Value, Value update) { return update; };
  std::optional<Shape> first = node.has(2) ? node.constantIntegers(2) : Shape(size_t(batch), 0);
  Value result;
  if (first) {
    SmallVector<int64_t> rows;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < count; ++i) {
        int64_t at = (*first)[size_t(b)] + i;
        if (isCircular)
          at = (at % extent + extent) % extent;
        if (at < 0 || at >= extent)
          return node.error("writes at place " + std::to_string(at) + " of a cache of " +
                            std::to_string(extent) + "; give it fewer tokens or a longer cache");
        rows.push_back(b * extent + at);
      }
    result = scatterConstant(t, data, updates, rows, /*replaces=*/true, replaced);
  } else {
    const Type whole = t.ops().getI64Type();
    const Value rows = t.map(
        {batch, count}, {node.in(2)}, {t.select(2, {0})}, whole, [&](Scalars &s, ValueRange x) {
          Arithmetic a(s);
          const auto loop = [&](int64_t i) {
            return arith::IndexCastOp::create(s, whole, linalg::IndexOp::create(s, i));
          };
          Value at = a.add(a.cast(x[0], whole, false), loop(1));
          if (isCircular)
            at = arith::RemSIOp::create(s, at, a.like(at, double(extent)));
          return a.add(at, a.mul(loop(0), a.like(at, double(extent))));
        });
    result = searchAll(t, data, updates, t.reshape(rows, {batch * count}), replaced);
  }
  return node.done(t.transpose(t.reshape(result, shape), back));
}

} // namespace

void addScatterOps(HandlerTable &table) {
  table[":ScatterND"] = importScatterND;
  table[":ScatterElements"] = importScatterElements;
  table[":TensorScatter"] = importTensorScatter;
}

} // namespace millrace::onnx_import
