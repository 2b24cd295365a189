// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Reference/Lower.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace millrace::reference {
namespace {

/// On arguments of which the caller gives memory for a result, and no other name of it.
constexpr const char *kResult = "bufferize.result";

/// Of a value that is all elements of an allocation, in their order: that allocation.
memref::AllocOp allocationOf(Value buffer) {
  const auto isPlain = [](Value value) {
    const auto type = dyn_cast<MemRefType>(value.getType());
    return type && type.hasStaticShape() && type.getLayout().isIdentity();
  };
  while (isPlain(buffer)) {
    Operation *op = buffer.getDefiningOp();
    if (auto allocation = dyn_cast_or_null<memref::AllocOp>(op))
      return allocation;
    // With an identity layout at both ends, these leave out and move no element.
    if (!isa_and_nonnull<memref::ExpandShapeOp, memref::CollapseShapeOp, memref::CastOp>(op))
      return {};
    buffer = op->getOperand(0);
  }
  return {};
}

class ElideResultCopies : public PassWrapper<ElideResultCopies, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ElideResultCopies)
  StringRef getArgument() const final { return "elide-result-copies"; }
  StringRef getDescription() const final {
    return "makes results that are whole allocations in the memory that the caller gives for them";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry.insert<memref::MemRefDialect>();
  }
  void runOnOperation() final {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (llvm::hasSingleElement(function.getBody())) {
        elide(function);
        for (unsigned i = 0; i < function.getNumArguments(); ++i)
          function.removeArgAttr(i, kResult);
      }
  }

private:
  /// The copies to results are the last that happens, and nothing else names a result. So its
  /// memory can be that of the allocation from the first use on, whatever reads it there.
  void elide(func::FuncOp function) {
    Operation *op = function.front().getTerminator()->getPrevNode();
    while (auto copy = dyn_cast_or_null<memref::CopyOp>(op)) {
      op = op->getPrevNode();
      auto result = dyn_cast<BlockArgument>(copy.getTarget());
      if (!result || !result.hasOneUse() || result.getOwner() != &function.front() ||
          !function.getArgAttr(result.getArgNumber(), kResult))
        break;
      if (memref::AllocOp allocation = allocationOf(copy.getSource()))
        replace(allocation, result, copy);
    }
  }

  void replace(memref::AllocOp allocation, BlockArgument result, memref::CopyOp copy) {
    copy.erase();
    OpBuilder builder(allocation);
    const MemRefType type = allocation.getType();
    Value memory = result;
    if (type != result.getType())
      memory = memref::ReinterpretCastOp::create(builder, allocation.getLoc(), type, result, 0,
                                                 type.getShape(), type.getStridesAndOffset().first);
    allocation.replaceAllUsesWith(memory);
    allocation.erase();
  }
};

} // namespace

std::unique_ptr<Pass> createElideResultCopiesPass() {
  return std::make_unique<ElideResultCopies>();
}

} // namespace millrace::reference
