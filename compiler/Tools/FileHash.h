// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a file holds, in a number that no other file has.
#pragma once

#include <string>

namespace millrace::driver {

/// SHA-256 of the file's bytes as 64 hexadecimal digits, as `sha256sum` prints it; empty if it
/// cannot be read.
std::string sha256Of(const std::string &path);

} // namespace millrace::driver
