// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What both lowerings of the hopper level share.
#pragma once

#include "compiler/Dialect/Hopper/IR/Hopper.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Transforms/DialectConversion.h"

namespace millrace::hopper {

/// Makes an llvm.func of the same name, arguments and body; its attributes are left to the caller.
mlir::FailureOr<mlir::LLVM::LLVMFuncOp> convertKernel(KernelOp kernel,
                                                      const mlir::TypeConverter &types,
                                                      mlir::ConversionPatternRewriter &rewriter);

/// Converts every hopper operation of the module by `patterns`, and the types of scf operations
/// around them.
mlir::LogicalResult convertHopper(mlir::Operation *module, const mlir::TypeConverter &types,
                                  mlir::RewritePatternSet &&patterns);

/// An i32 constant.
mlir::Value constant(mlir::OpBuilder &builder, mlir::Location place, int32_t value);

} // namespace millrace::hopper
