// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The equation of an Einsum, and the extents that its letters stand for.
#pragma once

#include "compiler/Import/Onnx/NodeImporter.h"

#include <map>
#include <string>
#include <vector>

namespace millrace::onnx_import {

/// An equation such as "bij,bjk->bik"; the result's letters first, then those that are summed. The
/// dimensions of an ellipsis have digits for letters, the last one 0.
struct Equation {
  std::vector<std::string> terms;
  std::string result, letters;
  std::map<char, int64_t> extents; ///< per letter
};

/// Errors name a term that does not fit its input, or letters that stand for two extents. An extent
/// of 1 is repeated along the other.
Expected<Equation> readEquation(const NodeImporter &node);

} // namespace millrace::onnx_import
