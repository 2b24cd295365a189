// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/LaneProduct.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace millrace::forms {

using namespace mlir;

namespace {

/// An element of a row: lane `lane` of a row of `source`, or that lane negated.
struct Lane {
  Value source;
  int64_t lane = 0;
  bool isNegated = false;
};

using Row = std::vector<Lane>;

/// The first dimension of a row, if the tensor has `rows` of them: dimensions before it count the
/// rows, those from it on are a row.
std::optional<unsigned> beginOfRow(RankedTensorType type, int64_t rows) {
  int64_t count = 1;
  unsigned dim = 0;
  for (; dim < type.getRank() && (count < rows || type.getDimSize(dim) == 1); ++dim)
    count *= type.getDimSize(dim);
  if (count != rows)
    return std::nullopt;
  return dim;
}

/// Whether the tensor's rows lie along its last dimension.
bool isOneDimension(RankedTensorType type, unsigned begin) {
  for (unsigned dim = begin; dim + 1 < type.getRank(); ++dim)
    if (type.getDimSize(dim) != 1)
      return false;
  return type.getRank() > 0;
}

bool isNegation(Operation *op) {
  auto map = dyn_cast_or_null<linalg::GenericOp>(op);
  if (!map || !isMap(map) || map.getNumDpsInputs() != 1 ||
      !llvm::hasSingleElement(op->getResults()))
    return false;
  auto yield = cast<linalg::YieldOp>(map.getBody()->getTerminator());
  auto negated = yield.getOperand(0).getDefiningOp<arith::NegFOp>();
  return negated && negated.getOperand() == map.getBody()->getArgument(0) &&
         llvm::all_of(map.getIndexingMapsArray(), [](AffineMap m) { return m.isIdentity(); });
}

/// Follows rows through what only moves or negates elements within them.
class RowFinder {
public:
  explicit RowFinder(int64_t rows) : rows(rows) {}

  bool metConcat = false;

  /// What every row of the value consists of; nothing if the value has no such rows.
  std::optional<Row> rowOf(Value value) {
    const auto type = dyn_cast<RankedTensorType>(value.getType());
    const std::optional<unsigned> begin =
        type && type.hasStaticShape() ? beginOfRow(type, rows) : std::nullopt;
    if (!begin)
      return std::nullopt;
    if (std::optional<Row> row = through(value, type, *begin))
      return row;
    if (!isOneDimension(type, *begin))
      return std::nullopt;
    Row row;
    for (int64_t lane = 0; lane < type.getShape().back(); ++lane)
      row.push_back({value, lane, false});
    return row;
  }

private:
  const int64_t rows;

  std::optional<Row> through(Value value, RankedTensorType type, unsigned begin) {
    Operation *op = value.getDefiningOp();
    if (isNegation(op)) {
      std::optional<Row> row = rowOf(op->getOperand(0));
      for (size_t at = 0; row && at < row->size(); ++at)
        (*row)[at].isNegated ^= true;
      return row;
    }
    if (isa_and_nonnull<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op))
      return rowOf(op->getOperand(0));
    if (auto slice = dyn_cast_or_null<tensor::ExtractSliceOp>(op))
      return ofSlice(slice, type, begin);
    if (auto concat = dyn_cast_or_null<tensor::ConcatOp>(op))
      return ofConcat(concat, type, begin);
    return std::nullopt;
  }

  std::optional<Row> ofSlice(tensor::ExtractSliceOp slice, RankedTensorType type, unsigned begin) {
    const RankedTensorType from = slice.getSourceType();
    if (from.getRank() != type.getRank() || beginOfRow(from, rows) != begin)
      return std::nullopt;
    const std::optional<Row> source = rowOf(slice.getSource());
    if (!source)
      return std::nullopt;
    Row row;
    walk(type, begin, [&](ArrayRef<int64_t> index) {
      int64_t at = 0;
      for (unsigned dim = begin; dim < type.getRank(); ++dim)
        at = at * from.getDimSize(dim) + slice.getStaticOffsets()[dim] +
             index[dim] * slice.getStaticStrides()[dim];
      row.push_back((*source)[size_t(at)]);
    });
    return row;
  }

