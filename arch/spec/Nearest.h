// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// "did you mean": the known word nearest to an unknown one.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// Levenshtein distance: the fewest insertions, deletions and replacements of one character.
inline unsigned editDistance(std::string_view a, std::string_view b) {
  std::vector<unsigned> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = unsigned(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    unsigned diagonal = row[0];
    row[0] = unsigned(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const unsigned replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

/// The word with the least edit distance to `word`, the first of equals; empty when there are no
/// words.
inline std::string nearest(std::string_view word, const std::vector<std::string> &words) {
  auto closer = [word](const std::string &a, const std::string &b) {
    return editDistance(word, a) < editDistance(word, b);
  };
  auto found = std::min_element(words.begin(), words.end(), closer);
  return found == words.end() ? std::string() : *found;
}

} // namespace millrace
