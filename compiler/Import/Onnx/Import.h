// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ONNX to the tensor level: one `func.func @main` on static ranked tensors, made of upstream func,
// tensor, linalg, arith and math operations only. docs/dialects/tensor.md lists the conventions.
#pragma once

#include "arch/spec/Expected.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace millrace {

struct ImportOptions {
  std::map<std::string, int64_t> dims; ///< value of each symbolic dimension (`--dim name=n`)
  bool cleanUp = true;                 ///< fold small constants, canonicalize, remove duplicates
};

/// Loads the dialects that importOnnx produces.
void loadImportDialects(mlir::MLIRContext &context);

/// Imports an ONNX file of opset 7 or newer. Arguments and results of @main carry `onnx.name` and
/// `onnx.type`; each operation's location is the name of its ONNX node, or `<type>_<index>` where
/// the node has none. Errors name the file and: what makes it invalid, the symbolic dimensions
/// without a value, or all operations that are not supported, by type and node.
Expected<mlir::OwningOpRef<mlir::ModuleOp>> importOnnx(const std::filesystem::path &path,
                                                       const ImportOptions &options,
                                                       mlir::MLIRContext &context);

} // namespace millrace
