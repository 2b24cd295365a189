// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/Transforms/FragmentCode.h"

#include "compiler/Dialect/Tile/Transforms/LaneAccess.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

namespace millrace::tile {

using namespace mlir;

//===-- Places
//-----------------------------------------------------------------------------------===//

Value FragmentCode::index(Location place, int64_t n) {
  return arith::ConstantIndexOp::create(builder, place, n);
}

/// Bits of the thread's number.
Value FragmentCode::threadOf(Location place, unsigned shift, unsigned mask) {
  Value thread = hopper::ThreadIdOp::create(builder, place, builder.getI32Type());
  if (shift)
    thread = arith::ShRUIOp::create(builder, place, thread, number(place, int32_t(shift)));
  return arith::AndIOp::create(builder, place, thread, number(place, int32_t(mask)));
}

Value FragmentCode::firstColumn(Location place) {
  return arith::MulIOp::create(builder, place, threadOf(place, 0, 3), number(place, 2));
}

Value FragmentCode::laneNumber(Location place, unsigned lane) {
  Value warp = arith::MulIOp::create(builder, place, threadOf(place, 5, 31),
                                     number(place, int32_t(kWarpRows)));
  Value first = arith::AddIOp::create(builder, place, warp, threadOf(place, 2, 7));
  if (lane)
    first = arith::AddIOp::create(builder, place, first, number(place, 8));
  return toIndex(first);
}

Value FragmentCode::writesLanes(Location place) {
  return arith::CmpIOp::create(builder, place, arith::CmpIPredicate::eq, threadOf(place, 0, 3),
                               number(place, 0));
}

//===-- Memory
//-----------------------------------------------------------------------------------===//

FragmentCode::Memory FragmentCode::memoryOf(Value tensor) {
  Memory memory{tensor, cast<MemRefType>(tensor.getType()), {}, 0};
  std::tie(memory.strides, memory.offset) = memory.type.getStridesAndOffset();
  return memory;
}

Value FragmentCode::both(Location place, Value x, Value y) {
  return x && y ? Value(arith::AndIOp::create(builder, place, x, y)) : x ? x : y;
}

Value FragmentCode::placeOf(const Memory &memory, OperandRange indices, unsigned lane,
                            ArrayRef<unsigned> without, Value isOn) {
  const Location place = indices.front().getLoc();
  Value at = index(place, memory.offset);
  for (auto [d, own] : llvm::enumerate(indices)) {
    if (llvm::is_contained(without, d))
      continue;
    Value i = element(place, lookup(own), lane);
    if (isOn && isTile(own.getType())) // a lane that does not read may have any index
      i = arith::SelectOp::create(builder, place, isOn, i, index(place, 0));
    at = arith::AddIOp::create(
        builder, place, at,
        arith::MulIOp::create(builder, place, i, index(place, memory.strides[d])));
  }
  return at;
}

FragmentCode::Step FragmentCode::stepTo(const Memory &memory, Value first, Value own,
                                        int64_t distance, unsigned dimension, int64_t total) {
  const Location place = first.getLoc();
  const int64_t size = memory.type.getDimSize(dimension);
  Value at = arith::AddIOp::create(builder, place, lookup(first), own);
  at = arith::AddIOp::create(builder, place, at, index(place, distance));
  IntegerAttr known;
  Value isInside;
  if (!matchPattern(first, m_Constant(&known)) || known.getInt() + total > size) {
    isInside =
        arith::CmpIOp::create(builder, place, arith::CmpIPredicate::ult, at, index(place, size));
    at = arith::SelectOp::create(builder, place, isInside, at, index(place, 0));
  }
  return {arith::MulIOp::create(builder, place, at, index(place, memory.strides[dimension])),
          isInside};
}

bool FragmentCode::arePairs(const Memory &memory, OperandRange indices, unsigned along) {
  if (memory.strides[along] != 1 || memory.offset % 2 || memory.type.getDimSize(along) % 2 ||
      !isMultiple(indices[along], 2))
    return false;
  for (auto [d, stride] : llvm::enumerate(memory.strides))
    if (d != along && memory.type.getDimSize(unsigned(d)) > 1 && stride % 2)
      return false;
  return true;
}

Value FragmentCode::pointer(const Memory &memory, Value at, Value more, Type type) {
  const Location place = at.getLoc();
  Value wide = arith::IndexCastOp::create(builder, place, builder.getI64Type(),
                                          arith::AddIOp::create(builder, place, at, more));
  return LLVM::GEPOp::create(builder, place, LLVM::LLVMPointerType::get(builder.getContext(), 1),
                             type, lookup(memory.tensor), ArrayRef<LLVM::GEPArg>{wide});
}

Value FragmentCode::whereInside(Location place, Value isInside, bool isGuarded, Type type,
                                llvm::function_ref<Value()> make) {
  if (!isInside)
    return make();
  Value zero = arith::ConstantOp::create(builder, place, builder.getZeroAttr(type));
  if (!isGuarded)
    return arith::SelectOp::create(builder, place, isInside, make(), zero);
  auto choice =
      scf::IfOp::create(builder, place, TypeRange(type), isInside, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(choice.elseBlock());
  scf::YieldOp::create(builder, place, zero);
  builder.setInsertionPointToStart(choice.thenBlock());
  scf::YieldOp::create(builder, place, make());
  return choice.getResult(0);
}

Value FragmentCode::loadRows(LoadRowsOp op) {
  const Location place = op.getLoc();
  const Memory memory = memoryOf(op.getSource());
  const Type type = memory.type.getElementType();
  const int64_t total = cast<VectorType>(op.getResult().getType()).getDimSize(1);
  const bool hasPairs = arePairs(memory, op.getIndices(), op.getAlong());
  Value first = op.getIndices()[op.getAlong()], own = toIndex(firstColumn(place));
  const unsigned bytes = type.getIntOrFloatBitWidth() / 8;
  // The element that is read instead may be one that another thread writes.
  const bool isWritten = llvm::any_of(
      memory.tensor.getUsers(), [](Operation *user) { return isa<StoreOp, StoreRowsOp>(user); });
  const auto [begin, end] = eightsOf(total);
  SmallVector<Value> values(size_t(end - begin) * 4);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    Value isOn = op.getMask() ? element(place, lookup(op.getMask()), lane) : Value();
    Value row = placeOf(memory, op.getIndices(), lane, op.getAlong(), isOn);
    for (int64_t eight = begin; eight < end; ++eight) {
      Value *to = &values[size_t((eight - begin) * 4 + lane * 2)];
      Step step;
      for (int64_t next = 0; next < 2; ++next) {
        if (next == 0 || !hasPairs)
          step = stepTo(memory, first, own, eight * 8 + next, op.getAlong(), total);
        if (next == 1 && hasPairs)
          continue;
        const Type read = hasPairs ? Type(VectorType::get(2, type)) : type;
        Value isInside = both(place, isOn, step.isInside);
        Value value = whereInside(place, isInside, isWritten, read, [&]() -> Value {
          return LLVM::LoadOp::create(builder, place, read, pointer(memory, row, step.offset, type),
                                      (hasPairs ? 2 : 1) * bytes);
        });
        for (int64_t i = 0; i < (hasPairs ? 2 : 1); ++i)
          to[next + i] = element(place, value, unsigned(i));
      }
    }
  }
  return vector::FromElementsOp::create(builder, place,
                                        cast<VectorType>(typeOf(op.getResult().getType())), values);
}

void FragmentCode::storeRows(StoreRowsOp op) {
  const Location place = op.getLoc();
  const Memory memory = memoryOf(op.getTarget());
  const Type type = memory.type.getElementType();
  const int64_t total = op.getValue().getType().getDimSize(1);
  const bool hasPairs = arePairs(memory, op.getIndices(), op.getAlong());
  const unsigned bytes = type.getIntOrFloatBitWidth() / 8;
  Value first = op.getIndices()[op.getAlong()], own = toIndex(firstColumn(place));
  Value values = lookup(op.getValue());
  const auto [begin, end] = eightsOf(total);
  const auto enter = [&](Value condition) {
    if (condition)
      builder.setInsertionPointToStart(
          scf::IfOp::create(builder, place, condition, /*withElseRegion=*/false).thenBlock());
  };
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    OpBuilder::InsertionGuard guard(builder);
    enter(op.getMask() ? element(place, lookup(op.getMask()), lane) : Value());
    Value row = placeOf(memory, op.getIndices(), lane, op.getAlong(), Value());
    for (int64_t eight = begin; eight < end; ++eight)
      for (int64_t next = 0; next < (hasPairs ? 1 : 2); ++next) {
        const int64_t from = (eight - begin) * 4 + lane * 2 + next;
        const Step step = stepTo(memory, first, own, eight * 8 + next, op.getAlong(), total);
        OpBuilder::InsertionGuard inner(builder);
        enter(step.isInside);
        Value stored = element(place, values, unsigned(from));
        if (hasPairs)
          stored = vector::FromElementsOp::create(
              builder, place, VectorType::get(2, type),
              ValueRange{stored, element(place, values, unsigned(from + 1))});
        LLVM::StoreOp::create(builder, place, stored, pointer(memory, row, step.offset, type),
                              (hasPairs ? 2 : 1) * bytes);
      }
  }
}

