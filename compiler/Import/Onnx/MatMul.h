// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of given tensors: used by MatMul, Gemm, their quantised forms and attention.
#pragma once

#include "compiler/Import/Onnx/NodeImporter.h"

namespace millrace::onnx_import {

/// NumPy's matmul for any ranks; an error if the shapes do not fit.
Expected<mlir::Value> multiply(NodeImporter &node, mlir::Value a, mlir::Value w);
/// x of rank >= 2 times a K x N matrix, plus a bias of N (may be null).
mlir::Value linear(NodeImporter &node, mlir::Value x, mlir::Value weights, mlir::Value bias);

} // namespace millrace::onnx_import
