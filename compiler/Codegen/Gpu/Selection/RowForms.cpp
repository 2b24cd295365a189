// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Selection/RowForms.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

/// As computeNumbers writes them: of one dimension its index, of two whether the second is below
/// the first.
bool isComputed(Value value, bool isEarlier) {
  auto op = value.getDefiningOp<linalg::GenericOp>();
  if (!op || op.getNumDpsInputs() || op->getNumResults() != 1 || op.getNumReductionLoops() ||
      !op.getIndexingMapsArray()[0].isIdentity() || op.getNumLoops() != (isEarlier ? 2u : 1u))
    return false;
  Operation *end = op.getBody()->getTerminator()->getOperand(0).getDefiningOp();
  if (!isEarlier) {
    auto index = isa_and_nonnull<arith::SIToFPOp>(end)
                     ? end->getOperand(0).getDefiningOp<arith::IndexCastOp>()
                     : arith::IndexCastOp();
    return index && index.getIn().getDefiningOp<linalg::IndexOp>();
  }
  auto compare = isa_and_nonnull<arith::UIToFPOp>(end)
                     ? end->getOperand(0).getDefiningOp<arith::CmpIOp>()
                     : arith::CmpIOp();
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::ult)
    return false;
  auto x = compare.getLhs().getDefiningOp<linalg::IndexOp>(),
       y = compare.getRhs().getDefiningOp<linalg::IndexOp>();
  return x && y && x.getDim() == 1 && y.getDim() == 0;
}

} // namespace

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

TypedAttr beginOf(linalg::LinalgOp op) {
  auto fill = op.getDpsInits()[0].getDefiningOp<linalg::FillOp>();
  TypedAttr value;
  if (fill && matchPattern(fill.getInputs()[0], m_Constant(&value)))
    return value;
  SplatElementsAttr splat;
  return matchPattern(op.getDpsInits()[0], m_Constant(&splat)) ? splat.getSplatValue<TypedAttr>()
                                                               : TypedAttr();
}

bool reducesRows(linalg::LinalgOp op, unsigned results) {
  if (!op || op.hasDynamicShape() || op.getNumReductionLoops() != 1 || op.getNumDpsInputs() != 1 ||
      op->getNumResults() != results || op.getNumLoops() < 1 ||
      !op.getIndexingMapsArray()[0].isIdentity() ||
      op.getIteratorTypesArray().back() != utils::IteratorType::reduction)
    return false;
  const AffineMap rows = AffineMap::getMultiDimIdentityMap(op.getNumLoops(), op.getContext())
                             .dropResult(op.getNumLoops() - 1);
  return llvm::all_of(ArrayRef(op.getIndexingMapsArray()).drop_front(),
                      [&](AffineMap map) { return map == rows; });
}

std::optional<Extreme> extremeOf(Operation *op) {
  auto form = dyn_cast_or_null<linalg::LinalgOp>(op);
  if (!form || !reducesRows(form, 1))
    return std::nullopt;
  Operation *combine = form.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  if (!combine || combine->getNumOperands() != 2 || !llvm::hasNItems(*form.getBlock(), 2) ||
      combine->getOperand(0) == combine->getOperand(1) ||
      !llvm::all_of(combine->getOperands(), [](Value x) { return isa<BlockArgument>(x); }))
    return std::nullopt;
  const bool isMaximum =
      isa<arith::MaximumFOp, arith::MaxNumFOp, arith::MaxSIOp, arith::MaxUIOp>(combine);
  if (!isMaximum &&
      !isa<arith::MinimumFOp, arith::MinNumFOp, arith::MinSIOp, arith::MinUIOp>(combine))
    return std::nullopt;
  return Extreme{form, isMaximum, isa<arith::MaxUIOp, arith::MinUIOp>(combine)};
}

bool isWorst(TypedAttr value, const Extreme &extreme) {
  if (auto real = dyn_cast_or_null<FloatAttr>(value))
    return real.getValue().isInfinity() && real.getValue().isNegative() == extreme.isMaximum;
  auto integer = dyn_cast_or_null<IntegerAttr>(value);
  if (!integer)
    return false;
  const APInt number = integer.getValue();
  return extreme.isUnsigned  ? (extreme.isMaximum ? number.isZero() : number.isAllOnes())
         : extreme.isMaximum ? number.isMinSignedValue()
                             : number.isMaxSignedValue();
}

bool isNumber(TypedAttr value, double number) {
  if (auto real = dyn_cast_or_null<FloatAttr>(value))
    return real.getValueAsDouble() == number;
  auto integer = dyn_cast_or_null<IntegerAttr>(value);
  return integer && double(integer.getValue().getSExtValue()) == number;
}

bool countsUp(Value value, int64_t count) {
  if (isComputed(value, false))
    return typeOf(value).getNumElements() == count;
  DenseElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)) || elements.getNumElements() != count ||
      !isa<FloatType, IntegerType>(elements.getElementType()) || elements.getType().getRank() != 1)
    return false;
  int64_t next = 0;
  for (Attribute each : elements.getValues<Attribute>())
    if (!isNumber(cast<TypedAttr>(each), double(next++)))
      return false;
  return true;
}

bool isLower(Value value) {
  if (isComputed(value, true))
    return true;
  DenseElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)) || elements.getType().getRank() != 2 ||
      !isa<FloatType, IntegerType>(elements.getElementType()))
    return false;
  const int64_t n = elements.getType().getShape()[0];
  int64_t at = 0;
  for (Attribute each : elements.getValues<Attribute>()) {
    if (!isNumber(cast<TypedAttr>(each), at % n < at / n ? 1 : 0))
      return false;
    ++at;
  }
  return elements.getType().getShape()[1] == n;
}

bool isMap(linalg::LinalgOp op) {
  return op && !op.getNumReductionLoops() && op->getNumResults() == 1 && !op.hasDynamicShape() &&
         op.getIndexingMapsArray().back().isIdentity();
}

} // namespace millrace::gpu
