// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Words of one line of assembly, with their columns.
#pragma once

#include "arch/spec/Expected.h"

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct Token {
  std::string text;    ///< without quotes, escapes resolved
  unsigned column;     ///< of its first character, from 1
  bool quoted = false; ///< the whole of it stood in quotes
  /// `key=value`, with the column of the value; a quoted token has none.
  std::string key, value;
  unsigned valueColumn = 0;
  bool valueQuoted = false;
};

/// Where a line is wrong.
struct LineError {
  unsigned column;
  std::string message;
};

/// Splits at white space; `;` begins a comment; text in double quotes, also after `=`, is one word
/// with the escapes \" \\ \n \t \xHH.
std::variant<std::vector<Token>, LineError> tokensOf(std::string_view line);

/// In quotes, with escapes.
std::string quoted(std::string_view text);

} // namespace millrace