  std::optional<Row> ofConcat(tensor::ConcatOp concat, RankedTensorType type, unsigned begin) {
    const auto along = unsigned(concat.getDim());
    if (along < begin)
      return std::nullopt;
    std::vector<Row> parts;
    std::vector<std::pair<size_t, int64_t>> places; ///< along the dimension: part, index in it
    for (auto [number, part] : llvm::enumerate(concat.getInputs())) {
      std::optional<Row> row = rowOf(part);
      if (!row)
        return std::nullopt;
      parts.push_back(std::move(*row));
      for (int64_t i = 0; i < cast<RankedTensorType>(part.getType()).getDimSize(along); ++i)
        places.push_back({number, i});
    }
    metConcat = true;
    Row row;
    walk(type, begin, [&](ArrayRef<int64_t> index) {
      const auto [part, inside] = places[size_t(index[along])];
      const auto its = cast<RankedTensorType>(concat.getInputs()[part].getType());
      int64_t at = 0;
      for (unsigned dim = begin; dim < type.getRank(); ++dim)
        at = at * its.getDimSize(dim) + (dim == along ? inside : index[dim]);
      row.push_back(parts[part][size_t(at)]);
    });
    return row;
  }

  /// Calls f(index) for the elements of the first row.
  template <class F> static void walk(RankedTensorType type, unsigned begin, F f) {
    SmallVector<int64_t> index(size_t(type.getRank()), 0);
    for (;;) {
      f(ArrayRef<int64_t>(index));
      auto dim = int64_t(type.getRank());
      while (--dim >= int64_t(begin) && ++index[size_t(dim)] == type.getDimSize(unsigned(dim)))
        index[size_t(dim)] = 0;
      if (dim < int64_t(begin))
        return;
    }
  }
};

/// How many runs of neighbours a row consists of.
size_t runsOf(const Row &row) {
  size_t runs = 1;
  for (size_t at = 1; at < row.size(); ++at)
    runs += row[at].source != row[at - 1].source || row[at].lane != row[at - 1].lane + 1 ||
            row[at].isNegated != row[at - 1].isNegated;
  return runs;
}

/// Blocks of `block` lanes that the row maps to blocks of the same place in one source: what is
/// multiplied then has no zeros beside them. `row.size()` if there are none.
int64_t blockOf(const Row &row, int64_t lanes) {
  const auto extent = int64_t(row.size());
  const auto source = cast<RankedTensorType>(row.front().source.getType());
  if (extent <= lanes || source.getShape().back() != extent)
    return extent;
  for (int64_t block = lanes; block > 1; --block) {
    if (extent % block != 0)
      continue;
    bool isOne = true;
    for (int64_t at = 0; at < extent && isOne; ++at)
      isOne = row[size_t(at)].source == row.front().source &&
              row[size_t(at)].lane / block == at / block &&
              row[size_t(at)].lane % block == row[size_t(at % block)].lane &&
              row[size_t(at)].isNegated == row[size_t(at % block)].isNegated;
    if (isOne)
      return block;
  }
  return extent;
}

/// Whether one product takes less than a product for each part. Rows of long runs that are too wide
/// for a vector are not: each run meets few of the matrix's tiles.
bool isWorthAProduct(const Row &row, int64_t lanes) {
  constexpr size_t kLongRun = 8;                // lanes
  constexpr size_t kLargestMatrix = 1ull << 22; // elements
  SetVector<Value> sources;
  size_t width = 0;
  for (const Lane &lane : row)
    if (sources.insert(lane.source))
      width += size_t(cast<RankedTensorType>(lane.source.getType()).getShape().back());
  const size_t runs = runsOf(row);
  if (runs <= sources.size()) // nothing but the parts of a concatenation
    return false;
  return blockOf(row, lanes) <= lanes ||
         (runs * kLongRun > row.size() && width * row.size() <= kLargestMatrix);
}

struct Found {
  Operation *op; ///< that makes the rows
  Row row;
};

void multiply(const Found &found, int64_t lanes) {
  const auto type = cast<RankedTensorType>(found.op->getResult(0).getType());
  OpBuilder builder(found.op);
  const Location loc = found.op->getLoc();
  SetVector<Value> sources;
  for (const Lane &lane : found.row)
    sources.insert(lane.source);
  std::vector<Value> parts;
  DenseMap<Value, int64_t> begins;
  int64_t width = 0;
  for (Value source : sources) {
    parts.push_back(asRows(builder, loc, source, type));
    begins[source] = width;
    width += cast<RankedTensorType>(source.getType()).getShape().back();
  }
  Value rows = parts.front();
  if (parts.size() > 1)
    rows = tensor::ConcatOp::create(builder, loc, type.getRank() - 1, parts);
  const int64_t extent = int64_t(found.row.size()), block = blockOf(found.row, lanes);
  SmallVector<ReassociationIndices> cut;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    cut.push_back({dim});
  cut.back().push_back(type.getRank());
  SmallVector<int64_t> shape(type.getShape());
  shape.back() /= block;
  shape.push_back(block);
  if (block < extent) {
    width = block;
    rows = tensor::ExpandShapeOp::create(
        builder, loc, RankedTensorType::get(shape, type.getElementType()), rows, cut);
  }
  std::vector<float> matrix(size_t(width * block));
  for (int64_t to = 0; to < block; ++to) {
    const Lane &lane = found.row[size_t(to)];
    matrix[size_t((begins[lane.source] + lane.lane) * block + to)] = lane.isNegated ? -1 : 1;
  }
  auto product = multiplyLanes(builder, loc, rows, matrix, block, "slices");
  Value result = product->getResult(0);
  if (block < extent)
    result = tensor::CollapseShapeOp::create(builder, loc, type, result, cut);
  handOnValue(found.op, result.getDefiningOp());
  found.op->getResult(0).replaceAllUsesWith(result);
}