//===-- Rows
//-------------------------------------------------------------------------------------===//

Value FragmentCode::columns(ColumnsOp op) {
  const Location place = op.getLoc();
  const auto type = cast<VectorType>(typeOf(op.getType()));
  Value own = firstColumn(place);
  SmallVector<Value> values;
  for (int64_t i = 0; i < type.getNumElements(); ++i)
    values.push_back(arith::AddIOp::create(
        builder, place, own, number(place, int32_t(window.first + i / 4 * 8 + i % 2))));
  return vector::FromElementsOp::create(builder, place, type, values);
}

Value FragmentCode::spread(SpreadOp op) {
  const Location place = op.getLoc();
  const auto type = cast<VectorType>(typeOf(op.getResult().getType()));
  Value lanes = lookup(op.getLanes());
  SmallVector<Value> own = {element(place, lanes, 0), element(place, lanes, 1)}, values;
  for (int64_t i = 0; i < type.getNumElements(); ++i)
    values.push_back(own[size_t(i / 2 % 2)]);
  return vector::FromElementsOp::create(builder, place, type, values);
}

Value FragmentCode::reduceRows(ReduceRowsOp op) {
  const Location place = op.getLoc();
  Value rows = lookup(op.getRows());
  const auto combine = [&](Value x, Value y) {
    return x ? arith::getReductionOp(op.getKind(), builder, place, x, y) : y;
  };
  Value sums[kLanes];
  for (int64_t i = 0; i < cast<VectorType>(rows.getType()).getNumElements(); ++i)
    sums[i / 2 % 2] = combine(sums[i / 2 % 2], element(place, rows, unsigned(i)));
  for (Value &sum : sums)
    for (uint32_t mask : {1, 2})
      sum = combine(sum, shuffle(place, sum, mask));
  return collect(place, op.getResult().getType(), sums);
}

