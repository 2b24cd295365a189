// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of given tensors: used by MatMul, Gemm, their quantised forms and attention.
#pragma once

#include "compiler/Import/Onnx/IntegerProduct.h"

namespace millrace::onnx_import {

/// NumPy's matmul for any ranks; an error if the shapes do not fit.
Expected<mlir::Value> multiply(NodeImporter &node, mlir::Value a, mlir::Value w);
/// The int32 product of bytes and input `b`, constant bytes of rank >= 2 whose zero point is input
/// `zeroAt` (may be absent); null where that is no constant, or `a` has less than two dimensions.
Expected<mlir::Value> multiplyBytes(NodeImporter &node, SignedBytes a, size_t b, size_t zeroAt);
/// The same as reals: times both scales, of which `bScale` may have one per column, plus a bias
/// (may be null).
Expected<mlir::Value> scaledProduct(NodeImporter &node, SignedBytes a, size_t b, size_t zeroAt,
                                    mlir::Value aScale, mlir::Value bScale, mlir::Value bias);
/// x of rank >= 2 times a K x N matrix, plus a bias of N (may be null).
mlir::Value linear(NodeImporter &node, mlir::Value x, mlir::Value weights, mlir::Value bias);

} // namespace millrace::onnx_import
