// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NumPy's .npy files (format 1.0 and 2.0,
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
#pragma once

#include "arch/spec/Expected.h"
#include "compiler/Support/HostTensor.h"

#include <filesystem>

namespace millrace {

/// Reads a little-endian array in C order. bfloat16, which NumPy lacks, is read from two-byte void
/// ('|V2').
Expected<HostTensor> readNpy(const std::filesystem::path &path);

/// Writes `path` in one step (a temporary file beside it, then a rename), so that nothing half
/// written stays behind.
Status writeNpy(const std::filesystem::path &path, const HostTensor &tensor);

} // namespace millrace
