// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

namespace millrace::forms {

using namespace mlir;

namespace {

/// An argument whose elements are wider than those of the grid's memory, or its conversion.
bool isWideInput(Value value, bool isBf16) {
  Operation *op = value.getDefiningOp();
  while (op && isa<linalg::LinalgOp>(op) && isMap(cast<linalg::LinalgOp>(op)) &&
         cast<linalg::LinalgOp>(op).getNumDpsInputs() == 1 &&
         llvm::hasSingleElement(cast<linalg::LinalgOp>(op).getBlock()->without_terminator()) &&
         isa<arith::TruncFOp>(cast<linalg::LinalgOp>(op).getBlock()->front())) {
    value = op->getOperand(0);
    op = value.getDefiningOp();
  }
  const Type element = cast<RankedTensorType>(value.getType()).getElementType();
  return isa<BlockArgument>(value) &&
         (element.isF32() || element.isF64() || (isBf16 && element.isF16()));
}

/// Collects the operations that compute `value` of `input` alone, up to a few; whether there is an
/// extreme among them, and nothing else is read.
bool isExtremeOf(Value value, Value input, SetVector<Operation *> &chain) {
  constexpr size_t kMost = 64;
  bool hasExtreme = false;
  SmallVector<Value> open{value};
  while (!open.empty()) {
    Value next = open.pop_back_val();
    Operation *op = next.getDefiningOp();
    if (next == input)
      continue;
    if (!op || chain.size() >= kMost)
      return false;
    if (op->hasTrait<OpTrait::ConstantLike>() || isa<tensor::EmptyOp, linalg::FillOp>(op) ||
        !chain.insert(op))
      continue;
    if (auto form = dyn_cast<linalg::LinalgOp>(op); form && form.getNumReductionLoops() > 0)
      hasExtreme |= combinerOf(form) == Combiner::Max || combinerOf(form) == Combiner::Min;
    else if (!form && !isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op))
      return false;
    open.append(op->operand_begin(), op->operand_end());
  }
  return hasExtreme;
}

/// Whether the map takes a difference, or rounds to steps: then what it reads must not be rounded.
bool needsExactInput(linalg::LinalgOp map) {
  if (quantKind(map) == "quantize")
    return true;
  return llvm::any_of(map.getBlock()->without_terminator(),
                      [](Operation &op) { return isa<arith::SubFOp>(op); });
}

} // namespace

void shiftInputs(func::FuncOp function, bool isBf16) {
  function.walk([&](linalg::LinalgOp op) {
    if (op->getNumResults() != 1 || !formOf(op->getResult(0)) || !isMap(op) ||
        op.getNumDpsInputs() < 2 || !needsExactInput(op) || !isWideInput(op->getOperand(0), isBf16))
      return;
    SetVector<Operation *> chain;
    for (unsigned i = 1; i < op.getNumDpsInputs(); ++i) {
      SetVector<Operation *> own;
      if (!isExtremeOf(op->getOperand(i), op->getOperand(0), own))
        return;
      chain.insert_range(own);
    }
    chain.insert(op);
    for (Operation *each : chain)
      each->setAttr(kOnHost, UnitAttr::get(op->getContext()));
  });
}

} // namespace millrace::forms
