// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A machine file as a flat list of settings: path, words, and where they were written. Knows the
// schema's keys, not what their numbers mean.
#pragma once

#include "arch/spec/Expected.h"
#include "arch/spec/Machine.h"

#include <optional>
#include <string>
#include <vector>

namespace millrace {

struct Setting {
  std::string path;  ///< "memory.slices"
  std::string text;  ///< "44"
  std::string where; ///< "arch/machines/tsp-v1.yaml:12", or "--set memory.slices=44"
  std::string source;
  std::optional<Trust> trust;
  unsigned layer = 0; ///< 0 for the innermost base, one more for each variant, most for --set
};

/// The settings of one file (bases not included), in the order of the file.
struct Settings {
  std::optional<std::string> base; ///< name of the machine it varies
  std::string baseWhere;
  std::vector<Setting> list;
};

/// Reads YAML text. `file` only names places in errors: syntax, unknown keys (with the nearest
/// known one), keys given twice, sections where a value belongs and the other way round.
Expected<Settings> readSettings(const std::string &text, const std::string &file);

/// A key and value given at the command line: "memory.slices=16".
Expected<Setting> readOverride(const std::string &text);

} // namespace millrace
