// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Dialect/Hopper/Transforms/LowerKernel.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/Patterns.h"

namespace millrace::hopper {

using namespace mlir;

FailureOr<LLVM::LLVMFuncOp> convertKernel(KernelOp kernel, const TypeConverter &types,
                                          ConversionPatternRewriter &rewriter) {
  TypeConverter::SignatureConversion signature(kernel.getNumArguments());
  if (failed(types.convertSignatureArgs(kernel.getArgumentTypes(), signature)))
    return kernel.emitError("cannot convert the types of its arguments");
  const auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(kernel.getContext()),
                                                signature.getConvertedTypes());
  auto function = LLVM::LLVMFuncOp::create(rewriter, kernel.getLoc(), kernel.getSymName(), type);
  rewriter.inlineRegionBefore(kernel.getBody(), function.getBody(), function.end());
  if (failed(rewriter.convertRegionTypes(&function.getBody(), types, &signature)))
    return failure();
  rewriter.eraseOp(kernel);
  return function;
}

LogicalResult convertHopper(Operation *module, const TypeConverter &types,
                            RewritePatternSet &&patterns) {
  ConversionTarget target(*module->getContext());
  target.addIllegalDialect<HopperDialect>();
  scf::populateSCFStructuralTypeConversionsAndLegality(types, patterns, target);
  target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
  return applyPartialConversion(module, target, std::move(patterns));
}

Value constant(OpBuilder &builder, Location place, int32_t value) {
  return LLVM::ConstantOp::create(builder, place, builder.getI32Type(),
                                  builder.getI32IntegerAttr(value));
}

} // namespace millrace::hopper
