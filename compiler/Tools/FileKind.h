// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a file is by how it begins, to say what to call instead.
#pragma once

#include "arch/spec/Expected.h"

#include <cstdint>
#include <optional>
#include <string>

namespace millrace::driver {

enum class FileKind : uint8_t {
  Onnx,
  Tensor,   ///< text of the tensor level
  Spatial,  ///< text of the spatial level
  Assembly, ///< text of the sched level
  Image,
};

/// Looks at the beginning of the file; empty if it says nothing, or if there is no such file.
std::optional<FileKind> kindOfFile(const std::string &path);

/// An error if the file is plainly of another kind than an image.
Status expectImage(const std::string &path);

} // namespace millrace::driver
