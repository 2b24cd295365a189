// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/fuzz/TextMutator.h"

#include <algorithm>
#include <cctype>
#include <random>
#include <string>
#include <vector>

// libFuzzer's; a replay has no mutations and never calls it.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

namespace millrace::fuzz {
namespace {

bool isWordPart(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '%' || c == '@' ||
         c == '!' || c == '.';
}

/// Words, numbers and single marks, and what is between them, in order.
std::vector<std::string> wordsOf(const std::string &text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    // "4x100xf32" is four words.
    const bool isNumber = std::isdigit(static_cast<unsigned char>(text[at]));
    if (isWordPart(text[at]))
      while (end < text.size() && isWordPart(text[end]) &&
             (!isNumber || std::isdigit(static_cast<unsigned char>(text[end]))))
        ++end;
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::vector<std::string> linesOf(const std::string &text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  return lines;
}

/// Sizes at which something in the verifiers or lowerings begins or ends.
const char *const kNumbers[] = {"0",   "1",   "2",    "3",    "7",     "8",          "16",
                                "17",  "31",  "32",   "33",   "64",    "128",        "255",
                                "256", "512", "1024", "4096", "65536", "2147483647", "4294967296"};

class TextMutator {
public:
  explicit TextMutator(unsigned seed) : random(seed) {}

  std::string change(const std::string &text) {
    std::vector<std::string> words = wordsOf(text), lines = linesOf(text);
    switch (below(6)) {
    case 0:
      lines.erase(lines.begin() + long(below(lines.size())));
      return join(lines);
    case 1:
      lines.insert(lines.begin() + long(below(lines.size())), lines[below(lines.size())]);
      return join(lines);
    case 2:
      std::swap(lines[below(lines.size())], lines[below(lines.size())]);
      return join(lines);
    case 3:
      changeNumber(words);
      return join(words);
    default: { // a word becomes another of the text of the same kind
      std::string &word = words[below(words.size())];
      for (unsigned tries = 0; tries < 16; ++tries)
        if (const std::string &other = words[below(words.size())];
            other != word && isWordPart(other[0]) == isWordPart(word[0])) {
          word = std::string(other);
          break;
        }
      return join(words);
    }
    }
  }
  size_t below(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random); }

private:
  void changeNumber(std::vector<std::string> &words) {
    std::vector<std::string *> numbers;
    for (std::string &word : words)
      if (std::isdigit(static_cast<unsigned char>(word[0])))
        numbers.push_back(&word);
    if (!numbers.empty())
      *numbers[below(numbers.size())] = kNumbers[below(std::size(kNumbers))];
  }
  static std::string join(const std::vector<std::string> &parts) {
    std::string text;
    for (const std::string &part : parts)
      text += part;
    return text;
  }

  std::minstd_rand random;
};

} // namespace

size_t mutateText(uint8_t *data, size_t size, size_t most, unsigned seed) {
  TextMutator mutator(seed);
  if (size < 2 || mutator.below(4) == 0)
    return LLVMFuzzerMutate ? LLVMFuzzerMutate(data, size, most) : size;
  std::string text(reinterpret_cast<const char *>(data), size);
  const size_t changes = 1 + mutator.below(3);
  for (size_t i = 0; i < changes && !text.empty(); ++i)
    text = mutator.change(text);
  if (text.empty() || text.size() > most)
    return size;
  std::copy(text.begin(), text.end(), data);
  return text.size();
}

} // namespace millrace::fuzz
