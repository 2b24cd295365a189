// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Tile/Transforms/WarpgroupCode.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace millrace::tile {

using namespace mlir;

namespace {

constexpr unsigned kPanelRow = 128, kUnit = 16; ///< bytes; a descriptor counts the second
/// Named barriers: of rows that are written, and of the turns of two warpgroups, one each.
constexpr unsigned kKept = 1, kTurns = 2, kTurnGroups = 2;
constexpr unsigned kTurnThreads = kTurnGroups * hopper::Limits::kWarpgroup;

/// `loop` with the ring's place as two more values that it carries; results of `inits` first.
scf::ForOp makeLoop(OpBuilder &b, scf::ForOp loop, ArrayRef<Value> bounds, ValueRange inits,
                    const RingPlace &at) {
  SmallVector<Value> carried(inits);
  carried.append({at.stage, at.parity});
  return scf::ForOp::create(b, loop.getLoc(), bounds[0], bounds[1], bounds[2], carried);
}

} // namespace

//===-- The ring
//-----------------------------------------------------------------------------------===//

Value RingCode::constant(int64_t n) {
  return arith::ConstantIntOp::create(ring, place, ring.getI32Type(), n);
}
Value RingCode::plus(Value x, int64_t n) { return n ? plus(x, constant(n)) : x; }
Value RingCode::plus(Value x, Value y) { return arith::AddIOp::create(ring, place, x, y); }
Value RingCode::times(Value x, int64_t n) {
  return arith::MulIOp::create(ring, place, x, constant(n));
}

Value RingCode::isEqual(Value x, int64_t n) {
  return arith::CmpIOp::create(ring, place, arith::CmpIPredicate::eq, x, constant(n));
}

void RingCode::when(Value condition, llvm::function_ref<void()> body) {
  auto branch = scf::IfOp::create(ring, place, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(ring);
  ring.setInsertionPointToStart(branch.thenBlock());
  body();
}

RingPlace RingCode::next() {
  Value stage = plus(at.stage, 1);
  Value wraps = isEqual(stage, plan.stages);
  Value turned = arith::XOrIOp::create(ring, place, at.parity, constant(1));
  return {arith::SelectOp::create(ring, place, wraps, constant(0), stage),
          arith::SelectOp::create(ring, place, wraps, turned, at.parity)};
}

//===-- Who multiplies
//-----------------------------------------------------------------------------===//

void WarpgroupCode::writeConsumer() {
  at = {constant(0), constant(0)};
  const SmallVector<Operation *> behind = columnwise();
  if (behind.empty())
    return writeBody();
  for (Operation &op : kernel.getBody().front().without_terminator())
    if (!llvm::is_contained(behind, &op))
      write(&op);
  writeColumnwise(behind);
}

SmallVector<Operation *> WarpgroupCode::columnwise() {
  scf::ForOp loop = plan.loops.front();
  SmallVector<Operation *> behind;
  if (loop.getNumResults() != 1 || !isRows(loop.getResult(0).getType()))
    return {};
  const auto type = cast<VectorType>(loop.getResult(0).getType());
  const auto hasOtherRows = [&](Value value) {
    return isRows(value.getType()) &&
           (cast<VectorType>(value.getType()).getDimSize(1) != type.getDimSize(1) ||
            (value != loop.getResult(0) && !llvm::is_contained(behind, value.getDefiningOp())));
  };
  for (Operation *op = loop->getNextNode(); op && !isa<ReturnOp>(op); op = op->getNextNode()) {
    behind.push_back(op);
    if (isa<DotOp, ReduceRowsOp>(op) || isTable(op) || op->getNumRegions() ||
        llvm::any_of(op->getOperands(), hasOtherRows) ||
        llvm::any_of(op->getResults(), hasOtherRows))
      return {};
  }
  return behind;
}

void WarpgroupCode::writeColumnwise(ArrayRef<Operation *> ops) {
  constexpr int64_t kColumns = 32; // 16 registers of a thread for each value
  scf::ForOp loop = plan.loops.front();
  Value all = loop.getResult(0), written = lookup(all);
  const int64_t columns = cast<VectorType>(all.getType()).getDimSize(1);
  for (window.first = 0; window.first < columns; window.first += kColumns) {
    window.count = std::min(kColumns, columns - window.first);
    map(all, vector::ExtractStridedSliceOp::create(builder, place, written, window.first / 2,
                                                   window.count / 2, int64_t(1)));
    for (Operation *op : ops)
      write(op);
  }
  window = {};
}

void WarpgroupCode::writeRegions(Operation *op) {
  auto loop = dyn_cast<scf::ForOp>(op);
  if (!loop || !llvm::is_contained(plan.loops, loop))
    return FragmentCode::writeRegions(op);
  if (loop == plan.loops.front())
    keepRows();
  if (plan.carriedSum)
    return writeCarriedSum(loop);
  if (plan.isFirstAhead)
    return writeWithFirstAhead(loop);
  SmallVector<Value> inits, carried;
  for (Value init : loop.getInitArgs())
    inits.push_back(lookup(init));
  auto written =
      makeLoop(builder, loop,
               {lookup(loop.getLowerBound()), lookup(loop.getUpperBound()), lookup(loop.getStep())},
               inits, at);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(written.getBody());
    map(loop.getInductionVar(), written.getInductionVar());
    const auto arguments = written.getRegionIterArgs();
    for (auto [from, to] : llvm::zip(loop.getRegionIterArgs(), arguments.drop_back(2)))
      map(from, to);
    at = {arguments[arguments.size() - 2], arguments.back()};
    for (Operation &inner : loop.getBody()->without_terminator())
      write(&inner);
    if (isInnermost(loop))
      at = next();
    for (Value value : loop.getBody()->getTerminator()->getOperands())
      carried.push_back(lookup(value));
    carried.append({at.stage, at.parity});
    scf::YieldOp::create(builder, loop.getLoc(), carried);
  }
  const auto results = written.getResults();
  for (auto [from, to] : llvm::zip(loop.getResults(), results.drop_back(2)))
    map(from, to);
  at = {results[results.size() - 2], results.back()};
}

