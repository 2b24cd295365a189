// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Forms/Former/Views.h"

namespace millrace::forms {

using namespace mlir;

namespace {

void viewInteger(linalg::GenericOp quantize) {
  SmallVector<Operation *> views;
  Value value = quantize->getOperand(0);
  while (isa_and_nonnull<linalg::TransposeOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp,
                         tensor::ExtractSliceOp>(value.getDefiningOp())) {
    views.push_back(value.getDefiningOp());
    value = views.back()->getOperand(0);
  }
  auto dequantize = value.getDefiningOp<linalg::GenericOp>();
  if (!dequantize || quantKind(dequantize) != "dequantize" || !haveOneScheme(dequantize, quantize))
    return;
  Value integers = dequantize->getOperand(0);
  for (Operation *view : llvm::reverse(views)) {
    OpBuilder builder(view);
    integers = viewOf(builder, view, integers);
  }
  quantize.getResult(0).replaceAllUsesWith(integers);
  quantize->erase();
}

} // namespace

void viewIntegers(func::FuncOp function) {
  SmallVector<linalg::GenericOp> quantizers;
  function.walk([&](linalg::GenericOp op) {
    if (quantKind(op) == "quantize" && op->getNumResults() == 1)
      quantizers.push_back(op);
  });
  for (linalg::GenericOp op : quantizers)
    viewInteger(op);
}

} // namespace millrace::forms
