// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Evaluates tensor-level operations on constants: the arithmetic on shapes that exporters leave in
// graphs, and tables that a model computes of its weights alone, as Swin V2 its position biases.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Value.h"

namespace millrace::onnx_import {

/// Up to this many elements, what follows from constants becomes a constant in any case.
constexpr int64_t smallFoldedElements = 4096;
/// Larger tensors are computed only of others as large. Swin V2 at 384 pixels has 1,131,008 numbers
/// between its layers.
constexpr int64_t largestFoldedElements = int64_t{1} << 22;
/// Scalar operations, loads and stores among them, of one operation, and of all of a model's: one
/// takes about a nanosecond.
constexpr int64_t mostFoldingWork = int64_t{1} << 28, mostFoldingWorkOfAll = int64_t{1} << 32;

/// The constant that `value` equals if it is one, or has up to `most` elements and follows from
/// constants by linalg, tensor and arith operations of no more; else null. Creates no operations.
mlir::ElementsAttr foldValue(mlir::Value value, int64_t most = smallFoldedElements);

/// Replaces results of operations below `root` that follow from constants: small ones, and of large
/// ones those that something else reads, if they are computed and take no more bytes than what is
/// there anyway. That is a constant that they are computed of, or a tensor between that the grid
/// does not make of its operands while it reads them: a sum, a concatenation, a read at computed
/// positions, a function of the C library, or arithmetic that it has no instructions for, which
/// would be a step of the host. So broadcasts and outer sums stay what they are, and so do weights
/// that are only moved. What is dequantised stays integers; what is quantised becomes some, whatever
/// its size: weights that a model quantises itself, as those that were trained quantised.
void foldConstants(mlir::Operation *root);

} // namespace millrace::onnx_import
