// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/Transforms/LaneCode.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

namespace millrace::tile {

using namespace mlir;

Type LaneCode::typeOf(Type type) const {
  auto tile = dyn_cast<VectorType>(type);
  if (!tile)
    return type;
  if (isRows(type))
    return VectorType::get(elementsOfRows(tile.getDimSize(1)), tile.getElementType());
  return width == 1 ? tile.getElementType() : VectorType::get(width, tile.getElementType());
}

Value LaneCode::element(Location place, Value written, unsigned lane) {
  if (!isa<VectorType>(written.getType()))
    return written;
  return vector::ExtractOp::create(builder, place, written, int64_t(lane));
}

Value LaneCode::collect(Location place, Type tile, ValueRange elements) {
  if (width == 1)
    return elements.front();
  return vector::FromElementsOp::create(builder, place, cast<VectorType>(typeOf(tile)), elements);
}

SmallVector<Value> LaneCode::indicesOf(OperandRange indices, unsigned lane) {
  SmallVector<Value> scalars;
  for (Value index : indices)
    scalars.push_back(element(index.getLoc(), lookup(index), lane));
  return scalars;
}

Value LaneCode::writeLoad(LoadOp op) {
  const Location place = op.getLoc();
  if (!isTile(op.getResult().getType()))
    return load(place, op.getSource(), indicesOf(op.getIndices(), 0));
  if (Value together = loadTogether(op))
    return together;
  SmallVector<Value> elements;
  for (unsigned lane = 0; lane < width; ++lane) {
    const auto read = [&] { return load(place, op.getSource(), indicesOf(op.getIndices(), lane)); };
    if (!op.getMask()) {
      elements.push_back(read());
      continue;
    }
    Value isOn = element(place, lookup(op.getMask()), lane);
    auto choice = scf::IfOp::create(builder, place, TypeRange(op.getOther().getType()), isOn,
                                    /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(choice.thenBlock());
    scf::YieldOp::create(builder, place, read());
    builder.setInsertionPointToStart(choice.elseBlock());
    scf::YieldOp::create(builder, place, lookup(op.getOther()));
    elements.push_back(choice.getResult(0));
  }
  return collect(place, op.getResult().getType(), elements);
}

void LaneCode::writeStore(StoreOp op) {
  const Location place = op.getLoc();
  if (storeTogether(op))
    return;
  for (unsigned lane = 0; lane < width; ++lane) {
    OpBuilder::InsertionGuard guard(builder);
    Value value = element(place, lookup(op.getValue()), lane);
    Value isOn = writesLanes(place);
    if (op.getMask()) {
      Value isInside = element(place, lookup(op.getMask()), lane);
      isOn = isOn ? Value(arith::AndIOp::create(builder, place, isOn, isInside)) : isInside;
    }
    if (isOn) {
      auto choice = scf::IfOp::create(builder, place, isOn, /*withElseRegion=*/false);
      builder.setInsertionPointToStart(choice.thenBlock());
    }
    store(place, value, op.getTarget(), indicesOf(op.getIndices(), lane));
  }
}

Value LaneCode::writeIota(IotaOp op) {
  const Location place = op.getLoc();
  SmallVector<Value> lanes;
  for (unsigned lane = 0; lane < width; ++lane)
    lanes.push_back(laneNumber(place, lane));
  return collect(place, op.getType(), lanes);
}

Value LaneCode::laneNumber(Location place, unsigned lane) {
  Value first = firstLane();
  return lane == 0 ? first
                   : arith::AddIOp::create(builder, place, first,
                                           arith::ConstantIndexOp::create(builder, place, lane));
}

/// Regions are written operation by operation, as types change.
void LaneCode::writeRegions(Operation *op) {
  Operation *written = builder.insert(op->cloneWithoutRegions(mapping));
  for (OpResult result : written->getResults())
    result.setType(typeOf(result.getType()));
  for (auto [from, to] : llvm::zip(op->getRegions(), written->getRegions())) {
    if (from.empty())
      continue;
    OpBuilder::InsertionGuard guard(builder);
    Block *block = builder.createBlock(&to);
    for (BlockArgument argument : from.getArguments())
      map(argument, block->addArgument(typeOf(argument.getType()), argument.getLoc()));
    for (Operation &inner : from.front())
      write(&inner);
  }
  for (auto [from, to] : llvm::zip(op->getResults(), written->getResults()))
    map(from, to);
}

Value LaneCode::writeElement(ComputeTableOp table, Value row, Value column) {
  Block &body = table.getBody().front();
  map(body.getArgument(0), row);
  map(body.getArgument(1), column);
  for (Operation &op : body.without_terminator())
    write(&op);
  return lookup(cast<YieldOp>(body.getTerminator()).getValue());
}

void LaneCode::write(Operation *op) {
  DenseElementsAttr constant;
  if (auto load = dyn_cast<LoadOp>(op))
    return map(load, writeLoad(load));
  if (auto store = dyn_cast<StoreOp>(op))
    return writeStore(store);
  if (auto iota = dyn_cast<IotaOp>(op))
    return map(iota, writeIota(iota));
  if (auto id = dyn_cast<ProgramIdOp>(op))
    return map(id, program());
  if (isTable(op)) // read where it is multiplied
    return;
  if (isa<LoadRowsOp, StoreRowsOp, DotOp, ReduceRowsOp, SpreadOp, ColumnsOp>(op)) {
    if (Value result = writeRows(op))
      map(op->getResult(0), result);
    return;
  }
  if (auto reduction = dyn_cast<ReduceOp>(op))
    return map(reduction, reduce(reduction));
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    Value value = lookup(broadcast.getValue());
    if (const Type type = typeOf(broadcast.getType()); isa<VectorType>(type))
      value = vector::BroadcastOp::create(builder, op->getLoc(), type, value);
    return map(broadcast, value);
  }
  if (op->getNumRegions())
    return writeRegions(op);
  if (matchPattern(op, m_Constant(&constant))) { // of one element for all lanes
    TypedAttr value = constant.getSplatValue<TypedAttr>();
    if (auto type = dyn_cast<VectorType>(typeOf(op->getResult(0).getType())))
      value = SplatElementsAttr::get(type, Attribute(value));
    return map(op->getResult(0), arith::ConstantOp::create(builder, op->getLoc(), value));
  }
  Operation *written = builder.clone(*op, mapping);
  for (OpResult result : written->getResults())
    result.setType(typeOf(result.getType()));
}

} // namespace millrace::tile
