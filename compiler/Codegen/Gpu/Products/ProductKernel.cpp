// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Products/ProductKernel.h"

#include "compiler/Codegen/Gpu/Attention/KindAttribute.h"
#include "compiler/Codegen/Gpu/Attention/TermWriter.h"
#include "compiler/Dialect/Tile/Transforms/Staging.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cmath>

namespace millrace::gpu {

using namespace mlir;

namespace {

class ProductBuilder {
public:
  ProductBuilder(const FoundProduct &found, const ProductSchedule &schedule, OpBuilder &builder)
      : f(found), b(builder), place(found.last->getLoc()), depth(found.count(found.steps)) {
    lanes = std::min(schedule.rows, 32 * llvm::divideCeilSigned(f.count(f.rows), 32));
    columns = std::min(schedule.columns, 8 * llvm::divideCeilSigned(f.size(f.column), 8));
    products = std::min(schedule.depth, 16 * llvm::divideCeilSigned(depth, 16));
  }

  ProductKernel build(StringRef name) {
    for (const Term *term : {f.left, f.right, f.first, f.result})
      collect(*term);
    SmallVector<Type> types;
    ProductKernel made;
    for (const Term *leaf : leaves) {
      const Type element = getElementTypeOrSelf(leaf->base.getType());
      types.push_back(memoryOf(leaf->point, element.isInteger(1) ? Type(b.getI8Type()) : element));
      made.read.push_back(leaf->base);
    }
    types.push_back(memoryOf(f.o, getElementTypeOrSelf(f.last->getResult(0).getType())));
    const int64_t rowTiles = (f.count(f.rows) + lanes - 1) / lanes,
                  columnTiles = (f.size(f.column) + columns - 1) / columns;
    int64_t programs = rowTiles * columnTiles;
    for (unsigned loop : f.outer)
      programs *= f.size(loop);
    made.kernel = tile::KernelOp::create(b, place, name, b.getFunctionType(types, {}), lanes,
                                         programs, ArrayAttr(), ArrayAttr());
    OpBuilder::InsertionGuard guard(b);
    body = b.createBlock(&made.kernel.getBody());
    for (Type type : types)
      body->addArgument(type, place);
    choosePlace(rowTiles, columnTiles);
    Value before = Writer(*this, f.column, columns, Value()).rows(*f.first, b.getF32Type());
    Value sum = addUp(0, before);
    Value result = Writer(*this, f.column, columns, sum).rows(*f.result, Type());
    tile::StoreRowsOp::create(b, place, result, body->getArguments().back(), indicesOf(f.o), inside,
                              *dimensionOf(f.o, f.column));
    tile::ReturnOp::create(b, place);
    setKind(made.kernel, kindOf(f, tile::planStaging(made.kernel).has_value()));
    return made;
  }

private:
  /// Terms with a row per lane along the loop `along`, or, with `width` 0, as scalars.
  class Writer : public TermWriter {
  public:
    Writer(ProductBuilder &kernel, ArrayRef<unsigned> along, int64_t width, Value product)
        : TermWriter(product), k(kernel), along(along), width(width) {}

    /// A row per lane; of the type `element`, if one is given.
    Value rows(const Term &term, Type element) {
      Value value = promoted(write(term), 2);
      return element ? k.converted(value, element) : value;
    }

  private:
    OpBuilder &builder() final { return k.b; }
    VectorType tileType(Type element, unsigned rank) final {
      return rank == 1 ? VectorType::get(k.lanes, element)
                       : VectorType::get({k.lanes, width}, element);
    }
    Value load(const Term &leaf) final {
      Value source = k.body->getArgument(k.leafOf(leaf));
      const SmallVector<Value> indices = k.indicesOf(leaf.point);
      const Type element = cast<MemRefType>(source.getType()).getElementType();
      const bool isOfLanes =
          llvm::any_of(indices, [](Value index) { return tile::isTile(index.getType()); });
      Value mask = isOfLanes ? k.inside : Value();
      const std::optional<uint32_t> dimension = k.dimensionOf(leaf.point, along);
      if (width && dimension)
        return tile::LoadRowsOp::create(k.b, k.place, tileType(element, 2), source, indices, mask,
                                        *dimension);
      Value zero =
          mask ? arith::ConstantOp::create(k.b, k.place, k.b.getZeroAttr(element)) : Value();
      return tile::LoadOp::create(k.b, k.place, isOfLanes ? Type(tileType(element, 1)) : element,
                                  source, indices, mask, zero);
    }
    Value index(ArrayRef<unsigned> loops) final {
      const SmallVector<unsigned> parts = k.f.trace->loops.parts(loops); // one at most
      if (parts.empty())
        return k.number(0);
      if (!width || along != ArrayRef(parts))
        return k.indexOf(parts[0]);
      const VectorType type = tileType(k.b.getI32Type(), 2);
      Value first = arith::IndexCastOp::create(k.b, k.place, k.b.getI32Type(), k.startOf(along));
      return arith::AddIOp::create(k.b, k.place, tile::ColumnsOp::create(k.b, k.place, type),
                                   tile::BroadcastOp::create(k.b, k.place, type, first));
    }

