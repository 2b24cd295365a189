// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constants that lie in files beside the model.
#pragma once

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <string>
#include <vector>

namespace millrace::onnx_import {

/// Reads the constants of the graph that lie in other files. Returns what is wrong with each of
/// them that cannot be read; its data stay external.
std::vector<std::string> readAllExternal(onnx::ModelProto &model,
                                         const std::filesystem::path &folder);

} // namespace millrace::onnx_import
