// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Ranges.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Support/Constants.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

namespace millrace::forms {

using namespace mlir;

void handOnValue(Operation *from, Operation *to) {
  for (const char *key : {kOnnxValue, kKeepFp32})
    if (Attribute attribute = from->removeAttr(key))
      to->setAttr(key, attribute);
}

namespace {

/// What a reduction may begin with so that it does not matter.
TypedAttr neutralOf(Combiner combiner, Type element) {
  const bool isExtreme = combiner == Combiner::Max || combiner == Combiner::Min;
  if (auto real = dyn_cast<FloatType>(element)) {
    const llvm::fltSemantics &format = real.getFloatSemantics();
    return FloatAttr::get(real, isExtreme ? APFloat::getInf(format, combiner == Combiner::Max)
                                          : APFloat::getZero(format));
  }
  const unsigned width = element.getIntOrFloatBitWidth();
  return IntegerAttr::get(element, combiner == Combiner::Max   ? APInt::getSignedMinValue(width)
                                   : combiner == Combiner::Min ? APInt::getSignedMaxValue(width)
                                                               : APInt::getZero(width));
}

/// Whether every element of `init` is `neutral`; zeros of either sign are.
bool holdsOnly(Value init, TypedAttr neutral) {
  Attribute scalar;
  if (auto fill = init.getDefiningOp<linalg::FillOp>())
    matchPattern(fill.getInputs()[0], m_Constant(&scalar));
  else if (SplatElementsAttr splat; matchPattern(init, m_Constant(&splat)))
    scalar = splat.getSplatValue<Attribute>();
  auto real = dyn_cast_or_null<FloatAttr>(scalar);
  return scalar == neutral ||
         (real && real.getValue().isZero() && cast<FloatAttr>(neutral).getValue().isZero());
}

Value combine(OpBuilder &b, Location loc, Combiner combiner, Value x, Value y) {
  const bool isFloat = isa<FloatType>(x.getType());
  switch (combiner) {
  case Combiner::Max:
    return isFloat ? arith::MaximumFOp::create(b, loc, x, y).getResult()
                   : arith::MaxSIOp::create(b, loc, x, y).getResult();
  case Combiner::Min:
    return isFloat ? arith::MinimumFOp::create(b, loc, x, y).getResult()
                   : arith::MinSIOp::create(b, loc, x, y).getResult();
  default:
    return isFloat ? arith::AddFOp::create(b, loc, x, y).getResult()
                   : arith::AddIOp::create(b, loc, x, y).getResult();
  }
}

void beginNeutral(linalg::LinalgOp op) {
  const Combiner combiner = combinerOf(op);
  const Value init = op.getDpsInitOperand(0)->get();
  const auto type = cast<RankedTensorType>(init.getType());
  const TypedAttr neutral = neutralOf(combiner, type.getElementType());
  if (combiner == Combiner::None || holdsOnly(init, neutral))
    return;
  OpBuilder builder(op);
  const Location loc = op.getLoc();
  auto empty = [&] {
    return tensor::EmptyOp::create(builder, loc, type.getShape(), type.getElementType());
  };
  const Value scalar = arith::ConstantOp::create(builder, loc, neutral);
  op.setDpsInitOperand(
      0,
      linalg::FillOp::create(builder, loc, ValueRange(scalar), ValueRange(empty())).getResult(0));
  builder.setInsertionPointAfter(op);
  Value reduced = op->getResult(0);
  const SmallVector<AffineMap> maps(3, builder.getMultiDimIdentityMap(unsigned(type.getRank())));
  const SmallVector<utils::IteratorType> loops(size_t(type.getRank()),
                                               utils::IteratorType::parallel);
  auto map = linalg::GenericOp::create(
      builder, loc, TypeRange(type), ValueRange{reduced, init}, ValueRange(empty()), maps, loops,
      [&](OpBuilder &b, Location at, ValueRange x) {
        linalg::YieldOp::create(b, at, combine(b, at, combiner, x[0], x[1]));
      });
  handOnValue(op, map);
  reduced.replaceAllUsesExcept(map.getResult(0), map.getOperation());
}

SmallVector<linalg::LinalgOp> reductionsOf(func::FuncOp function) {
  SmallVector<linalg::LinalgOp> reductions;
  function.walk([&](linalg::LinalgOp op) {
    if (!op->hasAttr(kDevice) && op->getNumResults() == 1 && formOf(op->getResult(0)) &&
        op.getNumReductionLoops() > 0)
      reductions.push_back(op);
  });
  return reductions;
}

/// The other extreme of the same elements, made before.
linalg::LinalgOp otherExtreme(linalg::LinalgOp op, Combiner other) {
  for (Operation *user : op->getOperand(0).getUsers())
    if (auto its = dyn_cast<linalg::LinalgOp>(user);
        its && its->getBlock() == op->getBlock() && its->isBeforeInBlock(op) &&
        its->getOperand(0) == op->getOperand(0) && combinerOf(its) == other &&
        its->getResultTypes() == op->getResultTypes() &&
        its.getIndexingMaps() == op.getIndexingMaps() &&
        its.getIteratorTypesArray() == op.getIteratorTypesArray())
      return its;
  return {};
}

} // namespace

void skipUnreached(func::FuncOp function, ElementType stored) {
  std::optional<Ranges> ranges;
  for (linalg::LinalgOp op : reductionsOf(function)) {
    const Combiner combiner = combinerOf(op);
    auto fill = op.getDpsInitOperand(0)->get().getDefiningOp<linalg::FillOp>();
    FloatAttr begin;
    if ((combiner != Combiner::Min && combiner != Combiner::Max) || op.getNumDpsInputs() != 1 ||
        !fill || !matchPattern(fill.getInputs()[0], m_Constant(&begin)))
      continue;
    linalg::LinalgOp other =
        otherExtreme(op, combiner == Combiner::Min ? Combiner::Max : Combiner::Min);
    if (!other)
      continue;
    if (!ranges)
      ranges.emplace(function, stored);
    const Range range = ranges->of(op->getOperand(0));
    if (combiner == Combiner::Min ? range.low < begin.getValueAsDouble()
                                  : range.high > begin.getValueAsDouble())
      continue;
    OpBuilder builder(op);
    const auto type = cast<RankedTensorType>(op->getResult(0).getType());
    const Value empty = tensor::EmptyOp::create(builder, op.getLoc(), type.getShape(),
                                                type.getElementType()),
                init = other->getResult(0);
    const SmallVector<AffineMap> maps(2, builder.getMultiDimIdentityMap(unsigned(type.getRank())));
    const SmallVector<utils::IteratorType> loops(size_t(type.getRank()),
                                                 utils::IteratorType::parallel);
    auto map = linalg::GenericOp::create(
        builder, op.getLoc(), TypeRange(type), ValueRange(init), ValueRange(empty), maps, loops,
        [&](OpBuilder &b, Location at, ValueRange x) {
          const Value bound = arith::ConstantOp::create(b, at, begin);
          linalg::YieldOp::create(b, at, combine(b, at, combiner, x[0], bound));
        });
    handOnValue(op, map);
    op->getResult(0).replaceAllUsesWith(map.getResult(0));
    op->erase();
  }
}

void beginNeutral(func::FuncOp function) {
  for (linalg::LinalgOp op : reductionsOf(function))
    beginNeutral(op);
}

} // namespace millrace::forms
