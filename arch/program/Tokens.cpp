// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/Tokens.h"

#include <charconv>
#include <optional>

namespace millrace {
namespace {

bool isSpace(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/// Reads one word from `at` on; leaves `at` behind it.
class WordReader {
public:
  WordReader(std::string_view line, size_t at) : line(line), at(at) {}

  std::optional<LineError> read(Token &token) {
    token.column = column();
    token.quoted = line[at] == '"';
    while (at < line.size() && !isSpace(line[at]) && line[at] != ';') {
      if (line[at] == '"') {
        token.valueQuoted |= column() == token.valueColumn;
        if (auto wrong = quotedPart(token.text))
          return wrong;
        continue;
      }
      if (line[at] == '=' && !token.valueColumn && !token.quoted) {
        token.key = token.text;
        token.valueColumn = column() + 1;
      }
      token.text += line[at++];
    }
    if (token.valueColumn)
      token.value = token.text.substr(token.key.size() + 1);
    return std::nullopt;
  }
  size_t position() const { return at; }

private:
  unsigned column() const { return unsigned(at) + 1; }

  std::optional<LineError> quotedPart(std::string &text) {
    const unsigned start = column();
    for (++at; at < line.size() && line[at] != '"'; ++at) {
      if (line[at] != '\\') {
        text += line[at];
        continue;
      }
      if (++at >= line.size())
        break;
      if (auto wrong = escape(text))
        return wrong;
    }
    if (at >= line.size())
      return LineError{start, "this text does not end: a '\"' is missing"};
    ++at;
    return std::nullopt;
  }
  std::optional<LineError> escape(std::string &text) {
    switch (line[at]) {
    case 'n':
      text += '\n';
      return std::nullopt;
    case 't':
      text += '\t';
      return std::nullopt;
    case '"':
    case '\\':
      text += line[at];
      return std::nullopt;
    case 'x': {
      unsigned value = 0;
      const std::string_view digits = line.substr(at + 1, 2);
      const auto [end, wrong] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
      if (digits.size() == 2 && end == digits.data() + 2 && wrong == std::errc()) {
        text += char(value);
        at += 2;
        return std::nullopt;
      }
      break;
    }
    default:
      break;
    }
    return LineError{column(), "unknown escape; there are \\\" \\\\ \\n \\t \\xHH"};
  }

  std::string_view line;
  size_t at;
};

} // namespace

std::variant<std::vector<Token>, LineError> tokensOf(std::string_view line) {
  std::vector<Token> tokens;
  size_t at = 0;
  while (at < line.size() && line[at] != ';') {
    if (isSpace(line[at])) {
      ++at;
      continue;
    }
    WordReader reader(line, at);
    if (auto wrong = reader.read(tokens.emplace_back()))
      return *wrong;
    at = reader.position();
  }
  return tokens;
}

std::string quoted(std::string_view text) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      (result += '\\') += c;
    else if (c == '\n')
      result += "\\n";
    else if (c == '\t')
      result += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      ((result += "\\x") += digits[uint8_t(c) >> 4]) += digits[uint8_t(c) & 15];
    else
      result += c;
  }
  return result + '"';
}

} // namespace millrace
