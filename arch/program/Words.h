// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Takes the words of a line one after another, by place or by key, and keeps the first error.
#pragma once

#include "arch/program/Tokens.h"

#include <cstdint>
#include <optional>
#include <set>
#include <span>

namespace millrace {

/// `3+5`: five things from the third on. Text may also write `3..7`, inclusive.
struct Stretch {
  uint64_t first = 0, count = 0;
};

class Words {
public:
  explicit Words(std::span<const Token> tokens) : tokens(tokens) {}

  bool ok() const { return !wrong; }
  const std::optional<LineError> &error() const { return wrong; }
  void fail(unsigned column, const std::string &message) {
    if (!wrong)
      wrong = LineError{column, message};
  }

  /// The next word that is no `key=value`; an empty one after an error, which names `what` was
  /// wanted.
  const Token &next(const char *what);
  bool hasNext() const;
  /// One of `choices`, by its number.
  unsigned choice(const char *what, std::span<const char *const> choices);

  /// The word of a key, or null. Keys may come in any order, once each.
  const Token *find(const char *key);
  bool has(const char *key) { return find(key) != nullptr; }
  std::string text(const char *key, const std::string &otherwise);
  int64_t number(const char *key, int64_t least, int64_t most);
  int64_t number(const char *key, int64_t least, int64_t most, int64_t otherwise);
  /// Any number of 64 bits without a sign, decimal; `end` is the largest.
  uint64_t unsignedNumber(const char *key, uint64_t otherwise);
  double real(const char *key, double otherwise);
  Stretch stretch(const char *key, Stretch otherwise);
  /// Numbers with commas between them; none if the key is missing.
  std::vector<int64_t> numbers(const char *key, int64_t least, int64_t most);
  int64_t numberIn(const Token &token, unsigned column, const std::string &text, int64_t least,
                   int64_t most);
  static std::optional<Stretch> stretchOf(const std::string &text);

  /// Everything must have been taken; otherwise the error names the keys that were asked for.
  void finish();

private:
  std::span<const Token> tokens;
  std::set<size_t> taken;
  std::vector<const char *> known;
  std::optional<LineError> wrong;
};

} // namespace millrace
