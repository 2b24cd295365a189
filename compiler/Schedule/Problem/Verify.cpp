// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether starts are a schedule. Written from docs/spec/schedule-problem.md alone.
#include "compiler/Schedule/Problem/Problem.h"

#include <algorithm>
#include <tuple>

namespace millrace::schedule {
namespace {

/// Somebody has parts [low, high] of a resource in the cycles [first, end) of its time.
struct Use {
  uint32_t step, resource;
  Cycle first, end;
  uint32_t low, high;
  uint32_t bundle; ///< or the span
};

class Verifier {
public:
  Verifier(const ScheduleProblem &problem, const Starts &starts)
      : problem(problem), starts(starts) {}

  Status run() {
    for (auto part :
         {&Verifier::bundles, &Verifier::precedence, &Verifier::holds, &Verifier::spans})
      if (Status s = (this->*part)(); !s)
        return s;
    return Success{};
  }

private:
  const ScheduleProblem &problem;
  const Starts &starts;

  std::string name(uint32_t bundle) const {
    return "bundle " + std::to_string(bundle) + " ('" + problem.bundles[bundle].name + "')";
  }
  Cycle cycle(const Moment &m) const { return starts[m.bundle] + m.at; }

  Status bundles() const {
    if (starts.size() != problem.bundles.size())
      return Error{"the schedule starts " + std::to_string(starts.size()) +
                   " bundles; the problem has " + std::to_string(problem.bundles.size())};
    for (uint32_t b = 0; b < starts.size(); ++b)
      if (starts[b] < 0 || starts[b] > kLatest)
        return Error{name(b) + " starts in cycle " + std::to_string(starts[b]) +
                     "; a step has the cycles 0 to " + std::to_string(kLatest)};
    return Success{};
  }

  Status precedence() const {
    for (const Precedence &p : problem.precedence)
      if (starts[p.after] - starts[p.before] < p.distance)
        return Error{name(p.after) + " starts in cycle " + std::to_string(starts[p.after]) + "; " +
                     std::string(nameOf(p.kind)) + " of " + name(p.before) +
                     ", which starts in cycle " + std::to_string(starts[p.before]) +
                     ", lets it start in cycle " + std::to_string(starts[p.before] + p.distance)};
    return Success{};
  }

  /// The first two that meet, in the order of cycles.
  static std::optional<std::pair<Use, Use>> meeting(std::vector<Use> uses) {
    std::sort(uses.begin(), uses.end(), [](const Use &x, const Use &y) {
      return std::tie(x.step, x.resource, x.first) < std::tie(y.step, y.resource, y.first);
    });
    std::optional<std::pair<Use, Use>> found;
    std::vector<Use> open; // of this resource, not yet over
    for (const Use &use : uses) {
      std::erase_if(open, [&](const Use &o) {
        return o.step != use.step || o.resource != use.resource || o.end <= use.first;
      });
      for (const Use &o : open)
        if (o.low <= use.high && use.low <= o.high &&
            (!found ||
             std::pair(use.step, use.first) < std::pair(found->second.step, found->second.first)))
          found.emplace(o, use);
      open.push_back(use);
    }
    return found;
  }

  /// " both need part 3 of pe0.mem.w.3.banks in cycle 12"
  std::string where(const std::pair<Use, Use> &two) const {
    const Resource &r = problem.resources[two.first.resource];
    const uint32_t part = std::max(two.first.low, two.second.low);
    std::string text = r.name + " (" + std::string(nameOf(r.kind));
    if (std::max(two.first.high, two.second.high) > 0)
      text += " " + std::to_string(part);
    return text + ") in cycle " + std::to_string(two.second.first + part * r.cyclesPerPart) +
           (problem.steps.size() > 1
                ? " of step " + std::to_string(problem.steps[two.first.step].step)
                : "");
  }

  Status holds() const {
    std::vector<Use> uses;
    for (uint32_t b = 0; b < starts.size(); ++b)
      for (const Hold &h : problem.bundles[b].holds)
        for (uint32_t k = 0; k < h.count; ++k) {
          const Cycle first = starts[b] + h.at + Cycle(k) * h.every;
          uses.push_back(
              {problem.bundles[b].step, h.resource, first, first + h.length, h.low, h.high, b});
        }
    if (const auto two = meeting(std::move(uses)))
      return Error{name(two->first.bundle) + " and " + name(two->second.bundle) + " both hold " +
                   where(*two)};
    return Success{};
  }

  /// The bundle whose moment a span's begin or end is; that of the other end where there is none.
  uint32_t bundleOf(uint32_t span, bool end) const {
    const Span &s = problem.spans[span];
    const std::vector<Moment> &moments =
        (end ? s.ends : s.begins).empty() ? (end ? s.begins : s.ends) : (end ? s.ends : s.begins);
    const auto before = [&](const Moment &x, const Moment &y) { return cycle(x) < cycle(y); };
    return (end ? *std::max_element(moments.begin(), moments.end(), before)
                : *std::min_element(moments.begin(), moments.end(), before))
        .bundle;
  }

  Status spans() const {
    std::vector<Use> uses;
    for (uint32_t k = 0; k < problem.spans.size(); ++k) {
      const Span &s = problem.spans[k];
      Cycle first = s.begins.empty() ? -kLatest : INT64_MAX,
            end = s.ends.empty() ? 2 * kLatest : INT64_MIN;
      for (const Moment &m : s.begins)
        first = std::min(first, cycle(m));
      for (const Moment &m : s.ends)
        end = std::max(end, cycle(m));
      uses.push_back({s.step, s.resource, first, end, s.low, s.high, k});
    }
    if (const auto two = meeting(std::move(uses)))
      return Error{"what " + name(bundleOf(two->second.bundle, false)) + " puts there and what " +
                   name(bundleOf(two->first.bundle, true)) + " needs last both live in " +
                   where(*two)};
    return Success{};
  }
};

} // namespace

Status verify(const ScheduleProblem &problem, const Starts &starts) {
  return Verifier(problem, starts).run();
}

} // namespace millrace::schedule
