// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/Words.h"

#include "arch/isa/Print.h"

#include <charconv>

namespace millrace {

static const Token kNoToken{};

bool Words::hasNext() const {
  for (size_t k = 0; k < tokens.size(); ++k)
    if (!taken.contains(k) && tokens[k].key.empty())
      return true;
  return false;
}

const Token &Words::next(const char *what) {
  for (size_t k = 0; k < tokens.size(); ++k)
    if (!taken.contains(k) && tokens[k].key.empty()) {
      taken.insert(k);
      return tokens[k];
    }
  fail(tokens.empty() ? 1 : tokens.back().column + unsigned(tokens.back().text.size()),
       std::string(what) + " is missing here");
  return kNoToken;
}

unsigned Words::choice(const char *what, std::span<const char *const> choices) {
  const Token &token = next(what);
  std::string all;
  for (unsigned k = 0; k < choices.size(); ++k) {
    if (token.text == choices[k])
      return k;
    all += (k ? ", " : "") + std::string(choices[k]);
  }
  fail(token.column, "'" + token.text + "' is no " + what + "; write one of " + all);
  return 0;
}

const Token *Words::find(const char *key) {
  known.push_back(key);
  const Token *found = nullptr;
  for (size_t k = 0; k < tokens.size(); ++k) {
    if (tokens[k].key != key)
      continue;
    if (found)
      fail(tokens[k].column, std::string(key) + " is given twice");
    found = &tokens[k];
    taken.insert(k);
  }
  return found;
}

std::string Words::text(const char *key, const std::string &otherwise) {
  const Token *token = find(key);
  return token ? token->value : otherwise;
}

int64_t Words::numberIn(const Token &token, unsigned column, const std::string &text, int64_t least,
                        int64_t most) {
  Expected<int64_t> value = parseInteger(text);
  if (!value)
    fail(column, value.error());
  else if (*value < least || *value > most)
    fail(column, token.text + ": " + text + " is outside [" + std::to_string(least) + ", " +
                     std::to_string(most) + "]");
  return value ? *value : 0;
}

int64_t Words::number(const char *key, int64_t least, int64_t most) {
  const Token *token = find(key);
  if (!token) {
    fail(tokens.empty() ? 1 : tokens[0].column, std::string(key) + "= is missing");
    return least;
  }
  return numberIn(*token, token->valueColumn, token->value, least, most);
}

int64_t Words::number(const char *key, int64_t least, int64_t most, int64_t otherwise) {
  const Token *token = find(key);
  return token ? numberIn(*token, token->valueColumn, token->value, least, most) : otherwise;
}

uint64_t Words::unsignedNumber(const char *key, uint64_t otherwise) {
  const Token *token = find(key);
  if (!token)
    return otherwise;
  if (token->value == "end")
    return UINT64_MAX;
  uint64_t value = 0;
  const char *end = token->value.data() + token->value.size();
  const auto [stop, error] = std::from_chars(token->value.data(), end, value);
  if (stop != end || error != std::errc())
    fail(token->valueColumn, "'" + token->value + "' is not a whole number");
  return value;
}

double Words::real(const char *key, double otherwise) {
  const Token *token = find(key);
  if (!token)
    return otherwise;
  double value = otherwise;
  const char *end = token->value.data() + token->value.size();
  const auto [stop, error] = std::from_chars(token->value.data(), end, value);
  if (stop != end || error != std::errc())
    fail(token->valueColumn, "'" + token->value + "' is not a number");
  return value;
}

std::optional<Stretch> Words::stretchOf(const std::string &text) {
  const size_t plus = text.find('+'), dots = text.find("..");
  const size_t at = std::min(plus, dots);
  if (at == text.npos)
    return std::nullopt;
  Expected<int64_t> first = parseInteger(text.substr(0, at)),
                    second = parseInteger(text.substr(at + (plus < dots ? 1 : 2)));
  if (!first || !second || *first < 0 || *second < 0)
    return std::nullopt;
  if (plus < dots)
    return Stretch{uint64_t(*first), uint64_t(*second)};
  if (*second < *first)
    return std::nullopt;
  return Stretch{uint64_t(*first), uint64_t(*second - *first) + 1};
}

Stretch Words::stretch(const char *key, Stretch otherwise) {
  const Token *token = find(key);
  if (!token)
    return otherwise;
  std::optional<Stretch> value = stretchOf(token->value);
  if (!value)
    fail(token->valueColumn, "'" + token->value + "' is no range; write 3..7 or 3+5");
  return value.value_or(otherwise);
}

std::vector<int64_t> Words::numbers(const char *key, int64_t least, int64_t most) {
  std::vector<int64_t> values;
  const Token *token = find(key);
  if (!token || token->value.empty())
    return values;
  for (size_t from = 0; from <= token->value.size();) {
    const size_t comma = std::min(token->value.find(',', from), token->value.size());
    values.push_back(numberIn(*token, token->valueColumn + unsigned(from),
                              token->value.substr(from, comma - from), least, most));
    from = comma + 1;
  }
  return values;
}

void Words::finish() {
  for (size_t k = 0; k < tokens.size(); ++k) {
    if (taken.contains(k))
      continue;
    std::string keys;
    for (const char *key : known)
      keys += (keys.empty() ? "" : " ") + std::string(key) + "=";
    fail(tokens[k].column, "'" + tokens[k].text + "' is not expected here" +
                               (keys.empty() ? "" : "; what may stand here: " + keys));
  }
}

} // namespace millrace
