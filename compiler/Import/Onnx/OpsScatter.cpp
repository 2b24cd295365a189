// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes at positions that are given: ScatterND and ScatterElements. Constant positions that fill a
// box (x[:, 2:5] = y) are a concatenation; others cut data and updates into runs of rows, which are
// joined anew. Positions that are data make every row look through all updates.
#include "compiler/Import/Onnx/Handlers.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

/// Constant places are computed at import up to so many: a write in known places is cheap.
constexpr int64_t kMostPlaces = int64_t(1) << 24;
/// Data is cut into no more pieces, nor joined with more updates one after the other.
constexpr size_t kMostParts = 256;
/// Pieces of single elements, each of which lies in a row of its own.
constexpr size_t kMostSingles = 32;

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
  SmallVector<Value> parts;
  const SmallVector<Run> runs = runsOf(updateOf);
  if (runs.size() > (shapeOf(data)[1] == 1 ? kMostSingles : kMostParts))
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

/// What rows fill, in row-major order: [start[d], start[d] + extent[d]) of each dimension.
struct Box {
  Shape start, extent;
};

/// The box of a tensor of the given shape that `rows` (row-major numbers) fill one after the other.
std::optional<Box> boxOf(ArrayRef<int64_t> shape, ArrayRef<int64_t> rows) {
  Box box{Shape(shape.size()), Shape(shape.size())};
  int64_t first = rows.front(), last = rows.back();
  for (size_t d = shape.size(); d-- > 0; first /= shape[d], last /= shape[d]) {
    box.start[d] = first % shape[d];
    box.extent[d] = last % shape[d] - box.start[d] + 1;
    if (box.extent[d] < 1)
      return std::nullopt;
  }
  if (productOf(box.extent) != int64_t(rows.size()))
    return std::nullopt;
  Shape at(shape.size()); // within the box
  for (int64_t row : rows) {
    int64_t wanted = 0;
    for (size_t d = 0; d < shape.size(); ++d)
      wanted = wanted * shape[d] + box.start[d] + at[d];
    if (row != wanted)
      return std::nullopt;
    for (size_t d = shape.size(); d-- > 0 && ++at[d] == box.extent[d];)
      at[d] = 0;
  }
  return box;
}

