// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"

#include "compiler/Codegen/Gpu/Attention/FormAttention.h"
#include "compiler/Codegen/Gpu/Gather/FindGather.h"
#include "compiler/Codegen/Gpu/Kernels/BuildKernel.h"
#include "compiler/Codegen/Gpu/Products/FuseProducts.h"
#include "compiler/Codegen/Gpu/Selection/FormTopK.h"
#include "compiler/Reference/Lower.h"

#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include "llvm/ADT/StringMap.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

class FuseElementwise : public PassWrapper<FuseElementwise, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FuseElementwise)
  StringRef getArgument() const final { return "fuse-elementwise"; }
  StringRef getDescription() const final {
    return "makes elementwise operations a part of the only one that reads them";
  }
  void runOnOperation() final {
    RewritePatternSet patterns(&getContext());
    // Where a loop repeats an element of the operand, it would be computed as often.
    linalg::populateElementwiseOpsFusionPatterns(patterns, [](OpOperand *operand) {
      auto consumer = dyn_cast<linalg::LinalgOp>(operand->getOwner());
      return operand->get().hasOneUse() && consumer &&
             consumer.getMatchingIndexingMap(operand).getNumResults() == consumer.getNumLoops();
    });
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

/// What a kernel does, for its name.
StringRef kindOf(linalg::LinalgOp op) {
  if (isa<linalg::FillOp>(op))
    return "fill";
  if (isa<linalg::CopyOp, linalg::TransposeOp>(op))
    return "copy";
  if (!op.getBlock()->getOps<memref::LoadOp>().empty())
    return "gather";
  return op.getNumReductionLoops() ? "reduce" : "map";
}

/// Bad input must not lead out of a tensor or end the process.
class MakeSafe : public PassWrapper<MakeSafe, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MakeSafe)
  StringRef getArgument() const final { return "make-safe"; }
  StringRef getDescription() const final {
    return "bounds indices that are data, and guards integer divisions";
  }
  void runOnOperation() final {
    reference::clampIndices(getOperation());
    reference::guardDivisions(getOperation());
  }
};

class FormKernels : public PassWrapper<FormKernels, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FormKernels)
  StringRef getArgument() const final { return "linalg-to-tile"; }
  StringRef getDescription() const final {
    return "makes each linalg operation on buffers the launch of a kernel of the tile level";
  }
  void getDependentDialects(DialectRegistry &registry) const final {
    registry
        .insert<arith::ArithDialect, memref::MemRefDialect, scf::SCFDialect, tile::TileDialect>();
  }
  void runOnOperation() final {
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk([&](linalg::LinalgOp op) { ops.push_back(op); });
    for (linalg::LinalgOp op : ops)
      if (op.hasPureBufferSemantics())
        replace(op);
  }

private:
  void replace(linalg::LinalgOp op) {
    for (auto [range, kind] : llvm::zip(op.getStaticLoopRanges(), op.getIteratorTypesArray()))
      if (range == 0 && kind == utils::IteratorType::parallel)
        return op->erase(); // its results have no elements
    OpBuilder builder = OpBuilder::atBlockEnd(getOperation().getBody());
    // All are built under one name, so that equal ones print equally.
    Expected<BuiltKernel> built = buildKernel(op, builder, "kernel");
    if (!built)
      return op->setAttr(kLeftAttribute, builder.getStringAttr(built.error()));
    std::string text;
    llvm::raw_string_ostream out(text);
    built->kernel->print(out);
    auto [found, isNew] = kernels.try_emplace(text, built->kernel);
    if (isNew)
      built->kernel.setSymName((kindOf(op) + "_" + Twine(kernels.size())).str());
    else
      built->kernel.erase();
    builder.setInsertionPoint(op);
    tile::LaunchOp::create(builder, op.getLoc(), found->second.getSymName(), built->operands);
    op->erase();
  }

  llvm::StringMap<tile::KernelOp> kernels; ///< by their text
};

} // namespace

std::unique_ptr<Pass> createFuseElementwisePass() { return std::make_unique<FuseElementwise>(); }
std::unique_ptr<Pass> createFormKernelsPass() { return std::make_unique<FormKernels>(); }

void addTensorForms(OpPassManager &passes, const std::string &multiplied,
                    std::vector<std::string> *left, const TuningTable &table) {
  passes.addPass(createFormTopKPass(left));
  if (!multiplied.empty())
    passes.addPass(createFormAttentionPass(multiplied, left, table));
  passes.addPass(createNarrowProductsPass());
  passes.addPass(createFuseElementwisePass());
  if (!multiplied.empty())
    passes.addPass(createFuseProductsPass(multiplied, left, table));
  passes.addPass(createFuseElementwisePass()); // what is stored for a product is computed at once
  passes.addPass(createFindGathersPass());
}

void addBufferForms(OpPassManager &passes) {
  passes.addPass(createFormProductsPass());
  passes.addPass(createFormRowsPass());
  passes.addPass(createFormKernelsPass());
}

void addTensorToTile(OpPassManager &passes, const std::string &multiplied,
                     std::vector<std::string> *left, const TuningTable &table) {
  passes.addPass(std::make_unique<MakeSafe>());
  addTensorForms(passes, multiplied, left, table);
  reference::addBufferization(passes);
  addBufferForms(passes);
}

void registerKernelPasses() {
  registerPass(createFuseElementwisePass);
  registerPass(createFindGathersPass);
  registerPass(createNarrowProductsPass);
  registerPass(createFormProductsPass);
  registerPass(createFormRowsPass);
  registerPass(createFormKernelsPass);
  PassPipelineRegistration<>(
      "tensor-to-tile",
      "kernels of the tile level for everything that the functions of the tensor level compute",
      [](OpPassManager &passes) { addTensorToTile(passes); });
  registerFuseProductsPass();
  registerPass([] { return createFormTopKPass(); });
}

} // namespace millrace::gpu
