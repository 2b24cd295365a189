// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constants of 2 and 4 bits.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

namespace millrace::onnx_import {

/// Constants of the graph whose elements have 2 or 4 bits become bytes of the same numbers. Returns
/// what is wrong: data that do not fit their shape, and operations that would quantise to so few
/// bits.
std::vector<std::string> widenConstants(onnx::GraphProto &graph);

/// Numbers of `bits` bits, 8 / bits to a byte, the lowest first.
std::string unpackBits(const std::string &packed, unsigned bits, bool isSigned, size_t count);

} // namespace millrace::onnx_import
