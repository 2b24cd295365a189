// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Former/Former.h"
#include "compiler/Forms/Former/Rewrite.h"

namespace millrace::forms {

using namespace mlir;

void flattenConcats(func::FuncOp function) {
  function.walk([](tensor::ConcatOp concat) { // operands come first: they are flat already
    SmallVector<Value> parts;
    for (Value part : concat.getInputs()) {
      auto inner = part.getDefiningOp<tensor::ConcatOp>();
      if (inner && inner.getDim() == concat.getDim() && !inner->hasAttr(kDevice) &&
          !concat->hasAttr(kDevice))
        llvm::append_range(parts, inner.getInputs());
      else
        parts.push_back(part);
    }
    if (parts.size() > concat.getInputs().size())
      concat->setOperands(parts);
  });
}

} // namespace millrace::forms
