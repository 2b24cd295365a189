// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace millrace::forms {

/// Folds chains of maps that are affine per channel of a contraction with constant weights (batch
/// normalisation) into the weights and one addition, in fp32.
void foldChannels(mlir::func::FuncOp function);

} // namespace millrace::forms