//===-- Products
//---------------------------------------------------------------------------------===//

class FragmentCode::TableWords {
public:
  virtual ~TableWords() = default;
  /// Rows 8 `n` to 8 `n` + 7, columns 8 `k` to 8 `k` + 7.
  virtual Value word(size_t n, size_t k) = 0;
};

/// Of a matrix that lies in memory.
class FragmentCode::LoadedWords : public TableWords {
public:
  LoadedWords(FragmentCode &code, LoadTableOp table)
      : code(code), place(table.getLoc()), memory(code.memoryOf(table.getSource())),
        hasPairs(code.arePairs(memory, table.getIndices(), table.getColumns())) {
    const auto type = cast<VectorType>(table.getResult().getType());
    base =
        code.placeOf(memory, table.getIndices(), 0, {table.getRows(), table.getColumns()}, Value());
    Value row = code.toIndex(code.threadOf(place, 2, 7));
    for (int64_t n = 0; n < type.getDimSize(0); n += 8)
      rows.push_back(code.stepTo(memory, table.getIndices()[table.getRows()], row, n,
                                 table.getRows(), type.getDimSize(0)));
    Value column = code.toIndex(code.firstColumn(place));
    for (int64_t k = 0; k < type.getDimSize(1); k += 8)
      for (int64_t next = 0; next < 2; ++next)
        columns.push_back(code.stepTo(memory, table.getIndices()[table.getColumns()], column,
                                      k + next, table.getColumns(), type.getDimSize(1)));
  }

