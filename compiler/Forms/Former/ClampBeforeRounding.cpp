// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace millrace::forms {

/// Is the map a chain of maxima and minima of its one input and constants?
static bool clamps(linalg::GenericOp map) {
  if (!map || !isMap(map) || map.getNumDpsInputs() != 1)
    return false;
  Value value = map.getBody()->getArgument(0);
  for (Operation &inner : map.getBody()->without_terminator()) {
    if (!isa<arith::MaximumFOp, arith::MinimumFOp>(inner) || inner.getOperand(0) != value ||
        !matchPattern(inner.getOperand(1), m_Constant()))
      return false;
    value = inner.getResult(0);
  }
  return map.getBody()->getTerminator()->getOperand(0) == value;
}

void clampBeforeRounding(func::FuncOp function) {
  SmallVector<linalg::GenericOp> clamping;
  function.walk([&](linalg::GenericOp op) {
    if (clamps(op) && op.getResult(0).hasOneUse() && !isNamedByUser(op))
      clamping.push_back(op);
  });
  for (linalg::GenericOp clamp : clamping) {
    auto last = dyn_cast<linalg::GenericOp>(*clamp.getResult(0).user_begin());
    auto dequantize = clamp->getOperand(0).getDefiningOp<linalg::GenericOp>();
    const linalg::GenericOp first = quantizerOf(dequantize);
    if (!last || quantKind(last) != "quantize" || !first || !haveOneScheme(dequantize, last))
      continue;
    clamp->setOperand(0, first->getOperand(0));
    clamp->removeAttr(kOnnxValue); // which is rounded
    dequantize->erase();
    first->erase();
  }
}

} // namespace millrace::forms
