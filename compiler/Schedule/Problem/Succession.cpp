// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Problem/Succession.h"

#include <algorithm>
#include <map>

namespace millrace::schedule {
namespace {

/// Parts of one resource, and the last span on each: those of a range share it.
class LastOn {
public:
  /// Puts `span` on parts [low, high]; returns those that were there.
  std::vector<uint32_t> replace(uint32_t low, uint32_t high, uint32_t span) {
    std::vector<uint32_t> before;
    auto at = ranges.upper_bound(low);
    if (at != ranges.begin())
      --at;
    while (at != ranges.end() && at->first <= high) {
      const uint32_t from = at->first;
      const Range range = at->second;
      if (range.high < low) {
        ++at;
        continue;
      }
      before.push_back(range.span);
      at = ranges.erase(at);
      if (from < low)
        ranges[from] = {low - 1, range.span};
      if (range.high > high)
        at = ranges.emplace(high + 1, range).first;
    }
    ranges[low] = {high, span};
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    return before;
  }

private:
  struct Range {
    uint32_t high = 0, span = 0;
  };
  std::map<uint32_t, Range> ranges; ///< by their first part
};

} // namespace

std::vector<std::pair<uint32_t, uint32_t>> successionsOf(const ScheduleProblem &problem,
                                                         const Starts &starts) {
  struct Begin {
    uint32_t step, resource;
    Cycle cycle;
    uint32_t span;
    auto operator<=>(const Begin &) const = default;
  };
  std::vector<Begin> begins;
  for (uint32_t k = 0; k < problem.spans.size(); ++k) {
    const Span &s = problem.spans[k];
    Cycle first = s.begins.empty() ? INT64_MIN : INT64_MAX;
    for (const Moment &m : s.begins)
      first = std::min(first, starts[m.bundle] + m.at);
    begins.push_back({s.step, s.resource, first, k});
  }
  std::sort(begins.begin(), begins.end());
  std::vector<std::pair<uint32_t, uint32_t>> result;
  LastOn last;
  for (size_t k = 0; k < begins.size(); ++k) {
    const Begin &b = begins[k];
    if (k && (b.step != begins[k - 1].step || b.resource != begins[k - 1].resource))
      last = {};
    for (const uint32_t before :
         last.replace(problem.spans[b.span].low, problem.spans[b.span].high, b.span))
      result.push_back({before, b.span});
  }
  return result;
}

} // namespace millrace::schedule
