// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prepared graphs node by node, for whoever wants to know of every node that fails.
#pragma once

#include "compiler/Import/Onnx/Handlers.h"

#include <string>
#include <vector>

namespace millrace::onnx_import {

/// All handlers.
HandlerTable makeHandlers();

/// What is wrong with one node.
struct NodeError {
  std::string node, text;
};

/// Imports every node of a prepared graph that does not need the values of one that fails. Returns
/// those that fail.
std::vector<NodeError> importErrors(const onnx::GraphProto &graph, const HandlerTable &handlers,
                                    mlir::MLIRContext &context);

} // namespace millrace::onnx_import
