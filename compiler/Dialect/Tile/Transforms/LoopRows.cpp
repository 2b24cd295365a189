// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/Transforms/LoopRows.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace millrace::tile {

using namespace mlir;

Value LoopRows::index(Location place, int64_t n) {
  return arith::ConstantIndexOp::create(builder, place, n);
}

Value LoopRows::rowMemory(Location place, VectorType row) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(entry);
  return memref::AllocaOp::create(builder, place,
                                  MemRefType::get(row.getShape(), row.getElementType()));
}

Value LoopRows::toVector(Location place, Value memory, VectorType row) {
  return vector::LoadOp::create(builder, place, row, memory, ValueRange{index(place, 0)});
}

void LoopRows::forEach(Location place, int64_t count, llvm::function_ref<void(Value)> body) {
  Value begin = index(place, 0), end = index(place, count), step = index(place, 1);
  auto loop = scf::ForOp::create(builder, place, begin, end, step);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

Value LoopRows::loadInside(Location place, Value tensor, OperandRange indices,
                           ArrayRef<std::pair<unsigned, Value>> steps, Value isOn) {
  const auto type = cast<MemRefType>(tensor.getType());
  SmallVector<Value> at;
  for (Value i : indices)
    at.push_back(lookup(i));
  for (auto [dimension, step] : steps) {
    at[dimension] = arith::AddIOp::create(builder, place, at[dimension], step);
    Value isInside = arith::CmpIOp::create(builder, place, arith::CmpIPredicate::ult, at[dimension],
                                           index(place, type.getDimSize(dimension)));
    isOn = isOn ? Value(arith::AndIOp::create(builder, place, isOn, isInside)) : isInside;
  }
  auto choice = scf::IfOp::create(builder, place, TypeRange(type.getElementType()), isOn,
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(choice.thenBlock());
  scf::YieldOp::create(builder, place, load(place, tensor, at));
  builder.setInsertionPointToStart(choice.elseBlock());
  Value zero =
      arith::ConstantOp::create(builder, place, builder.getZeroAttr(type.getElementType()));
  scf::YieldOp::create(builder, place, zero);
  return choice.getResult(0);
}

Value LoopRows::loadRows(LoadRowsOp op) {
  const Location place = op.getLoc();
  const auto row = cast<VectorType>(typeOf(op.getResult().getType()));
  Value memory = rowMemory(place, row), isOn = op.getMask() ? lookup(op.getMask()) : Value();
  forEach(place, row.getDimSize(0), [&](Value column) {
    Value value =
        loadInside(place, op.getSource(), op.getIndices(), {{op.getAlong(), column}}, isOn);
    memref::StoreOp::create(builder, place, value, memory, column);
  });
  return toVector(place, memory, row);
}

void LoopRows::storeRows(StoreRowsOp op) {
  const Location place = op.getLoc();
  const auto row = cast<VectorType>(typeOf(op.getValue().getType()));
  const int64_t size = cast<MemRefType>(op.getTarget().getType()).getDimSize(op.getAlong());
  Value memory = rowMemory(place, row);
  vector::StoreOp::create(builder, place, lookup(op.getValue()), memory,
                          ValueRange{index(place, 0)});
  forEach(place, row.getDimSize(0), [&](Value column) {
    SmallVector<Value> at;
    for (Value i : op.getIndices())
      at.push_back(lookup(i));
    Value &last = at[op.getAlong()];
    last = arith::AddIOp::create(builder, place, last, column);
    Value isOn =
        arith::CmpIOp::create(builder, place, arith::CmpIPredicate::ult, last, index(place, size));
    if (op.getMask())
      isOn = arith::AndIOp::create(builder, place, isOn, lookup(op.getMask()));
    auto choice = scf::IfOp::create(builder, place, isOn, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(choice.thenBlock());
    Value value = memref::LoadOp::create(builder, place, memory, column);
    store(place, value, op.getTarget(), at);
  });
}

/// An element of a table, or 0 behind its ends.
Value LoopRows::tableElement(Operation *table, Value n, Value k) {
  const Location place = table->getLoc();
  if (auto load = dyn_cast<LoadTableOp>(table))
    return loadInside(place, load.getSource(), load.getIndices(),
                      {{load.getRows(), n}, {load.getColumns(), k}}, Value());
  auto computed = cast<ComputeTableOp>(table);
  const auto step = [&](Value first, Value more, uint64_t end) {
    Value at = arith::AddIOp::create(builder, place, lookup(first), more);
    return std::pair<Value, Value>(at,
                                   arith::CmpIOp::create(builder, place, arith::CmpIPredicate::ult,
                                                         at, index(place, int64_t(end))));
  };
  const auto [row, hasRow] = step(computed.getRow(), n, computed.getRowEnd());
  const auto [column, hasColumn] = step(computed.getColumn(), k, computed.getColumnEnd());
  const Type type = computed.getResult().getType().getElementType();
  auto choice = scf::IfOp::create(builder, place, TypeRange(type),
                                  arith::AndIOp::create(builder, place, hasRow, hasColumn),
                                  /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(choice.thenBlock());
  scf::YieldOp::create(builder, place, writeElement(computed, row, column));
  builder.setInsertionPointToStart(choice.elseBlock());
  Value zero = arith::ConstantOp::create(builder, place, builder.getZeroAttr(type));
  scf::YieldOp::create(builder, place, zero);
  return choice.getResult(0);
}

Value LoopRows::dot(DotOp op) {
  const Location place = op.getLoc();
  const auto row = cast<VectorType>(typeOf(op.getRows().getType()));
  const auto sums = cast<VectorType>(typeOf(op.getAccumulator().getType()));
  Value factors = rowMemory(place, row), results = rowMemory(place, sums);
  vector::StoreOp::create(builder, place, lookup(op.getRows()), factors,
                          ValueRange{index(place, 0)});
  vector::StoreOp::create(builder, place, lookup(op.getAccumulator()), results,
                          ValueRange{index(place, 0)});
  const auto wide = [&](Value value) -> Value {
    return arith::ExtFOp::create(builder, place, builder.getF32Type(), value);
  };
  forEach(place, sums.getDimSize(0), [&](Value n) {
    forEach(place, row.getDimSize(0), [&](Value k) {
      Value x = memref::LoadOp::create(builder, place, factors, k);
      Value y = tableElement(op.getTable().getDefiningOp(), n, k);
      Value product = arith::MulFOp::create(builder, place, wide(x), wide(y));
      Value before = memref::LoadOp::create(builder, place, results, n);
      memref::StoreOp::create(builder, place,
                              arith::AddFOp::create(builder, place, before, product), results, n);
    });
  });
  return toVector(place, results, sums);
}

Value LoopRows::reduceRows(ReduceRowsOp op) {
  const Location place = op.getLoc();
  Value rows = lookup(op.getRows()), sum;
  for (int64_t i = 0; i < cast<VectorType>(rows.getType()).getNumElements(); ++i) {
    Value next = element(place, rows, unsigned(i));
    sum = sum ? arith::getReductionOp(op.getKind(), builder, place, sum, next) : next;
  }
  return sum;
}

Value LoopRows::writeRows(Operation *op) {
  const Location place = op->getLoc();
  if (auto load = dyn_cast<LoadRowsOp>(op))
    return loadRows(load);
  if (auto store = dyn_cast<StoreRowsOp>(op))
    return storeRows(store), Value();
  if (auto product = dyn_cast<DotOp>(op))
    return dot(product);
  if (auto reduction = dyn_cast<ReduceRowsOp>(op))
    return reduceRows(reduction);
  const auto type = cast<VectorType>(typeOf(op->getResult(0).getType()));
  if (auto all = dyn_cast<SpreadOp>(op))
    return vector::BroadcastOp::create(builder, place, type, lookup(all.getLanes()));
  SmallVector<int32_t> columns;
  for (int64_t i = 0; i < type.getNumElements(); ++i)
    columns.push_back(int32_t(i));
  return arith::ConstantOp::create(
      builder, place, cast<TypedAttr>(DenseElementsAttr(builder.getI32VectorAttr(columns))));
}

} // namespace millrace::tile
