// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the compiler notes in an image, as JSON.
#pragma once

#include "arch/program/Image.h"

#include <nlohmann/json.hpp>

#include <string>

namespace millrace::driver {

/// JSON as text, indented by so many blanks (-1: in one line). Names of tensors and nodes may hold
/// bytes that are no UTF-8; they become U+FFFD.
std::string jsonText(const nlohmann::json &value, int indent = -1);

/// A note of the image; null if there is none, or none that is JSON.
nlohmann::json jsonNote(const Image &image, const std::string &key);

} // namespace millrace::driver
