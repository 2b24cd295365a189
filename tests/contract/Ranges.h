// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What random machines and random graphs are drawn from: tables that say it before a campaign, and
// from whose text the values are drawn.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::test {

/// Numbers of a seed, the same on every computer and build.
class Draw {
public:
  explicit Draw(unsigned seed) : random(seed) {}
  int64_t below(int64_t n) { return int64_t(random() % uint64_t(n)); }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  bool oneIn(int64_t n) { return below(n) == 0; }
  bool coin() { return oneIn(2); }
  template <class List> auto of(const List &list) {
    return list[size_t(below(int64_t(list.size())))];
  }
  /// A value of a range: one of "2 4 6" (words may repeat), or a number of "1..5".
  std::string from(std::string_view range);
  int64_t number(std::string_view range) { return std::stoll(from(range)); }

private:
  std::mt19937 random;
};

enum class How : uint8_t {
  Drawn,   ///< from `range` alone
  Bounded, ///< from `range` too, within what `text` says
  Fixed,   ///< never set, because of `text`
};

/// One key of the machine schema, or one dimension of graphs.
struct Range {
  std::string_view name;
  How how;
  std::string_view range; ///< "2 4 6" or "1..5"; empty if fixed
  std::string_view text;
};

/// Every key of the schema, in its order.
std::span<const Range> machineRanges();
/// Every number that the generator of graphs draws.
std::span<const Range> graphRanges();

/// The range of that name.
std::string_view rangeOf(std::span<const Range> table, std::string_view name);

/// Both tables, as Markdown.
std::string rangesText();

} // namespace millrace::test