Value WarpgroupCode::writeRows(Operation *op) {
  return plan.find(op) ? Value() : FragmentCode::writeRows(op);
}

/// Word j of a thread's first operand of a product is its share of an 8 x 8 matrix: rows 8 (j mod
/// 2) on, columns 8 (j / 2) on. A row of these is a chunk of 16 bytes, swizzled as TMA does.
void WarpgroupCode::keepRows() {
  if (plan.kept.empty())
    return;
  Value lane = threadOf(place, 0, hopper::Limits::kWarp - 1);
  Value inWarp = threadOf(place, 0, kWarpRows - 1), inEight = threadOf(place, 0, 7);
  Value row = plus(times(threadOf(place, 5, 31), kWarpRows), inWarp);
  Value half = arith::ShRUIOp::create(builder, place, lane, constant(4));
  for (const KeptRows &kept : plan.kept) {
    const SmallVector<Value> words = wordsOf(kept.rows);
    for (int64_t k = 0; k < kept.depth / 16; ++k) {
      Value chunk = arith::XOrIOp::create(builder, place, plus(half, k % 4 * 2), inEight);
      Value to = plus(plus(times(row, kPanelRow), times(chunk, kUnit)),
                      kept.offset + k / 4 * int64_t(kernel.getLanes()) * kPanelRow);
      const Value *own = &words[size_t(4 * k)];
      hopper::StmatrixOp::create(builder, place, to, own[0], own[1], own[2], own[3]);
    }
  }
  hopper::FenceAsyncOp::create(builder, place);
  hopper::NamedBarrierOp::create(builder, place, kKept, plan.consumers * hopper::Limits::kWarpgroup,
                                 ValueRange());
}

SmallVector<Value> WarpgroupCode::panelsOf(const StagedOperand &operand, Value begin, Value more) {
  const uint32_t leading = operand.isTransposed ? uint32_t(operand.panelRows()) * kPanelRow : kUnit;
  Value first = plus(begin, operand.offset);
  if (more)
    first = plus(first, more);
  SmallVector<Value> panels;
  for (int64_t panel = 0; panel < (operand.isTransposed ? 1 : operand.panels()); ++panel)
    panels.push_back(hopper::MatrixDescriptorOp::create(
        builder, place, builder.getI64Type(), plus(first, panel * operand.panelRows() * kPanelRow),
        8 * kPanelRow, leading));
  return panels;
}

Value WarpgroupCode::stepOf(const StagedOperand &operand, int64_t k, ArrayRef<Value> panels) {
  // Transposed, 16 places along k are as many rows of a panel; else they are 32 bytes of a row.
  const int64_t units = operand.isTransposed ? k * 16 * kPanelRow / kUnit : k % 4 * 32 / kUnit;
  Value panel = panels[operand.isTransposed ? 0 : size_t(k / 4)];
  if (!units)
    return panel;
  Value more = arith::ConstantIntOp::create(builder, place, builder.getI64Type(), units);
  return arith::AddIOp::create(builder, place, panel, more);
}

