// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Selection/TopKKernel.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"

#include <algorithm>

namespace millrace::gpu {

using namespace mlir;

namespace {

constexpr int64_t kMostLanes = 1024;

class TopKBuilder {
public:
  TopKBuilder(const TopKProblem &problem, OpBuilder &builder)
      : p(problem), b(builder), place(builder.getUnknownLoc()),
        lanes(std::min(kMostLanes, (problem.columns + 31) / 32 * 32)) {}

  tile::KernelOp build(StringRef name) {
    SmallVector<Type> types = {MemRefType::get({p.rows, p.columns}, p.element)};
    if (p.hasValues)
      types.push_back(MemRefType::get({p.rows, p.k}, p.element));
    if (p.hasPlaces)
      types.push_back(MemRefType::get({p.rows, p.k}, p.place));
    auto kernel = tile::KernelOp::create(b, place, name, b.getFunctionType(types, {}), lanes,
                                         p.rows, ArrayAttr(), ArrayAttr());
    OpBuilder::InsertionGuard guard(b);
    Block *body = b.createBlock(&kernel.getBody());
    for (Type type : types)
      body->addArgument(type, place);
    rows = body->getArgument(0);
    row = tile::ProgramIdOp::create(b, place);
    iota = tile::IotaOp::create(b, place, tileOf(b.getIndexType()));
    worst = arith::ConstantOp::create(b, place, worstOf());
    none = integer(p.lastWins ? -1 : int32_t(p.columns));
    Value lane = arith::IndexCastOp::create(b, place, tileOf(b.getI32Type()), iota), values, places;
    Best last;
    for (int64_t k = 0; k < p.k; ++k) {
      last = choose(last);
      Value isOwn = arith::CmpIOp::create(b, place, arith::CmpIPredicate::eq, lane,
                                          asTile(integer(int32_t(k))));
      values = collect(isOwn, last.value, values);
      places = collect(isOwn, last.place, places);
    }
    Value isOne = p.k == lanes ? Value()
                               : arith::CmpIOp::create(b, place, arith::CmpIPredicate::slt, lane,
                                                       asTile(integer(int32_t(p.k))));
    if (p.hasValues)
      tile::StoreOp::create(b, place, values, body->getArgument(1), ValueRange{row, iota}, isOne);
    if (p.hasPlaces)
      tile::StoreOp::create(b, place, placesOf(places), body->getArguments().back(),
                            ValueRange{row, iota}, isOne);
    tile::ReturnOp::create(b, place);
    return kernel;
  }

private:
  struct Best {
    Value value, place; ///< of each lane, or of a row; places are i32
  };

  VectorType tileOf(Type type) { return VectorType::get(lanes, type); }
  Value integer(int32_t n) { return arith::ConstantOp::create(b, place, b.getI32IntegerAttr(n)); }
  Value asTile(Value scalar) {
    return tile::BroadcastOp::create(b, place, tileOf(scalar.getType()), scalar);
  }
  TypedAttr worstOf() {
    if (auto real = dyn_cast<FloatType>(p.element))
      return b.getFloatAttr(real, APFloat::getInf(real.getFloatSemantics(), p.isLargest));
    const unsigned width = p.element.getIntOrFloatBitWidth();
    const APInt number =
        p.isUnsigned
            ? (p.isLargest ? APInt::getMinValue(width) : APInt::getMaxValue(width))
            : (p.isLargest ? APInt::getSignedMinValue(width) : APInt::getSignedMaxValue(width));
    return b.getIntegerAttr(p.element, number);
  }

  Value isEqual(Value x, Value y) {
    if (isa<FloatType>(p.element))
      return arith::CmpFOp::create(b, place, arith::CmpFPredicate::OEQ, x, y);
    return arith::CmpIOp::create(b, place, arith::CmpIPredicate::eq, x, y);
  }
  Value isBefore(Value x, Value y) {
    if (isa<FloatType>(p.element))
      return arith::CmpFOp::create(
          b, place, p.isLargest ? arith::CmpFPredicate::OGT : arith::CmpFPredicate::OLT, x, y);
    using P = arith::CmpIPredicate;
    return arith::CmpIOp::create(
        b, place, p.isUnsigned ? (p.isLargest ? P::ugt : P::ult) : (p.isLargest ? P::sgt : P::slt),
        x, y);
  }
  /// Of places of equal elements.
  Value isFirst(Value x, Value y) {
    return arith::CmpIOp::create(
        b, place, p.lastWins ? arith::CmpIPredicate::sgt : arith::CmpIPredicate::slt, x, y);
  }
  /// Whether element x at place i comes before y at j.
  Value precedes(Value x, Value i, Value y, Value j) {
    Value isNext = arith::AndIOp::create(b, place, isEqual(x, y), isFirst(i, j));
    return arith::OrIOp::create(b, place, isBefore(x, y), isNext);
  }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, place, condition, x, y);
  }