    ProductBuilder &k;
    const ArrayRef<unsigned> along;
    const int64_t width;
  };

  Value startOf(ArrayRef<unsigned> along) {
    return along == ArrayRef(f.steps) ? step : at.lookup(along[0]);
  }
  void collect(const Term &term) {
    for (const Term *operand : term.operands)
      collect(*operand);
    if (term.kind == Term::Kind::Leaf && leafOf(term) == leaves.size())
      leaves.push_back(&term);
  }
  unsigned leafOf(const Term &term) const {
    const auto same = llvm::find_if(leaves, [&](const Term *leaf) {
      return leaf->base == term.base && f.trace->areEqual(leaf->point, term.point);
    });
    return unsigned(same - leaves.begin());
  }

  /// Loops by dimension of the memory, which has one for each of them, but one for all steps that
  /// lie together; none: a dimension of size one.
  SmallVector<SmallVector<unsigned>> dimensionsOf(const Point &point) const {
    SmallVector<SmallVector<unsigned>> dimensions;
    for (const Place &each : point) {
      const SmallVector<unsigned> parts = f.trace->loops.parts(each.loops);
      ArrayRef<unsigned> rest = parts;
      if (rest.empty())
        dimensions.emplace_back();
      while (!rest.empty()) {
        const bool isSteps =
            rest.size() >= f.steps.size() && rest.take_front(f.steps.size()) == ArrayRef(f.steps);
        const size_t count = isSteps ? f.steps.size() : 1;
        dimensions.emplace_back(rest.take_front(count));
        rest = rest.drop_front(count);
      }
    }
    if (dimensions.empty()) // a tensor without dimensions
      dimensions.emplace_back();
    return dimensions;
  }
  MemRefType memoryOf(const Point &point, Type element) const {
    SmallVector<int64_t> shape;
    for (ArrayRef<unsigned> loops : dimensionsOf(point))
      shape.push_back(f.count(loops));
    return MemRefType::get(shape, element);
  }
  /// The dimension that has just these loops.
  std::optional<uint32_t> dimensionOf(const Point &point, ArrayRef<unsigned> loops) const {
    for (auto [d, own] : llvm::enumerate(dimensionsOf(point)))
      if (ArrayRef(own) == loops)
        return uint32_t(d);
    return std::nullopt;
  }
  SmallVector<Value> indicesOf(const Point &point) {
    SmallVector<Value> indices;
    for (ArrayRef<unsigned> loops : dimensionsOf(point))
      indices.push_back(loops.empty()                ? number(0)
                        : loops == ArrayRef(f.steps) ? step
                                                     : indexOf(loops[0]));
    return indices;
  }
  /// A loop's index; of one of the steps it is a digit of theirs.
  Value indexOf(unsigned loop) {
    if (Value known = at.lookup(loop))
      return known;
    int64_t inner = 1;
    for (unsigned own : llvm::reverse(f.steps)) {
      if (own == loop)
        break;
      inner *= f.size(own);
    }
    Value index = arith::DivUIOp::create(b, place, step, number(inner));
    return loop == f.steps.front() ? index
                                   : arith::RemUIOp::create(b, place, index, number(f.size(loop)));
  }

  Value number(int64_t n) { return arith::ConstantIndexOp::create(b, place, n); }
  Value asTile(Value scalar) {
    return tile::BroadcastOp::create(b, place, VectorType::get(lanes, scalar.getType()), scalar);
  }
  Value converted(Value value, Type element) {
    const auto convert = [&]<class Op>(Value x, Type to, Op *) -> Value {
      auto type = dyn_cast<VectorType>(x.getType());
      return Op::create(b, place, type ? Type(VectorType::get(type.getShape(), to)) : to, x);
    };
    const Type own = getElementTypeOrSelf(value.getType());
    if (own == element)
      return value;
    if (own.getIntOrFloatBitWidth() < 32) // of the other 16 bits
      value = convert(value, b.getF32Type(), static_cast<arith::ExtFOp *>(nullptr));
    return element.isF32() ? value
                           : convert(value, element, static_cast<arith::TruncFOp *>(nullptr));
  }

