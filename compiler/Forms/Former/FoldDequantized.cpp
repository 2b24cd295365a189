// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <utility>

namespace millrace::forms {

using namespace mlir;

namespace {

/// Where each element of a tensor of `shape` finds its parameter: an offset per index of each
/// dimension, which add up. Nothing where one result of the map takes several dimensions.
std::optional<std::vector<std::vector<int64_t>>>
offsetsOf(AffineMap map, ArrayRef<int64_t> parameters, ArrayRef<int64_t> shape) {
  std::vector<std::vector<int64_t>> offsets;
  for (const int64_t extent : shape)
    offsets.emplace_back(size_t(extent), 0);
  int64_t stride = 1;
  for (unsigned i = map.getNumResults(); i-- > 0; stride *= parameters[i]) {
    std::optional<unsigned> moves;
    for (unsigned d = 0; d < shape.size(); ++d)
      if (map.getResult(i).isFunctionOfDim(d)) {
        if (moves)
          return std::nullopt;
        moves = d;
      }
    if (!moves) // 0, of one element
      continue;
    const AffineMap alone = AffineMap::get(map.getNumDims(), 0, map.getResult(i));
    SmallVector<int64_t> at(shape.size(), 0);
    for (int64_t k = 0; k < shape[*moves]; ++k) {
      at[*moves] = k;
      offsets[*moves][size_t(k)] += stride * alone.compose(at)[0];
    }
  }
  return offsets;
}

/// Calls f(element, which of the scales, integer less its zero point) for each element of a
/// dequantised constant; false where something is no constant or does not fit.
bool forEachCentred(linalg::LinalgOp op, llvm::function_ref<void(size_t, int64_t, int64_t)> f) {
  const auto type = cast<RankedTensorType>(op->getResult(0).getType());
  const std::optional<ConstantView> integers = viewConstant(op->getOperand(0)),
                                    scale = viewConstant(op->getOperand(1));
  const bool hasZero = op.getNumDpsInputs() > 2;
  const std::optional<ConstantView> zero = hasZero ? viewConstant(op->getOperand(2)) : std::nullopt;
  const bool isUnsigned = llvm::any_of(op.getBlock()->without_terminator(), [](Operation &inner) {
    return isa<arith::UIToFPOp, arith::ExtUIOp>(inner);
  });
  if (!integers || !scale || (hasZero && !zero) || !op.getIndexingMapsArray()[0].isIdentity())
    return false;
  const ArrayRef<int64_t> shape = type.getShape();
  const auto ofScale = offsetsOf(op.getIndexingMapsArray()[1], scale->type.getShape(), shape);
  const auto ofZero =
      hasZero ? offsetsOf(op.getIndexingMapsArray()[2], zero->type.getShape(), shape) : ofScale;
  if (!ofScale || !ofZero)
    return false;
  const unsigned width = getElementTypeOrSelf(op->getOperand(0)).getIntOrFloatBitWidth();
  const int64_t mask = isUnsigned && width < 64 ? (int64_t(1) << width) - 1 : -1;
  const auto integer = [&](const ConstantView &view, int64_t at) {
    return view.integer(view.splat ? 0 : at) & mask;
  };
  SmallVector<int64_t> at(shape.size(), 0);
  for (size_t i = 0; i < size_t(type.getNumElements()); ++i) {
    int64_t scaleAt = 0, zeroAt = 0;
    for (unsigned d = 0; d < shape.size(); ++d) {
      scaleAt += (*ofScale)[d][size_t(at[d])];
      zeroAt += (*ofZero)[d][size_t(at[d])];
    }
    f(i, scale->splat ? 0 : scaleAt,
      integer(*integers, int64_t(i)) - (zero ? integer(*zero, zeroAt) : 0));
    for (size_t d = shape.size(); d-- > 0 && ++at[d] == shape[d];)
      at[d] = 0;
  }
  return true;
}

/// What a dequantising map makes of constants, in fp32.
ElementsAttr evaluated(linalg::GenericOp op) {
  const auto type = cast<RankedTensorType>(op->getResult(0).getType());
  const std::optional<ConstantView> scale = viewConstant(op->getOperand(1));
  std::vector<float> reals(size_t(type.getNumElements()));
  if (!type.getElementType().isF32() ||
      !forEachCentred(op, [&](size_t i, int64_t scaleAt, int64_t integer) {
        reals[i] = float(integer) * float(scale->real(scaleAt));
      }))
    return nullptr;
  return makeConstant(type, {reinterpret_cast<const char *>(reals.data()), 4 * reals.size()},
                      "dequantized");
}

} // namespace

SmallVector<Value, 1> centredParts(linalg::LinalgOp dequantize) {
  const Value bytes = dequantize->getOperand(0);
  const auto type = cast<RankedTensorType>(bytes.getType());
  if (dequantize.getNumDpsInputs() == 2)
    return {bytes};
  std::vector<int16_t> rest(size_t(type.getNumElements()));
  SmallVector<Value, 1> parts;
  if (!type.getElementType().isInteger(8) ||
      !forEachCentred(dequantize,
                      [&](size_t i, int64_t, int64_t integer) { rest[i] = int16_t(integer); }))
    return parts;
  OpBuilder builder(dequantize);
  for (const std::vector<char> &part : int8Parts(std::move(rest)))
    parts.push_back(arith::ConstantOp::create(
        builder, bytes.getLoc(), cast<TypedAttr>(makeConstant(type, part, "centred"))));
  return parts;
}

void foldDequantized(func::FuncOp function) {
  SmallVector<linalg::GenericOp> maps;
  function.walk([&](linalg::GenericOp op) {
    if (quantKind(op) != "dequantize")
      return;
    if (isConstantValue(op->getOperand(0)))
      maps.push_back(op);
    else
      op->setAttr(kOfReals, UnitAttr::get(op.getContext()));
  });
  for (linalg::GenericOp op : maps)
    if (const ElementsAttr constant = evaluated(op)) {
      OpBuilder builder(op);
      op->getResult(0).replaceAllUsesWith(
          arith::ConstantOp::create(builder, op.getLoc(), cast<TypedAttr>(constant)));
      op->erase();
    }
}

} // namespace millrace::forms