  Value word(size_t n, size_t k) final {
    OpBuilder &b = code.builder;
    if (hasPairs)
      return read(rows[n], columns[2 * k], b.getI32Type());
    return code.pairOf(place, read(rows[n], columns[2 * k], b.getI16Type()),
                       read(rows[n], columns[2 * k + 1], b.getI16Type()));
  }

private:
  Value read(const Step &row, const Step &column, Type type) {
    OpBuilder &b = code.builder;
    Value more = arith::AddIOp::create(b, place, row.offset, column.offset);
    Value address = code.pointer(memory, base, more, b.getI16Type());
    Value bits = LLVM::LoadOp::create(b, place, type, address, type.getIntOrFloatBitWidth() / 8);
    Value isInside = code.both(place, row.isInside, column.isInside);
    return code.whereInside(place, isInside, /*isGuarded=*/false, type, [&] { return bits; });
  }

  FragmentCode &code;
  const Location place;
  const Memory memory;
  const bool hasPairs;
  Value base;
  SmallVector<Step> rows, columns; ///< by eight rows; by eight columns, two of them
};

/// Of a matrix that is computed: outside of it element (0, 0) is, and not taken.
class FragmentCode::ComputedWords : public TableWords {
public:
  ComputedWords(FragmentCode &code, ComputeTableOp table)
      : code(code), place(table.getLoc()), table(table) {
    const VectorType type = table.getResult().getType();
    Value row = code.toIndex(code.threadOf(place, 2, 7));
    for (int64_t n = 0; n < type.getDimSize(0); n += 8)
      rows.push_back(
          stepTo(table.getRow(), row, n, int64_t(table.getRowEnd()), type.getDimSize(0)));
    Value column = code.toIndex(code.firstColumn(place));
    for (int64_t k = 0; k < type.getDimSize(1); k += 8)
      for (int64_t next = 0; next < 2; ++next)
        columns.push_back(stepTo(table.getColumn(), column, k + next, int64_t(table.getColumnEnd()),
                                 type.getDimSize(1)));
  }

  Value word(size_t n, size_t k) final {
    return code.pairOf(place, compute(rows[n], columns[2 * k]),
                       compute(rows[n], columns[2 * k + 1]));
  }

private:
  /// An index of the table, and whether it is inside; as offset the index itself.
  Step stepTo(Value first, Value own, int64_t distance, int64_t end, int64_t total) {
    OpBuilder &b = code.builder;
    Value at = arith::AddIOp::create(b, place, code.lookup(first), own);
    at = arith::AddIOp::create(b, place, at, code.index(place, distance));
    IntegerAttr known;
    if (matchPattern(first, m_Constant(&known)) && known.getInt() + total <= end)
      return {at, Value()};
    Value isInside =
        arith::CmpIOp::create(b, place, arith::CmpIPredicate::ult, at, code.index(place, end));
    return {arith::SelectOp::create(b, place, isInside, at, code.index(place, 0)), isInside};
  }
  Value compute(const Step &row, const Step &column) {
    OpBuilder &b = code.builder;
    Value bits = arith::BitcastOp::create(b, place, b.getI16Type(),
                                          code.writeElement(table, row.offset, column.offset));
    Value isInside = code.both(place, row.isInside, column.isInside);
    return code.whereInside(place, isInside, /*isGuarded=*/false, b.getI16Type(),
                            [&] { return bits; });
  }