/// Data [shape..., width] with the updates, of the box's extents, in its box.
Value joinBox(TensorBuilder &t, Value data, Value updates, const Box &box, bool replaces,
              Join join) {
  SmallVector<Value> around{data}; // [d]: dimensions before d cut to the box
  for (auto [d, start] : llvm::enumerate(box.start))
    around.push_back(t.sliceAxis(around.back(), int64_t(d), start, box.extent[d]));
  Value result = replaces ? updates
                          : t.map({around.back(), updates}, elementTypeOf(data),
                                  [&](Scalars &s, ValueRange x) { return join(s, x[0], x[1]); });
  for (size_t d = box.start.size(); d-- > 0;) {
    const int64_t end = box.start[d] + box.extent[d], whole = shapeOf(data)[d];
    SmallVector<Value> parts;
    if (box.start[d] > 0)
      parts.push_back(t.sliceAxis(around[d], int64_t(d), 0, box.start[d]));
    parts.push_back(result);
    if (end < whole)
      parts.push_back(t.sliceAxis(around[d], int64_t(d), end, whole - end));
    result = parts.size() == 1 ? result : t.concat(parts, int64_t(d));
  }
  return result;
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
Value scatterRuns(TensorBuilder &t, Value data, Value updates, ArrayRef<int64_t> rows,
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

/// The most updates that a row gets.
size_t mostUpdates(ArrayRef<int64_t> rows) {
  DenseMap<int64_t, size_t> updates;
  size_t most = 0;
  for (int64_t row : rows)
    most = std::max(most, ++updates[row]);
  return most;
}

/// A write into data, whose first dimensions are `addressed`: each row (a row-major number) of
/// those gets its update.
struct Scattered {
  Value data, updates;
  ArrayRef<int64_t> addressed;
  int64_t count; ///< of updates
  bool replaces;

  Shape seenAs(ArrayRef<int64_t> leading) const {
    Shape shape(leading);
    llvm::append_range(shape, shapeOf(data).drop_front(addressed.size()));
    return shape;
  }
};

/// The data with the updates in `constant` rows, or in those that `computed` makes.
Value scatter(TensorBuilder &t, const Scattered &write, const std::optional<Shape> &constant,
              llvm::function_ref<Value()> computed, Join join) {
  const Shape whole(shapeOf(write.data));
  if (productOf(whole) == 0 || write.count == 0)
    return write.data;
  if (std::optional<Box> box = constant ? boxOf(write.addressed, *constant) : std::nullopt)
    return joinBox(t, write.data, t.reshape(write.updates, write.seenAs(box->extent)), *box,
                   write.replaces, join);
  const int64_t rows = productOf(write.addressed);
  const Value data = t.reshape(write.data, {rows, productOf(whole) / rows}),
              updates = t.reshape(write.updates, {write.count, productOf(whole) / rows});
  const bool isInRuns = constant && (write.replaces || mostUpdates(*constant) <= kMostParts);
  return t.reshape(isInRuns ? scatterRuns(t, data, updates, *constant, write.replaces, join)
                            : searchAll(t, data, updates, computed(), join),
                   whole);
}

/// A node's data and updates are inputs 0 and 2.
Status scatter(NodeImporter &node, ArrayRef<int64_t> addressed, int64_t count,
               const std::optional<Shape> &constant, llvm::function_ref<Value()> computed) {
  auto join = joinOf(node);
  if (!join)
    return join.takeError();
  const bool replaces = node.getString("reduction", "none") == "none";
  return node.done(scatter(node.t, {node.in(0), node.in(2), addressed, count, replaces}, constant,
                           computed, *join));
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
  const int64_t count = productOf(node.shape(1).drop_back());
  std::optional<Shape> indices = node.constantIntegers(1, kMostPlaces), given;
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
  return scatter(node, addressed, count, given, [&] {
    TensorBuilder &t = node.t;
    Value parts = t.reshape(node.in(1), {count, depth}), row;
    for (int64_t d = 0; d < depth; ++d) {
      Value part = t.reshape(t.sliceAxis(parts, 1, d, 1), {count});
      part = t.map({part}, elementTypeOf(part), [&](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        return fromEnd(a, x[0], addressed[d]);
      });
      row = d == 0 ? part : t.map({row, part}, elementTypeOf(part), [&](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        return a.add(a.mul(x[0], a.like(x[0], double(addressed[d]))), x[1]);
      });
    }
    return row;
  });
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
  std::optional<Shape> indices = node.constantIntegers(1, kMostPlaces), given;
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
  return scatter(node, shape, count, given, [&] {
    auto identity = node.t.ops().getMultiDimIdentityMap(static_cast<unsigned>(node.rank(1)));
    const Type type = elementTypeOf(node.in(1));
    Value rows = node.t.map(updated, {node.in(1)}, {identity}, type, [&](Scalars &s, ValueRange x) {
      Arithmetic a(s);
      Value row = a.mul(fromEnd(a, x[0], extent), a.like(x[0], double(strides[*axis])));
      for (int64_t d = 0; d < node.rank(0); ++d)
        if (d != *axis)
          row = a.add(row, a.mul(arith::IndexCastOp::create(s, type, linalg::IndexOp::create(s, d)),
                                 a.like(row, double(strides[d]))));
      return row;
    });
    return node.t.reshape(rows, {count});
  });
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
  const auto replaced = [](Scalars &, Value, Value update) { return update; };
  std::optional<Shape> first = node.has(2) ? node.constantIntegers(2) : Shape(size_t(batch), 0),
                       rows;
  if (first) {
    rows.emplace();
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t i = 0; i < count; ++i) {
        int64_t at = (*first)[size_t(b)] + i;
        if (isCircular)
          at = (at % extent + extent) % extent;
        if (at < 0 || at >= extent)
          return node.error("writes at place " + std::to_string(at) + " of a cache of " +
                            std::to_string(extent) + "; give it fewer tokens or a longer cache");
        rows->push_back(b * extent + at);
      }
  }
  const auto computed = [&] {
    const Type whole = t.ops().getI64Type();
    const Value places = t.map(
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
    return t.reshape(places, {batch * count});
  };
  const Value result =
      scatter(t, {cache, update, ArrayRef(shape).take_front(2), batch * count, /*replaces=*/true},
              rows, computed, replaced);
  return node.done(t.transpose(result, back));
}

} // namespace

void addScatterOps(HandlerTable &table) {
  table[":ScatterND"] = importScatterND;
  table[":ScatterElements"] = importScatterElements;
  table[":TensorScatter"] = importTensorScatter;
}

} // namespace millrace::onnx_import