  /// Tiles of rows and of columns by a number below their product. In groups of `kGroup` tiles of
  /// rows, the last of which may have fewer, the tile of rows changes fastest: 132 programs at a
  /// time read 32 tiles of rows and four or five of columns, as those of build-gemm do.
  std::pair<Value, Value> tilesOf(Value tile, int64_t rowTiles, int64_t columnTiles) {
    constexpr int64_t kGroup = 32;
    const int64_t size = std::min(kGroup, rowTiles);
    Value group = arith::DivUIOp::create(b, place, tile, number(size * columnTiles));
    Value rest = arith::RemUIOp::create(b, place, tile, number(size * columnTiles));
    Value first = arith::MulIOp::create(b, place, group, number(size)), own = number(size);
    if (rowTiles % size)
      own = arith::MinUIOp::create(b, place, own,
                                   arith::SubIOp::create(b, place, number(rowTiles), first));
    Value row = arith::AddIOp::create(b, place, first, arith::RemUIOp::create(b, place, rest, own));
    return {row, arith::DivUIOp::create(b, place, rest, own)};
  }

  /// The program's number, from the innermost on: rows and columns, then what lies outside of both.
  void choosePlace(int64_t rowTiles, int64_t columnTiles) {
    Value left = tile::ProgramIdOp::create(b, place);
    const auto take = [&](int64_t size) {
      Value own = arith::RemUIOp::create(b, place, left, number(size));
      left = arith::DivUIOp::create(b, place, left, number(size));
      return own;
    };
    const auto [rowTile, columnTile] = tilesOf(take(rowTiles * columnTiles), rowTiles, columnTiles);
    at[f.column] = arith::MulIOp::create(b, place, columnTile, number(columns));
    Value row = asTile(arith::MulIOp::create(b, place, rowTile, number(lanes)));
    const auto type = cast<VectorType>(row.getType());
    row = arith::AddIOp::create(b, place, row, tile::IotaOp::create(b, place, type));
    if (f.count(f.rows) % lanes)
      inside = arith::CmpIOp::create(b, place, arith::CmpIPredicate::ult, row,
                                     asTile(number(f.count(f.rows))));
    for (unsigned loop : llvm::reverse(f.rows)) {
      if (loop == f.rows.front()) {
        at[loop] = row;
        break;
      }
      at[loop] = arith::RemUIOp::create(b, place, row, asTile(number(f.size(loop))));
      row = arith::DivUIOp::create(b, place, row, asTile(number(f.size(loop))));
    }
    for (unsigned loop : llvm::reverse(f.outer))
      at[loop] = take(f.size(loop));
  }

  /// Loops over what is summed, from `level` on.
  Value addUp(size_t level, Value before) {
    const bool isLast = level == f.depths.size();
    Value from = number(0), to = number(isLast ? depth : f.size(f.depths[level])),
          next = number(isLast ? products : 1);
    auto all = scf::ForOp::create(b, place, from, to, next, before);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(all.getBody());
    (isLast ? step : at[f.depths[level]]) = all.getInductionVar();
    Value sum = all.getRegionIterArg(0);
    scf::YieldOp::create(b, place, isLast ? multiply(sum) : addUp(level + 1, sum));
    return all.getResult(0);
  }

  Value multiply(Value sum) {
    Value rows = Writer(*this, f.steps, products, Value()).rows(*f.left, f.element);
    if (depth % products && f.left->kind != Term::Kind::Leaf)
      rows = zeroBehind(rows);
    return tile::DotOp::create(b, place, sum.getType(), rows, table(), sum);
  }

  /// Behind its end a row is what is computed of zeros; the table is 0 there, times which it may be
  /// no number.
  Value zeroBehind(Value rows) {
    const auto type = VectorType::get({lanes, products}, b.getI32Type());
    Value first = arith::IndexCastOp::create(b, place, b.getI32Type(), step);
    Value column = arith::AddIOp::create(b, place, tile::ColumnsOp::create(b, place, type),
                                         tile::BroadcastOp::create(b, place, type, first));
    Value end = arith::ConstantOp::create(
        b, place, SplatElementsAttr::get(type, Attribute(b.getI32IntegerAttr(int32_t(depth)))));
    Value isInside = arith::CmpIOp::create(b, place, arith::CmpIPredicate::slt, column, end);
    Value zero = arith::ConstantOp::create(b, place, b.getZeroAttr(rows.getType()));
    return arith::SelectOp::create(b, place, isInside, rows, zero);
  }

