// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Import/Onnx/TensorBuilder.h"

namespace millrace::onnx_import {

/// `shape` with extent 1 at `axes`.
Shape keepDims(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> axes);
/// The mean over `axes`, which the result lacks: a sum, then a division.
mlir::Value meanOver(TensorBuilder &t, mlir::Value input, llvm::ArrayRef<int64_t> axes);

} // namespace millrace::onnx_import
