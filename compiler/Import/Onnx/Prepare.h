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

/// "" for both spellings of the standard domain.
std::string_view normalDomain(const onnx::NodeProto &node);

} // namespace millrace::onnx_import