  Value table() {
    const auto type = VectorType::get({columns, products}, f.element);
    const Term &right = *f.right;
    const std::optional<uint32_t> columnsOf = dimensionOf(right.point, f.column),
                                  stepsOf = dimensionOf(right.point, f.steps);
    if (right.kind == Term::Kind::Leaf && getElementTypeOrSelf(right.base.getType()) == f.element &&
        columnsOf && stepsOf)
      return tile::LoadTableOp::create(b, place, type, body->getArgument(leafOf(right)),
                                       indicesOf(right.point), *columnsOf, *stepsOf);
    auto computed =
        tile::ComputeTableOp::create(b, place, type, at[f.column], step, f.size(f.column), depth);
    OpBuilder::InsertionGuard guard(b);
    Block *block = b.createBlock(&computed.getBody(), {}, {b.getIndexType(), b.getIndexType()},
                                 {place, place});
    const Value column = at[f.column], first = step;
    at[f.column] = block->getArgument(0);
    step = block->getArgument(1);
    Value value = Writer(*this, f.column, 0, Value()).write(right);
    tile::YieldOp::create(b, place, converted(value, f.element));
    at[f.column] = column;
    step = first;
    return computed;
  }

  const FoundProduct &f;
  OpBuilder &b;
  const Location place;
  const int64_t depth; ///< steps of the innermost loop over what is summed
  int64_t lanes = 0, columns = 0, products = 0;
  Block *body = nullptr;
  SmallVector<const Term *> leaves; ///< one for each memory that is read
  DenseMap<unsigned, Value> at;     ///< by loop; of the column where a tile begins
  Value step;                       ///< of the innermost loop
  Value inside;                     ///< lanes that have a row; none: all have
};

/// Cycles of a product by warpgroups. A multiprocessor of Hopper multiplies 2,048 pairs a cycle
/// (989 TFLOPS of 132 at 1.83 GHz). It gets at least 40 bytes a cycle from the L2 cache, as a tile
/// of 128 x 256 took on an H200 (docs/results/2026-11-27-gpu.md); 56 are a guess. One warpgroup
/// alone does not multiply while it waits for what it began.
double cyclesOf(const FoundProduct &found, const ProductSchedule &schedule, unsigned processors) {
  constexpr double kPairs = 2048, kBytes = 56, kWait = 120, kAround = 2500;
  const auto tiles = [](int64_t size, int64_t tile) { return double((size + tile - 1) / tile); };
  const double programs = double(found.count(found.outer)) *
                          tiles(found.count(found.rows), schedule.rows) *
                          tiles(found.size(found.column), schedule.columns),
               steps = double(found.count(found.depths)) *
                       tiles(found.count(found.steps), schedule.depth);
  const double products = double(schedule.rows * schedule.columns * schedule.depth) / kPairs,
               loads = double((schedule.rows + schedule.columns) * schedule.depth * 2) / kBytes;
  const double step = std::max(products + (schedule.rows == 64 ? kWait : 0), loads);
  return std::ceil(programs / processors) * (steps * step + kAround);
}

} // namespace

KernelKind kindOf(const FoundProduct &found, bool isStaged) {
  return {"product",
          found.element.isBF16() ? "bf16" : "f16",
          {{"rows", found.count(found.rows)},
           {"columns", found.size(found.column)},
           {"depth", found.count(found.depths) * found.count(found.steps)},
           {"staged", isStaged}}};
}

ProductSchedule ProductSchedule::choose(const FoundProduct &found, const TuningTable &table,
                                        bool isStaged) {
  ProductSchedule own;
  if (isStaged) {
    std::optional<double> least;
    for (int64_t rows : {128, 64})
      for (int64_t columns : {256, 192, 128, 96, 64, 32, 16, 8}) {
        // In two steps at least: a loop of one pass is none, and nothing is loaded ahead.
        const ProductSchedule each{
            rows, columns,
            std::min<int64_t>(64, 16 * llvm::divideCeilSigned(found.count(found.steps), 32))};
        const double cycles = cyclesOf(found, each, table.estimatedChip().processors);
        if (!least || cycles < *least) {
          least = cycles;
          own = each;
        }
      }
  }
  const auto schedule =
      table.scheduleFor(kindOf(found, isStaged),
                        {{"rows", own.rows}, {"columns", own.columns}, {"depth", own.depth}});
  return {schedule.at("rows"), schedule.at("columns"), schedule.at("depth")};
}

ProductKernel buildProduct(const FoundProduct &found, const ProductSchedule &schedule,
                           OpBuilder &builder, StringRef name) {
  return ProductBuilder(found, schedule, builder).build(name);
}

ProductKernel buildProduct(const FoundProduct &found, const TuningTable &table, OpBuilder &builder,
                           StringRef name) {
  // Less than a warpgroup's rows would mostly multiply nothing.
  constexpr int64_t kFewRows = 48;
  if (table.hasWarpgroups() && found.count(found.rows) >= kFewRows) {
    ProductKernel made = buildProduct(
        found, ProductSchedule::choose(found, table, /*isStaged=*/true), builder, name);
    if (tile::planStaging(made.kernel))
      return made;
    made.kernel.erase();
  }
  return buildProduct(found, ProductSchedule::choose(found, table, /*isStaged=*/false), builder,
                      name);
}

} // namespace millrace::gpu