Value WarpgroupCode::begin(DotOp op, Value sums) {
  const size_t number = plan.numberOf(op);
  const StagedOperand &table = *plan.find(op.getTable().getDefiningOp());
  const StagedOperand *rows = plan.find(op.getRows().getDefiningOp());
  std::optional<StagedOperand> asKept;
  if (const KeptRows *kept = plan.find(op.getRows())) {
    asKept = StagedOperand{nullptr, kernel.getLanes(), kept->depth};
    asKept->offset = kept->offset;
    rows = &*asKept;
  }
  const Type multiplied = op.getTable().getType().getElementType();
  hopper::MbarrierWaitOp::create(builder, place, barrier(plan.full(number)), at.parity);
  Value stage = plus(times(at.stage, plan.stageBytes), plan.ring);
  const SmallVector<Value> panelsB = panelsOf(table, stage, Value());
  SmallVector<Value> panelsA;
  SmallVector<Value> words;
  if (rows) {
    // The warpgroup's 64 rows: half a panel, or one where rows are neighbours.
    const int64_t bytes = (rows->isTransposed ? rows->panelRows() : 64) * kPanelRow;
    Value group = hopper::WarpgroupIdOp::create(builder, place, builder.getI32Type());
    panelsA = panelsOf(*rows, asKept ? constant(0) : stage, times(group, bytes));
  } else {
    words = wordsOf(op.getRows());
  }
  sums = fenced(sums);
  for (int64_t k = 0; k < table.depth / 16; ++k) {
    Value b = stepOf(table, k, panelsB);
    if (rows) {
      sums = hopper::WgmmaOp::create(builder, place, sums, stepOf(*rows, k, panelsA), b, multiplied,
                                     rows->isTransposed, table.isTransposed);
      continue;
    }
    const Value *a = &words[size_t(4 * k)];
    sums = hopper::WgmmaRsOp::create(builder, place, sums, a[0], a[1], a[2], a[3], b, multiplied,
                                     table.isTransposed);
  }
  hopper::WgmmaCommitOp::create(builder, place);
  return sums;
}

/// Rows as words of a product's first operand: pairs of neighbouring elements as they lie.
SmallVector<Value> WarpgroupCode::wordsOf(Value rows) {
  Value own = lookup(rows);
  const int64_t count = cast<VectorType>(own.getType()).getNumElements() / 2;
  Value pairs =
      vector::BitCastOp::create(builder, place, VectorType::get(count, builder.getI32Type()), own);
  SmallVector<Value> words;
  for (int64_t i = 0; i < count; ++i)
    words.push_back(element(place, pairs, unsigned(i)));
  return words;
}

void WarpgroupCode::release(size_t product, Value stage) {
  when(isEqual(threadOf(place, 0, hopper::Limits::kWarpgroup - 1), 0), [&] {
    hopper::MbarrierArriveOp::create(builder, place, barrier(plan.empty(product), stage), Value());
  });
}

Value WarpgroupCode::asAccumulator(Value values) {
  const int64_t registers = cast<VectorType>(values.getType()).getNumElements();
  return hopper::AccumulatorOfOp::create(builder, place,
                                         hopper::AccumulatorType::get(builder.getContext(),
                                                                      unsigned(2 * registers),
                                                                      /*inFlight=*/false),
                                         values);
}

Value WarpgroupCode::fenced(Value accumulator) {
  const auto type = cast<hopper::AccumulatorType>(accumulator.getType());
  return hopper::WgmmaFenceOp::create(builder, place, TypeRange(type.asInFlight()), accumulator)
      .getResult(0);
}

/// The values of sums in flight, once they are complete.
Value WarpgroupCode::waitFor(Value sums) {
  const auto type = cast<hopper::AccumulatorType>(sums.getType());
  Value ready =
      hopper::WgmmaWaitOp::create(builder, place, TypeRange(type.asReady()), 0, sums).getResult(0);
  return hopper::AccumulatorValuesOp::create(
      builder, place, VectorType::get(type.registersPerThread(), builder.getF32Type()), ready);
}

Value WarpgroupCode::dot(DotOp op) {
  const bool isWithFirst = plan.isFirstAhead && op == plan.products.back().dot;
  Value ahead;
  if (isWithFirst) {
    takeTurn(wordsOf(op.getRows()));
    const RingPlace pass = at;
    at = following;
    ahead = beginFirst();
    at = pass;
  }
  Value sums = begin(op, asAccumulator(lookup(op.getAccumulator())));
  if (isWithFirst)
    giveTurn();
  Value values = waitFor(sums);
  if (isWithFirst) {
    firstOfNext = waitFor(ahead);
    release(0, following.stage);
  }
  release(plan.numberOf(op), at.stage);
  return values;
}

