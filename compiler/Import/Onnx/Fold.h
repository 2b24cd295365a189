// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Evaluates tensor-level operations on small constants: the arithmetic on shapes that exporters
// leave in graphs.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Value.h"

namespace millrace::onnx_import {

/// Tensors above this many elements are not folded; shape arithmetic stays far below.
constexpr int64_t largestFoldedElements = 4096;

/// The constant that `value` equals if it is one, or follows from small constants by linalg, tensor
/// and arith operations; else null. Creates no operations.
mlir::ElementsAttr foldValue(mlir::Value value);

/// Replaces all results of operations below `root` that follow from small constants.
void foldConstants(mlir::Operation *root);

} // namespace millrace::onnx_import
