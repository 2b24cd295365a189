// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Everything that can be said of an ONNX model before it is compiled, in one go: an import stops at
// the first thing that is wrong.
#pragma once

#include "compiler/Import/Onnx/Import.h"

#include <map>
#include <string>
#include <vector>

namespace millrace {

/// One thing about a model: what it is, where, and the remedy.
struct ModelFinding {
  bool isError = true; ///< else a note: the model can be compiled all the same
  std::string kind;    ///< file, opset, data, operator, attribute, order, type, dimension or node
  std::string node;    ///< the node's name; empty: it is of the whole model, or of a value
  std::string text;    ///< one line
};

struct ModelSummary {
  int64_t opset = 0;
  std::string producer;
  size_t nodes = 0;
  std::map<std::string, size_t> operators; ///< nodes of each
  uint64_t parameters = 0;                 ///< elements of constants
  std::vector<std::string> inputs, outputs; ///< "x: FLOAT [batch, 3, 224, 224]"
};

struct Inspection {
  ModelSummary summary;
  std::vector<ModelFinding> findings;
  bool isComplete = false; ///< every node was imported; else errors stand before that
  bool hasErrors() const;
};

/// Reads a model, from the standard input for "-", and collects what is wrong with it. Nothing is
/// thrown, and nothing but the findings is left.
Inspection inspectOnnx(const std::filesystem::path &path, const ImportOptions &options,
                       mlir::MLIRContext &context);

} // namespace millrace
