// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Reference/Lower.h"

#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Pipelines/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace millrace::reference {
namespace {

/// tensor.concat has no bufferization; as a chain of insertions it has.
struct DecomposeConcat : PassWrapper<DecomposeConcat, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DecomposeConcat)
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    tensor::populateDecomposeTensorConcatPatterns(patterns);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      signalPassFailure();
  }
};

/// memref.copy between strided buffers calls a runtime library that is not there; linalg.copy
/// becomes loops.
struct CopyByLoops : PassWrapper<CopyByLoops, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CopyByLoops)
  void runOnOperation() override {
    getOperation().walk([](memref::CopyOp copy) {
      OpBuilder builder(copy);
      linalg::CopyOp::create(builder, copy.getLoc(), copy.getSource(), copy.getTarget());
      copy.erase();
    });
  }
};

struct OutlineLoops : PassWrapper<OutlineLoops, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(OutlineLoops)
  void runOnOperation() override { outlineLoops(getOperation()); }
};

/// Functions whose LLVM expansion is missing or loses digits (expm1 as exp - 1) call the C library.
struct CallLibm : PassWrapper<CallLibm, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CallLibm)
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<func::FuncDialect, LLVM::LLVMDialect>();
  }
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    populateMathToLibmConversionPatterns(patterns);
    ConversionTarget target(getContext());
    target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    target.addIllegalOp<math::ExpM1Op, math::Log1pOp, math::ErfOp, math::ErfcOp, math::TanOp,
                        math::AsinOp, math::AcosOp, math::AtanOp, math::Atan2Op, math::SinhOp,
                        math::CoshOp, math::TanhOp, math::AsinhOp, math::AcoshOp, math::AtanhOp,
                        math::CbrtOp>();
    if (failed(applyPartialConversion(getOperation(), target, std::move(patterns))))
      signalPassFailure();
  }
};

/// A model's inputs stay as they are, also where a result could be made in their place.
struct KeepArguments : PassWrapper<KeepArguments, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(KeepArguments)
  void runOnOperation() override {
    getOperation().walk([&](func::FuncOp function) {
      for (unsigned i = 0; i < function.getNumArguments() && function.isPublic(); ++i)
        if (isa<TensorType>(function.getArgument(i).getType()))
          function.setArgAttr(i, bufferization::BufferizationDialect::kWritableAttrName,
                              BoolAttr::get(&getContext(), false));
    });
  }
};

void addConversionToLLVM(OpPassManager &passes) {
  passes.addPass(std::make_unique<OutlineLoops>());
  passes.addPass(createConvertLinalgToLoopsPass());
  passes.addPass(memref::createExpandStridedMetadataPass());
  passes.addPass(createLowerAffinePass());
  passes.addPass(createLoopInvariantCodeMotionPass());
  passes.addPass(createSCFToControlFlowPass());
  passes.addPass(std::make_unique<CallLibm>());
  passes.addPass(createConvertMathToLLVMPass());
  passes.addPass(createConvertVectorToLLVMPass());
  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = true;
  passes.addPass(arith::createArithExpandOpsPass(expand));
  passes.addPass(createArithToLLVMConversionPass());
  passes.addPass(createFinalizeMemRefToLLVMConversionPass());
  ConvertFuncToLLVMPassOptions functions;
  functions.useBarePtrCallConv = true;
  passes.addPass(createConvertFuncToLLVMPass(functions));
  passes.addPass(createConvertControlFlowToLLVMPass());
  passes.addPass(createConvertIndexToLLVMPass());
  passes.addPass(createReconcileUnrealizedCastsPass());
}

} // namespace

void addBufferization(OpPassManager &passes) {
  passes.addPass(std::make_unique<DecomposeConcat>());
  passes.addPass(std::make_unique<KeepArguments>());
  passes.addPass(bufferization::createEmptyTensorEliminationPass());
  bufferization::OneShotBufferizePassOptions bufferize;
  bufferize.bufferizeFunctionBoundaries = true;
  bufferize.functionBoundaryTypeConversion = bufferization::LayoutMapOption::IdentityLayoutMap;
  passes.addPass(bufferization::createOneShotBufferizePass(bufferize));
  passes.addPass(createCanonicalizerPass());
  bufferization::BufferResultsToOutParamsPassOptions results;
  results.modifyPublicFunctions = true;
  results.addResultAttribute = true;
  passes.addPass(bufferization::createBufferResultsToOutParamsPass(results));
  passes.addPass(createElideResultCopiesPass());
  bufferization::buildBufferDeallocationPipeline(passes);
  passes.addPass(std::make_unique<CopyByLoops>());
}

/// Runs passes; their first error is that of the status, behind `what`.
static Status run(ModuleOp module, const std::string &what,
                  llvm::function_ref<void(OpPassManager &)> add) {
  std::string text;
  ScopedDiagnosticHandler collect(module.getContext(), [&](Diagnostic &diagnostic) {
    if (text.empty() && diagnostic.getSeverity() == DiagnosticSeverity::Error)
      text = diagnostic.str();
    return success();
  });
  PassManager passes(module.getContext());
  add(passes);
  if (failed(passes.run(module)))
    return Error{what + ": " + text};
  return Success{};
}

Expected<SmallVector<ElementsAttr>>
lowerTensors(ModuleOp module, StringRef entry,
             const std::function<void(OpPassManager &)> &onTensors) {
  dropEmptyPorts(module, entry);
  fillSplats(module, entry);
  clampIndices(module);
  guardDivisions(module);
  orderLoops(module);
  if (onTensors)
    if (Status done = run(module, "cannot lower to machine code", onTensors); !done)
      return done.takeError();
  return hoistConstants(module, entry);
}

Status lowerToLLVM(ModuleOp module, const ReferenceOptions &options) {
  Status done = run(module, "cannot lower to machine code", [&](OpPassManager &passes) {
    addBufferization(passes);
    if (options.onBuffers)
      options.onBuffers(passes);
    addConversionToLLVM(passes);
  });
  if (!done)
    return done;
  keepOutlined(module);
  return Success{};
}

} // namespace millrace::reference