  /// The lane's better one of what it has and the element of the part that begins at `first`.
  Best better(const Best &before, const Best &last, Value first) {
    Value at = arith::AddIOp::create(b, place, iota, asTile(first));
    Value place32 = arith::IndexCastOp::create(b, place, tileOf(b.getI32Type()), at), inside;
    if (p.columns % lanes)
      inside = arith::CmpIOp::create(b, place, arith::CmpIPredicate::slt, place32,
                                     asTile(integer(int32_t(p.columns))));
    Value x = tile::LoadOp::create(b, place, tileOf(p.element), rows, ValueRange{row, at}, inside,
                                   inside ? worst : Value());
    Value wins = precedes(x, place32, before.value, before.place);
    if (last.value)
      wins = arith::AndIOp::create(b, place, wins,
                                   precedes(asTile(last.value), asTile(last.place), x, place32));
    if (inside)
      wins = arith::AndIOp::create(b, place, wins, inside);
    return {select(wins, x, before.value), select(wins, place32, before.place)};
  }

  /// The first of a row behind the last one chosen.
  Best choose(const Best &last) {
    Best own = {asTile(worst), asTile(none)};
    Value zero = arith::ConstantIndexOp::create(b, place, 0);
    if (p.columns <= lanes) {
      own = better(own, last, zero);
    } else {
      Value end = arith::ConstantIndexOp::create(b, place, p.columns),
            step = arith::ConstantIndexOp::create(b, place, lanes);
      auto parts = scf::ForOp::create(b, place, zero, end, step, ValueRange{own.value, own.place});
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(parts.getBody());
      const Best next = better({parts.getRegionIterArg(0), parts.getRegionIterArg(1)}, last,
                               parts.getInductionVar());
      scf::YieldOp::create(b, place, ValueRange{next.value, next.place});
      own = {parts.getResult(0), parts.getResult(1)};
    }
    using Kind = arith::AtomicRMWKind;
    const Kind kind = isa<FloatType>(p.element) ? (p.isLargest ? Kind::maximumf : Kind::minimumf)
                      : p.isUnsigned            ? (p.isLargest ? Kind::maxu : Kind::minu)
                                                : (p.isLargest ? Kind::maxs : Kind::mins);
    Value value = tile::ReduceOp::create(b, place, kind, own.value);
    Value candidate = select(isEqual(own.value, asTile(value)), own.place, asTile(none));
    Value first = tile::ReduceOp::create(b, place, p.lastWins ? Kind::maxs : Kind::mins, candidate);
    return {value, first};
  }

  Value collect(Value isOwn, Value scalar, Value before) {
    Value all = asTile(scalar);
    return before ? select(isOwn, all, before) : all;
  }

  Value placesOf(Value places) {
    Value isNone = arith::CmpIOp::create(b, place, arith::CmpIPredicate::eq, places, asTile(none));
    places = select(isNone, asTile(integer(0)), places);
    if (isa<FloatType>(p.place))
      return arith::SIToFPOp::create(b, place, tileOf(p.place), places);
    const unsigned width = p.place.getIntOrFloatBitWidth();
    if (width == 32)
      return places;
    return width > 32 ? Value(arith::ExtSIOp::create(b, place, tileOf(p.place), places))
                      : Value(arith::TruncIOp::create(b, place, tileOf(p.place), places));
  }

  const TopKProblem &p;
  OpBuilder &b;
  const Location place;
  const int64_t lanes;
  Value rows, row, iota;
  Value worst, none; ///< what a lane has before it has anything
};

} // namespace

Expected<tile::KernelOp> buildTopK(const TopKProblem &problem, OpBuilder &builder, StringRef name) {
  if (problem.k < 1 || problem.k > std::min(problem.columns, kMostChosen))
    return Error{"a kernel chooses 1 to " + std::to_string(std::min(problem.columns, kMostChosen)) +
                 " of " + std::to_string(problem.columns) + " elements, not " +
                 std::to_string(problem.k)};
  if (problem.columns > INT32_MAX)
    return Error{"a row has " + std::to_string(problem.columns) +
                 " elements; places of a kernel have 31 bits"};
  if (!tile::isElementType(problem.element) || problem.element.isInteger(1) ||
      !tile::isElementType(problem.place) || problem.place.isInteger(1))
    return Error{"rows have elements of a type that no kernel compares"};
  return TopKBuilder(problem, builder).build(name);
}

} // namespace millrace::gpu
