// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a file to a checked ONNX model in one form: newest opset, static shapes, no functions that a
// handler could not import.
#pragma once

#include "compiler/Import/Onnx/Import.h"

#include <onnx/onnx_pb.h>

#include <functional>
#include <string_view>

namespace millrace::onnx_import {

/// Says whether a handler imports this operation (domain "" is ai.onnx); others are replaced by
/// their ONNX function body where they have one.
using IsSupported = std::function<bool(std::string_view domain, std::string_view type)>;

/// Loads, checks, binds symbolic dimensions, inlines functions, converts to the newest opset,
/// infers shapes.
Expected<onnx::ModelProto> prepareModel(const std::filesystem::path &path,
                                        const ImportOptions &options,
                                        const IsSupported &isSupported);

/// "" for both spellings of the standard domain, and for operations adopted into it.
std::string_view normalDomain(const onnx::NodeProto &node);

// Its steps, for whoever wants to know of every finding. Those that return nothing throw what the
// ONNX library throws.

/// The message of the file, or of the standard input for "-", constants in other files not yet read.
Expected<onnx::ModelProto> readModel(const std::filesystem::path &path);

/// The version of the standard operations; 0 if the model states none.
int64_t opsetOf(const onnx::ModelProto &model);
Status checkOpset(const onnx::ModelProto &model);

/// An operation that neither ONNX, nor the model's own functions, nor a handler know.
struct UnknownOperation {
  std::string type, node;
};
std::vector<UnknownOperation> unknownOperations(const onnx::ModelProto &model,
                                                const IsSupported &isSupported);

/// Operations of the standard domain that a handler imports although ONNX does not know them in this
/// opset go to a domain that the checker passes over. Throws, as the checker does, where one has too
/// few inputs or too many.
void adoptNewer(onnx::ModelProto &model, const IsSupported &isSupported);

void checkModel(onnx::ModelProto &model);

/// A dimension of an input that has a name, nothing or -1 for a number.
struct SymbolicDim {
  std::string name; ///< for --dim, beside "input.axis", which it is where it has none
  std::string input;
  int axis;
};
std::vector<SymbolicDim> symbolicDims(const onnx::GraphProto &graph);
Status bindDims(onnx::GraphProto &graph, const std::map<std::string, int64_t> &dims);
Status checkAllExtents(const onnx::GraphProto &graph);

/// Inlines functions, converts to the newest opset, infers shapes.
void rewrite(onnx::ModelProto &model, const IsSupported &isSupported);

/// The ONNX library's words in one line.
std::string oneLine(const std::string &text);

} // namespace millrace::onnx_import
