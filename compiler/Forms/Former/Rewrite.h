// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rewrites of the tensor level that make forms cheaper; what comes out is tensor level again.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace millrace::forms {

/// Folds chains of maps that are affine per channel of a contraction with constant weights (batch
/// normalisation) into the weights and one addition, in fp32.
void foldChannels(mlir::func::FuncOp function);

/// quantize(maxpool(dequantize(x))) with one scheme becomes maxpool(x) on the integers, which is
/// exact.
void poolIntegers(mlir::func::FuncOp function);

/// Cuts 2-D maximum windows into one along each dimension: k x k operands become k and k. Exact.
void splitMaxWindows(mlir::func::FuncOp function);

/// dequantize(quantize(x)) becomes x where x is one side of a sum and nothing else uses it: the sum
/// is then rounded once. At most one side of each sum.
void fuseResiduals(mlir::func::FuncOp function);

} // namespace millrace::forms
