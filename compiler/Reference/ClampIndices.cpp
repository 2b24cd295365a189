// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Reference/Lower.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace millrace::reference {

void clampIndices(ModuleOp module) {
  module.walk([](tensor::ExtractOp extract) {
    OpBuilder builder(extract);
    Location location = extract.getLoc();
    ArrayRef<int64_t> shape = extract.getTensor().getType().getShape();
    Value zero = arith::ConstantIndexOp::create(builder, location, 0);
    for (auto [i, index] : llvm::enumerate(extract.getIndices())) {
      Value last = arith::ConstantIndexOp::create(builder, location, shape[i] - 1);
      Value bounded = arith::MinSIOp::create(builder, location, index, last);
      extract.getIndicesMutable()[i].set(arith::MaxSIOp::create(builder, location, bounded, zero));
    }
  });
}

} // namespace millrace::reference
