// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one table of what a machine file may say. Parser, printer, error texts and
// docs/spec/machine-keys.md derive from it.
#pragma once

#include "arch/spec/Machine.h"

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace {

/// One key of a machine file.
struct Key {
  /// Path of the number in the file. A `*` stands for any member of a family: a format, an
  /// operation, a link's index.
  std::string_view path;
  std::string_view unit; ///< base unit (Quantity.h); "text" for words
  double least, most;    ///< inclusive range in the base unit
  bool required;         ///< must be given by the file or one of its bases
  std::string_view doc;  ///< one line

  /// The member of the machine, created if the family did not have it yet; null when `name` (what
  /// the `*` stands for) can be no member.
  template <class T> using Member = T *(*)(Machine &, const std::string &name);
  std::variant<Member<unsigned>, Member<double>, Member<std::string>> member;
};

/// Every key, in the order of documentation and printing.
std::span<const Key> machineKeys();

/// The key that `path` is an instance of, and what its `*` stands for (empty without one).
struct KeyMatch {
  const Key *key = nullptr;
  std::string name;
};
KeyMatch findKey(std::string_view path);

/// Whether `path` is a section: a proper prefix of some key.
bool isSection(std::string_view path);

/// Paths that `key` has in this machine: itself, or one per member of its family.
std::vector<std::string> pathsOf(const Key &key, const Machine &machine);

/// What to add to the refusal of an unknown path: "; did you mean 'known.path'?" if one is near,
/// else "; " and where the keys are listed.
std::string suggestKey(std::string_view path);

/// Text of docs/spec/machine-keys.md.
std::string machineKeysMarkdown();

/// published quoted public derived inferred
const char *nameOf(Trust trust);
constexpr unsigned kTrusts = 5;

} // namespace millrace
