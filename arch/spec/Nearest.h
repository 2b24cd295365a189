// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// "did you mean": the known word nearest to an unknown one.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

/// The fewest insertions, deletions and replacements of one character, and exchanges of two adjacent
/// ones, that make one word of the other.
inline unsigned editDistance(std::string_view a, std::string_view b) {
  std::vector<unsigned> before, last, row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = unsigned(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = unsigned(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j - 1] + (a[i - 1] != b[j - 1]), last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
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

/// Whether somebody who wrote `word` may have meant `known`: at most one error in three characters.
inline bool isNear(std::string_view word, std::string_view known) {
  return 3 * editDistance(word, known) <= std::max(word.size(), known.size());
}

/// "; did you mean 'known'?" if one of the words is near, else "; " and `otherwise`, which says where
/// to look.
inline std::string didYouMean(std::string_view word, const std::vector<std::string> &words,
                              const std::string &otherwise) {
  const std::string known = nearest(word, words);
  return isNear(word, known) ? "; did you mean '" + known + "'?" : "; " + otherwise;
}

/// "a, b and c".
inline std::string listOf(const std::vector<std::string> &words) {
  std::string list;
  for (size_t k = 0; k < words.size(); ++k)
    list += (k == 0 ? "" : k + 1 == words.size() ? " and " : ", ") + words[k];
  return list;
}

} // namespace millrace
