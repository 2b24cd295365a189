// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/Notes.h"

namespace millrace::driver {

using nlohmann::json;

std::string jsonText(const json &value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

nlohmann::json jsonNote(const Image &image, const std::string &key) {
  for (const auto &[k, value] : image.notes)
    if (k == key)
      if (json parsed = json::parse(value, nullptr, false); !parsed.is_discarded())
        return parsed;
  return {};
}

} // namespace millrace::driver
