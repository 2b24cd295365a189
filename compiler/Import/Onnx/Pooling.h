// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Poolings of given tensors: used by AveragePool and its quantised form.
#pragma once

#include "compiler/Import/Onnx/NodeImporter.h"

namespace millrace::onnx_import {

/// The averages over windows of `input`, which has the shape of the node's first input; the windows
/// are the node's. Errors: a rank or windows that are not supported.
Expected<mlir::Value> averagePool(NodeImporter &node, mlir::Value input);

} // namespace millrace::onnx_import
