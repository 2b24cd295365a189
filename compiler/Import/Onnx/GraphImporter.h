// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prepared graphs node by node, for whoever wants to know of every node that fails.
#pragma once

#include "compiler/Import/Onnx/Handlers.h"

#include "compiler/Import/Onnx/Import.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <string>
#include <vector>

namespace millrace::onnx_import {

/// All handlers.
HandlerTable makeHandlers();

/// Operations of ONNX that hold graphs.
inline constexpr const char *controlFlow[] = {"If", "Loop", "Scan"};

/// What is wrong with one node.
struct NodeError {
  std::string node, text;
};

/// Imports one graph into one function. Values are known by their ONNX names.
class GraphImporter {
public:
  GraphImporter(const onnx::GraphProto &graph, const HandlerTable &handlers,
                mlir::MLIRContext &context)
      : graph(graph), handlers(handlers), context(context), builder(&context),
        tensors(mlir::UnknownLoc::get(&context), builder) {}

  Expected<mlir::OwningOpRef<mlir::ModuleOp>> run();
  /// The same with each node that fails, and all that needs it, left out.
  std::vector<NodeError> runAll();
  /// Of the nodes that depend on numbers of the graph's inputs, those that contract.
  const std::vector<NodeMacs> &macs() const { return counted; }

private:
  Status begin(mlir::ModuleOp module);
  mlir::Block &body(mlir::ModuleOp module) {
    return module.lookupSymbol<mlir::func::FuncOp>("main").getBody().front();
  }
  Status checkSupported() const;
  Status addArguments(mlir::func::FuncOp function, mlir::Block &entry);
  Status importNode(const onnx::NodeProto &node, size_t index);
  using Values = llvm::SmallVector<GraphValue>;
  /// The nodes of a graph within a node, once for all or once for each turn of a loop. Values of
  /// the graph around it are known to it. Returns its outputs.
  Expected<Values> importBody(const onnx::GraphProto &body, llvm::ArrayRef<GraphValue> inputs,
                              bool varies);
  Expected<Values> importIf(NodeImporter &node);
  Expected<Values> importLoop(NodeImporter &node, bool varies);
  Expected<Values> importScan(NodeImporter &node, bool varies);
  Status importControlFlow(const onnx::NodeProto &node, NodeImporter &importer);
  void nameValue(mlir::Value value, const std::string &output);
  Status addResults(mlir::func::FuncOp function);
  Expected<GraphValue> lookUp(const std::string &name);
  void countMacs(const onnx::NodeProto &node, const std::string &name,
                 const NodeImporter &importer);
  mlir::Location named(const std::string &name) {
    return mlir::NameLoc::get(builder.getStringAttr(name));
  }
  /// A map that converts the elements, for values whose stored type is not the type that computes.
  mlir::Value convert(mlir::Value value, mlir::Type elementType);

  const onnx::GraphProto &graph;
  const HandlerTable &handlers;
  mlir::MLIRContext &context;
  mlir::OpBuilder builder;
  TensorBuilder tensors;
  llvm::StringMap<GraphValue> values;
  llvm::StringMap<const onnx::TensorProto *> initializers;
  llvm::StringSet<> varying; ///< values that depend on numbers of the inputs
  std::vector<NodeMacs> counted;
  int64_t nodesInBodies = 0; ///< that were imported
};

/// Imports every node of a prepared graph that does not need the values of one that fails. Returns
/// those that fail.
std::vector<NodeError> importErrors(const onnx::GraphProto &graph, const HandlerTable &handlers,
                                    mlir::MLIRContext &context);

} // namespace millrace::onnx_import
