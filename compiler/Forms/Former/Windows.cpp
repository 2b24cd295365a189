// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"
#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace millrace::forms {

using namespace mlir;
using Pool = linalg::PoolingNchwMaxOp;

namespace {

Value emptyPool(OpBuilder &builder, Location loc, RankedTensorType type) {
  Type element = type.getElementType();
  TypedAttr lowest;
  if (auto real = dyn_cast<FloatType>(element))
    lowest = FloatAttr::get(real, APFloat::getInf(real.getFloatSemantics(), true));
  else
    lowest = IntegerAttr::get(element, APInt::getSignedMinValue(element.getIntOrFloatBitWidth()));
  Value scalar = arith::ConstantOp::create(builder, loc, lowest);
  Value init = tensor::EmptyOp::create(builder, loc, type.getShape(), element);
  return linalg::FillOp::create(builder, loc, ValueRange(scalar), ValueRange(init)).getResult(0);
}

/// A maximum pooling of `input` over kernel ky x kx.
Value pool(OpBuilder &builder, Location loc, Value input, std::array<int64_t, 2> kernel,
           std::array<int64_t, 2> stride, std::array<int64_t, 2> dilation) {
  auto type = cast<RankedTensorType>(input.getType());
  SmallVector<int64_t> shape(type.getShape());
  for (unsigned i : {0u, 1u})
    shape[2 + i] = (shape[2 + i] - (kernel[i] - 1) * dilation[i] - 1) / stride[i] + 1;
  Value window = tensor::EmptyOp::create(builder, loc, kernel, type.getElementType());
  Value init = emptyPool(builder, loc, RankedTensorType::get(shape, type.getElementType()));
  return Pool::create(builder, loc, TypeRange(init.getType()), ValueRange{input, window},
                      ValueRange(init), builder.getI64TensorAttr(stride),
                      builder.getI64TensorAttr(dilation))
      ->getResult(0);
}

void split(Pool op) {
  auto kernel = cast<RankedTensorType>(op->getOperand(1).getType()).getShape();
  auto strides = op.getStrides().getValues<int64_t>(),
       dilations = op.getDilations().getValues<int64_t>();
  constexpr int64_t kFewTaps = 4; // as a tree, these fit one kernel
  if (kernel[0] == 1 || kernel[1] == 1 || kernel[0] * kernel[1] <= kFewTaps)
    return;
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value input = op->getOperand(0);
  auto pad = input.getDefiningOp<tensor::PadOp>();
  Value scalar = pad ? pad.getConstantPaddingValue() : Value();
  for (unsigned i : {1u, 0u}) { // rows last: their reads are whole vectors either way
    if (pad) {
      Value source = i == 1 ? pad.getSource() : input;
      input = padAlong(builder, loc, source, 2 + i, pad.getStaticLow()[2 + i],
                       pad.getStaticHigh()[2 + i], scalar);
    }
    std::array<int64_t, 2> one = {1, 1}, k = one, stride = one, dilation = one;
    k[i] = kernel[i], stride[i] = strides[i], dilation[i] = dilations[i];
    input = pool(builder, loc, input, k, stride, dilation);
  }
  op->getResult(0).replaceAllUsesWith(input);
  op->erase();
}

} // namespace

bool isSameConstant(Value x, Value y) {
  if (x == y)
    return true;
  std::optional<ConstantView> a = viewConstant(x), b = viewConstant(y);
  return a && b && a->type == b->type && a->splat == b->splat && a->bytes == b->bytes;
}

bool haveOneScheme(linalg::GenericOp dequantize, linalg::GenericOp quantize) {
  linalg::GenericOp x = dequantize, y = quantize;
  if (x.getNumDpsInputs() != y.getNumDpsInputs() ||
      getElementTypeOrSelf(x->getOperand(0)) != getElementTypeOrSelf(y->getResult(0)))
    return false;
  for (unsigned i = 1; i < x.getNumDpsInputs(); ++i)
    if (!isSameConstant(x->getOperand(i), y->getOperand(i)) ||
        cast<RankedTensorType>(x->getOperand(i).getType()).getNumElements() != 1)
      return false;
  for (Operation &inner : y.getBody()->without_terminator())
    if (isa<arith::FPToUIOp>(inner))
      return false;
  return true;
}

namespace {

void poolInteger(Pool op) {
  Value result = op->getResult(0);
  if (!result.hasOneUse())
    return;
  auto quantize = dyn_cast<linalg::GenericOp>(*result.user_begin());
  Value input = op->getOperand(0);
  auto pad = input.getDefiningOp<tensor::PadOp>();
  auto dequantize = (pad ? pad.getSource() : input).getDefiningOp<linalg::GenericOp>();
  if (!quantize || !dequantize || quantKind(quantize) != "quantize" ||
      quantKind(dequantize) != "dequantize" || !haveOneScheme(dequantize, quantize))
    return;
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value integers = dequantize->getOperand(0);
  Type element = getElementTypeOrSelf(integers);
  if (pad) {
    Value lowest = arith::ConstantOp::create(
        builder, loc,
        IntegerAttr::get(element, APInt::getSignedMinValue(element.getIntOrFloatBitWidth())));
    auto shape = cast<RankedTensorType>(input.getType()).getShape();
    integers = tensor::PadOp::create(builder, loc, RankedTensorType::get(shape, element), integers,
                                     pad.getMixedLowPad(), pad.getMixedHighPad(), lowest);
  }
  auto kernel = cast<RankedTensorType>(op->getOperand(1).getType()).getShape();
  auto strides = op.getStrides().getValues<int64_t>(),
       dilations = op.getDilations().getValues<int64_t>();
  Value pooled = pool(builder, loc, integers, {kernel[0], kernel[1]}, {strides[0], strides[1]},
                      {dilations[0], dilations[1]});
  quantize.getResult(0).replaceAllUsesWith(pooled);
  quantize->erase();
  op->erase();
}

} // namespace

void poolIntegers(func::FuncOp function) {
  SmallVector<Pool> pools;
  function.walk([&](Pool op) { pools.push_back(op); });
  for (Pool op : pools)
    poolInteger(op);
}

void splitMaxWindows(func::FuncOp function) {
  SmallVector<Pool> pools;
  function.walk([&](Pool op) { pools.push_back(op); });
  for (Pool op : pools)
    split(op);
}

} // namespace millrace::forms
