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
  // What a user named, for a device or for fp32, stays as it is.
  const auto isNamed = [](Operation *op) { return op->hasAttr(kDevice) || op->hasAttr(kKeepFp32); };
  const auto madeBy = [&](Value value, StringRef kind) {
    auto op = value.getDefiningOp<linalg::GenericOp>();
    return op && value.hasOneUse() && quantKind(op) == kind && !isNamed(op) &&
                   op.getMatchingIndexingMap(op.getDpsInputOperand(0)).isIdentity()
               ? op
               : linalg::GenericOp();
  };
  SmallVector<linalg::GenericOp> clamping;
  function.walk([&](linalg::GenericOp op) {
    if (clamps(op) && op.getResult(0).hasOneUse() && !isNamed(op))
      clamping.push_back(op);
  });
  for (linalg::GenericOp clamp : clamping) {
    auto last = dyn_cast<linalg::GenericOp>(*clamp.getResult(0).user_begin());
    const linalg::GenericOp dequantize = madeBy(clamp->getOperand(0), "dequantize");
    if (!last || quantKind(last) != "quantize" || !dequantize || !haveOneScheme(dequantize, last))
      continue;
    const linalg::GenericOp first = madeBy(dequantize->getOperand(0), "quantize");
    if (!first || !haveOneScheme(dequantize, first))
      continue;
    clamp->setOperand(0, first->getOperand(0));
    clamp->removeAttr(kOnnxValue); // which is rounded
    dequantize->erase();
    first->erase();
  }
}

} // namespace millrace::forms
