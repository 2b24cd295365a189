// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Import/Onnx/NodeImporter.h"

namespace millrace::onnx_import {

/// result[..., i..., ...] = data[..., indices[i...], ...] along `axis`; negative indices count from
/// the end.
mlir::Value gather(TensorBuilder &t, mlir::Value data, mlir::Value indices, int64_t axis);

} // namespace millrace::onnx_import
