// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The window attributes that convolutions and poolings share.
#pragma once

#include "compiler/Import/Onnx/NodeImporter.h"

namespace millrace::onnx_import {

/// A window that slides over the spatial dimensions of an N x C x D1 x ... tensor.
struct Window {
  Shape kernel, strides, dilations;
  Shape low, high; ///< padding before and after each spatial dimension, as the attributes say
  Shape extra;     ///< further padding after, which only ceil_mode asks for
  Shape outputs;   ///< positions in each spatial dimension

  size_t rank() const { return kernel.size(); }
};

/// Reads kernel_shape (or `kernel`, from the weights), strides, dilations, pads, auto_pad and
/// ceil_mode.
Expected<Window> readWindow(NodeImporter &node, llvm::ArrayRef<int64_t> spatial,
                            llvm::ArrayRef<int64_t> kernel);

/// Pads the spatial dimensions of input 0 with `scalar`.
mlir::Value padWindow(NodeImporter &node, mlir::Value input, const Window &window,
                      mlir::Value scalar);

/// The attribute that linalg's window operations take for strides and dilations.
mlir::DenseIntElementsAttr windowAttribute(NodeImporter &node, llvm::ArrayRef<int64_t> values);

/// linalg's index of an input element: position * stride + tap * dilation, for loops `position` and
/// `tap`.
mlir::AffineExpr windowIndex(NodeImporter &node, unsigned position, unsigned tap, int64_t stride,
                             int64_t dilation);

} // namespace millrace::onnx_import
