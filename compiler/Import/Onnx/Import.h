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
#include <vector>

namespace millrace {

struct ImportOptions {
  std::map<std::string, int64_t> dims; ///< value of each symbolic dimension (`--dim name=n`)
  bool cleanUp = true;                 ///< fold small constants, canonicalize, remove duplicates
};

/// Multiply-accumulates that one node of the model asks for.
struct NodeMacs {
  std::string node; ///< its name, as the locations of its operations have it
  std::string type; ///< its operator: "Conv", "com.microsoft.Attention"
  int64_t macs = 0;
};

/// Loads the dialects that importOnnx produces.
void loadImportDialects(mlir::MLIRContext &context);

/// Imports an ONNX file of opset 7 or newer. Arguments and results of @main carry `onnx.name` and
/// `onnx.type`; an operation that makes an ONNX value has its name (kOnnxValue), and each
/// operation's location is the name of its ONNX node, or `<type>_<index>` where the node has none.
/// Errors name the file and: what makes it invalid, the symbolic dimensions without a value, or all
/// operations that are not supported, by type and node. `macs` receives the nodes that multiply and
/// accumulate numbers that depend on the model's inputs.
Expected<mlir::OwningOpRef<mlir::ModuleOp>> importOnnx(const std::filesystem::path &path,
                                                       const ImportOptions &options,
                                                       mlir::MLIRContext &context,
                                                       std::vector<NodeMacs> *macs = nullptr);

} // namespace millrace
