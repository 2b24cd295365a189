// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolution of given tensors with a node's attributes: used by Conv and by its quantised forms.
#pragma once

#include "compiler/Import/Onnx/Window.h"

namespace millrace::onnx_import {

/// Checks shapes and groups, and reads the window.
Expected<Window> readConvolution(NodeImporter &node, mlir::Value input, mlir::Value weights);
/// The convolution without bias: N x M x outputs.
mlir::Value convolve(NodeImporter &node, mlir::Value input, mlir::Value weights, Window window);
/// input[n, c, ...] + bias[c].
mlir::Value addChannelBias(NodeImporter &node, mlir::Value input, mlir::Value bias);
/// body(input[n, c, ...], channels[c]).
mlir::Value
perChannel(NodeImporter &node, mlir::Value input, mlir::Value channels,
           llvm::function_ref<mlir::Value(Arithmetic &, mlir::Value, mlir::Value)> body);

} // namespace millrace::onnx_import