/// Where the rows are those of parts of one lane each, dealt in turn, the parts side by side
/// instead, of which the rows are a view: lanes need not be numbers for that. Whether it did.
bool dealFromBlocks(Operation *op) {
  auto collapse = dyn_cast<tensor::CollapseShapeOp>(op);
  auto concat = collapse ? collapse.getSrc().getDefiningOp<tensor::ConcatOp>() : nullptr;
  if (!concat)
    return false;
  const RankedTensorType type = concat.getResultType();
  const int64_t last = type.getRank() - 1, parts = type.getShape().back();
  if (int64_t(concat.getDim()) != last || int64_t(concat.getInputs().size()) != parts ||
      collapse.getReassociationIndices().back().size() != 2)
    return false;
  OpBuilder builder(op);
  const Location loc = op->getLoc();
  SmallVector<ReassociationIndices> joined;
  for (int64_t dim = 0; dim < last; ++dim)
    joined.push_back({dim});
  joined.back().push_back(last);
  SmallVector<Value> blocks;
  for (Value part : concat.getInputs())
    blocks.push_back(tensor::CollapseShapeOp::create(builder, loc, part, joined));
  Value row = tensor::ConcatOp::create(builder, loc, last - 1, blocks);
  SmallVector<int64_t> shape(type.getShape()), order;
  std::swap(shape[size_t(last)], shape[size_t(last) - 1]);
  for (int64_t dim = 0; dim <= last; ++dim)
    order.push_back(dim);
  std::swap(order[size_t(last)], order[size_t(last) - 1]);
  row = tensor::ExpandShapeOp::create(
      builder, loc, RankedTensorType::get(shape, type.getElementType()), row, joined);
  Value empty = tensor::EmptyOp::create(builder, loc, type.getShape(), type.getElementType());
  auto dealt = linalg::TransposeOp::create(builder, loc, row, empty, order);
  handOnValue(concat, dealt);
  concat.replaceAllUsesWith(dealt->getResult(0));
  return true;
}

/// Erases what nothing uses, and what only that used.
void eraseUnused(Operation *op, DenseSet<Operation *> &erased) {
  SmallVector<Operation *> open{op};
  while (!open.empty()) {
    Operation *next = open.pop_back_val();
    if (erased.contains(next) || !isOpTriviallyDead(next))
      continue;
    for (Value operand : next->getOperands())
      if (Operation *source = operand.getDefiningOp())
        open.push_back(source); // perhaps twice, perhaps used by others that go
    erased.insert(next);
    next->erase();
  }
}

} // namespace

void multiplySlices(func::FuncOp function, ElementType stored, int64_t lanes) {
  std::vector<Found> all;
  function.walk([&](Operation *op) {
    if (!isa<tensor::ConcatOp, tensor::CollapseShapeOp>(op))
      return;
    const auto type = cast<RankedTensorType>(op->getResult(0).getType());
    if (!type.getElementType().isF32() || !type.hasStaticShape() || type.getRank() < 2 ||
        type.getNumElements() == 0 || type.getShape().back() == 1 ||
        type.getNumElements() == type.getShape().back())
      return;
    RowFinder finder(type.getNumElements() / type.getShape().back());
    std::optional<Row> row = finder.rowOf(op->getResult(0));
    if (row && finder.metConcat && isWorthAProduct(*row, lanes))
      all.push_back({op, std::move(*row)});
  });
  if (all.empty())
    return;
  const Ranges ranges(function, stored);
  DenseSet<Operation *> erased;
  for (const Found &found : llvm::reverse(all)) { // what makes a part of another comes before it
    if (erased.contains(found.op))
      continue;
    const bool isFinite = llvm::all_of(
        found.row, [&](const Lane &lane) { return ranges.of(lane.source).isFinite(); });
    if (!isFinite) {
      dealFromBlocks(found.op);
      continue;
    }
    multiply(found, lanes);
    eraseUnused(found.op, erased);
  }
}

} // namespace millrace::forms
