// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
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

} // namespace

void beginNeutral(func::FuncOp function) {
  SmallVector<linalg::LinalgOp> reductions;
  function.walk([&](linalg::LinalgOp op) {
    if (!op->hasAttr(kDevice) && op->getNumResults() == 1 && formOf(op->getResult(0)) &&
        op.getNumReductionLoops() > 0)
      reductions.push_back(op);
  });
  for (linalg::LinalgOp op : reductions)
    beginNeutral(op);
}

} // namespace millrace::forms