  FragmentCode &code;
  const Location place;
  ComputeTableOp table;
  SmallVector<Step> rows, columns; ///< by eight rows; by eight columns, two of them
};

/// Two of 16 bits as a word.
Value FragmentCode::pairOf(Location place, Value low, Value high) {
  low = arith::ExtUIOp::create(builder, place, builder.getI32Type(), low);
  high = arith::ExtUIOp::create(builder, place, builder.getI32Type(), high);
  high = arith::ShLIOp::create(builder, place, high, number(place, 16));
  return arith::OrIOp::create(builder, place, low, high);
}

std::unique_ptr<FragmentCode::TableWords> FragmentCode::wordsOf(Operation *table) {
  if (auto load = dyn_cast<LoadTableOp>(table))
    return std::make_unique<LoadedWords>(*this, load);
  return std::make_unique<ComputedWords>(*this, cast<ComputeTableOp>(table));
}

Value FragmentCode::dot(DotOp op) {
  const Location place = op.getLoc();
  const VectorType table = op.getTable().getType();
  const std::unique_ptr<TableWords> words = wordsOf(op.getTable().getDefiningOp());
  Value rows = lookup(op.getRows()), before = lookup(op.getAccumulator());
  // Pairs of the thread's elements are the words of the first operand as they lie.
  Value pairs = vector::BitCastOp::create(
      builder, place,
      VectorType::get(cast<VectorType>(rows.getType()).getNumElements() / 2, builder.getI32Type()),
      rows);
  SmallVector<Value> sums;
  for (int64_t i = 0; i < table.getDimSize(0) / 2; ++i)
    sums.push_back(element(place, before, unsigned(i)));
  const Type f32 = builder.getF32Type();
  for (int64_t k = 0; k < table.getDimSize(1) / 16; ++k) {
    Value a[4];
    for (int64_t i = 0; i < 4; ++i)
      a[i] = element(place, pairs, unsigned(4 * k + i));
    for (int64_t n = 0; n < table.getDimSize(0) / 8; ++n) {
      Value *sum = &sums[size_t(4 * n)];
      Value b0 = words->word(size_t(n), size_t(2 * k)),
            b1 = words->word(size_t(n), size_t(2 * k + 1));
      auto product = hopper::MmaOp::create(builder, place, TypeRange{f32, f32, f32, f32}, a[0],
                                           a[1], a[2], a[3], b0, b1, sum[0], sum[1], sum[2], sum[3],
                                           TypeAttr::get(table.getElementType()));
      llvm::copy(product.getResults(), sum);
    }
  }
  return vector::FromElementsOp::create(builder, place, cast<VectorType>(before.getType()), sums);
}

Value FragmentCode::writeRows(Operation *op) {
  if (auto load = dyn_cast<LoadRowsOp>(op))
    return loadRows(load);
  if (auto store = dyn_cast<StoreRowsOp>(op))
    return storeRows(store), Value();
  if (auto product = dyn_cast<DotOp>(op))
    return dot(product);
  if (auto reduction = dyn_cast<ReduceRowsOp>(op))
    return reduceRows(reduction);
  if (auto all = dyn_cast<SpreadOp>(op))
    return spread(all);
  return columns(cast<ColumnsOp>(op));
}

} // namespace millrace::tile