/// Two warpgroups multiply by turns, so that one does while the other computes what is multiplied
/// next; without turns both would do the same at the same time. Each waits at a barrier of its own,
/// at which the other arrives.
void WarpgroupCode::takeTurn(ValueRange after) {
  inEach([&](unsigned own) {
    hopper::NamedBarrierOp::create(builder, place, kTurns + own, kTurnThreads, after);
  });
}

void WarpgroupCode::giveTurn() {
  inEach([&](unsigned own) {
    hopper::NamedBarrierArriveOp::create(builder, place, kTurns + 1 - own, kTurnThreads);
  });
}

void WarpgroupCode::inEach(llvm::function_ref<void(unsigned)> body) {
  if (plan.consumers != kTurnGroups)
    return;
  Value group = hopper::WarpgroupIdOp::create(builder, place, builder.getI32Type());
  for (unsigned own = 0; own < kTurnGroups; ++own)
    when(isEqual(group, own), [&] { body(own); });
}

Value WarpgroupCode::beginFirst() {
  DotOp first = plan.products.front().dot;
  const auto zeros = hopper::AccumulatorType::get(
      builder.getContext(), unsigned(first.getTable().getType().getDimSize(0)), /*inFlight=*/false);
  return begin(first, hopper::AccumulatorZeroOp::create(builder, place, zeros));
}

/// The first product's values come from the pass before, where it was begun with the last one.
void WarpgroupCode::writeWithFirstAhead(scf::ForOp loop) {
  DotOp first = plan.products.front().dot;
  firstOfNext = waitFor(beginFirst());
  release(0, at.stage);
  // The second warpgroup gives the first one its first turn, and the first one takes the last.
  Value group = hopper::WarpgroupIdOp::create(builder, place, builder.getI32Type());
  when(isEqual(group, 1), [&] { giveTurn(); });
  SmallVector<Value> carried;
  for (Value init : loop.getInitArgs())
    carried.push_back(lookup(init));
  const size_t own = carried.size();
  carried.append({firstOfNext, at.stage, at.parity});
  auto written = scf::ForOp::create(builder, place, lookup(loop.getLowerBound()),
                                    lookup(loop.getUpperBound()), lookup(loop.getStep()), carried);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(written.getBody());
    map(loop.getInductionVar(), written.getInductionVar());
    const auto arguments = written.getRegionIterArgs();
    for (auto [from, to] : llvm::zip(loop.getRegionIterArgs(), arguments.take_front(own)))
      map(from, to);
    map(first.getResult(), arguments[own]);
    at = {arguments[own + 1], arguments[own + 2]};
    following = next();
    for (Operation &inner : loop.getBody()->without_terminator())
      if (&inner != first)
        write(&inner);
    carried.clear();
    for (Value value : loop.getBody()->getTerminator()->getOperands())
      carried.push_back(lookup(value));
    carried.append({firstOfNext, following.stage, following.parity});
    scf::YieldOp::create(builder, place, carried);
  }
  for (auto [from, to] : llvm::zip(loop.getResults(), written.getResults().take_front(own)))
    map(from, to);
  at = {written.getResult(unsigned(own + 1)), written.getResult(unsigned(own + 2))};
  when(isEqual(group, 0), [&] { takeTurn({}); });
}

/// Each pass begins its product, then waits for the one before. The first pass stands before the
/// loop: were there a way around all products, ptxas would see registers written in flight, and
/// serialise (C7515).
void WarpgroupCode::writeCarriedSum(scf::ForOp loop) {
  DotOp dot = plan.products.front().dot;
  const auto pass = [&](Value index, Value sums) {
    map(loop.getInductionVar(), index);
    return begin(dot, sums);
  };
  Value from = lookup(loop.getLowerBound()), step = lookup(loop.getStep());
  const Value begun = pass(from, asAccumulator(lookup(loop.getInitArgs()[*plan.carriedSum])));
  const Value before = at.stage;
  at = next();
  auto others = scf::ForOp::create(
      builder, place, arith::AddIOp::create(builder, place, from, step),
      lookup(loop.getUpperBound()), step, ValueRange{at.stage, at.parity, before, begun});
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(others.getBody());
    const auto carried = others.getRegionIterArgs();
    at = {carried[0], carried[1]};
    Value sums = pass(others.getInductionVar(), carried[3]);
    sums = hopper::WgmmaWaitOp::create(builder, place, TypeRange(sums.getType()), 1, sums)
               .getResult(0);
    release(0, carried[2]);
    const RingPlace following = next();
    scf::YieldOp::create(builder, place,
                         ValueRange{following.stage, following.parity, at.stage, sums});
  }
  map(loop.getResult(0), waitFor(others.getResult(3)));
  at = {others.getResult(0), others.getResult(1)};
}

//===-- Who loads
//----------------------------------------------------------------------------------===//

void LoaderCode::need(Value value) {
  Operation *op = value ? value.getDefiningOp() : nullptr;
  if (!op || isa<IotaOp>(op) || !needed.insert(op).second)
    return;
  for (Value operand : op->getOperands())
    need(operand);
}

void LoaderCode::writeLoader() {
  for (const StagedOperand &operand : plan.operands)
    for (Value index : placesOf(operand.load))
      need(index);
  for (scf::ForOp loop : plan.loops)
    for (Value bound : {loop.getLowerBound(), loop.getUpperBound(), loop.getStep()})
      need(bound);
  // A fresh barrier lets pass who waits for parity 1: every stage is empty.
  at = {constant(0), constant(1)};
  for (Operation &op : kernel.getBody().front()) {
    if (needed.contains(&op))
      write(&op);
    if (&op == plan.loops.front())
      plan.isFirstAhead ? writeWithFirstAhead() : writeLoop(0);
  }
}

void LoaderCode::writePlaces(scf::ForOp loop, Value index) {
  map(loop.getInductionVar(), index);
  for (Operation &op : *loop.getBody())
    if (needed.contains(&op))
      write(&op);
}

void LoaderCode::writeWithFirstAhead() {
  scf::ForOp loop = plan.loops.front();
  Value from = lookup(loop.getLowerBound()), step = lookup(loop.getStep());
  writePlaces(loop, from);
  load(plan.products.front(), 0);
  auto written = makeLoop(builder, loop, {from, lookup(loop.getUpperBound()), step}, {}, at);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(written.getBody());
  const RingPlace pass = {written.getRegionIterArg(0), written.getRegionIterArg(1)};
  at = pass;
  const RingPlace following = next();
  at = following;
  writePlaces(loop, arith::AddIOp::create(builder, place, written.getInductionVar(), step));
  load(plan.products.front(), 0);
  at = pass;
  writePlaces(loop, written.getInductionVar());
  for (size_t number = 1; number < plan.products.size(); ++number)
    load(plan.products[number], number);
  scf::YieldOp::create(builder, place, ValueRange{following.stage, following.parity});
}

void LoaderCode::writeLoop(size_t level) {
  scf::ForOp loop = plan.loops[level];
  auto written = makeLoop(
      builder, loop,
      {lookup(loop.getLowerBound()), lookup(loop.getUpperBound()), lookup(loop.getStep())}, {}, at);
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(written.getBody());
    map(loop.getInductionVar(), written.getInductionVar());
    at = {written.getRegionIterArg(0), written.getRegionIterArg(1)};
    for (Operation &op : *loop.getBody()) {
      if (needed.contains(&op))
        write(&op);
      if (level + 1 < plan.loops.size() && &op == plan.loops[level + 1])
        writeLoop(level + 1);
    }
    if (isInnermost(loop)) {
      for (auto [number, product] : llvm::enumerate(plan.products))
        load(product, number);
      at = next();
    }
    scf::YieldOp::create(builder, place, ValueRange{at.stage, at.parity});
  }
  at = {written.getResult(0), written.getResult(1)};
}

void LoaderCode::load(const StagedProduct &product, size_t number) {
  hopper::MbarrierWaitOp::create(builder, place, barrier(plan.empty(number)), at.parity);
  Value full = barrier(plan.full(number));
  unsigned bytes = 0;
  for (unsigned i : product.operands)
    bytes += plan.operands[i].bytes();
  hopper::MbarrierArriveExpectOp::create(builder, place, full, bytes);
  for (unsigned i : product.operands) {
    const StagedOperand &operand = plan.operands[i];
    SmallVector<Value> outer;
    Value row, column;
    for (auto [d, index] : llvm::enumerate(placesOf(operand.load))) {
      Value written = index ? Value(arith::IndexCastOp::create(builder, place, builder.getI32Type(),
                                                               lookup(index)))
                            : constant(0);
      if (d == operand.outerRowDim())
        row = written;
      else if (d == operand.innerDim())
        column = written;
      else
        outer.push_back(written);
    }
    Value to = plus(times(at.stage, plan.stageBytes), plan.ring + operand.offset);
    for (int64_t panel = 0; panel < operand.panels(); ++panel)
      hopper::TmaLoadOp::create(builder, place, maps[operand.map], row, plus(column, 64 * panel),
                                plus(to, panel * operand.panelRows() * kPanelRow), full, Value(),
                                outer);
  }
}

} // namespace millrace::tile
