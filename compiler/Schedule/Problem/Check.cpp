// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What can be said of a problem before a search: whether it is whole, whether it is infeasible at
// sight, and cycles that no starts undercut.
#include "compiler/Schedule/Problem/Problem.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

namespace millrace::schedule {
namespace {

constexpr Cycle kNoWay = INT64_MIN / 4;

std::string nameOf(const ScheduleProblem &problem, uint32_t bundle) {
  return "bundle " + std::to_string(bundle) + " ('" + problem.bundles[bundle].name + "')";
}

std::string bad(const std::string &where, uint64_t value, uint64_t count, const char *what) {
  return where + " names " + what + " " + std::to_string(value) + "; there are " +
         std::to_string(count);
}

/// Everything that is named exists, and no number is so large that sums of it overflow.
std::string wholeness(const ScheduleProblem &p) {
  const auto isLarge = [](Cycle c) { return c > kLatest || c < -kLatest; };
  for (uint32_t b = 0; b < p.bundles.size(); ++b) {
    const Bundle &bundle = p.bundles[b];
    if (bundle.step >= p.steps.size())
      return bad(nameOf(p, b), bundle.step, p.steps.size(), "step");
    if (bundle.start < 0 || bundle.start > kLatest || isLarge(bundle.lastWrite.value_or(0)))
      return nameOf(p, b) + " starts or writes beyond cycle " + std::to_string(kLatest);
    for (const Hold &h : bundle.holds) {
      if (h.resource >= p.resources.size())
        return bad(nameOf(p, b), h.resource, p.resources.size(), "resource");
      if (h.length < 1 || h.count < 1 || h.low > h.high || (h.count > 1) != (h.every != 0) ||
          h.every < 0 || isLarge(h.at) || isLarge(h.length) || isLarge(h.every))
        return nameOf(p, b) + " holds " + p.resources[h.resource].name +
               " for no cycles, or too many";
    }
  }
  for (const Precedence &e : p.precedence) {
    if (std::max(e.before, e.after) >= p.bundles.size())
      return bad("precedence", std::max(e.before, e.after), p.bundles.size(), "bundle");
    if (p.bundles[e.before].step != p.bundles[e.after].step || isLarge(e.distance))
      return "precedence of " + nameOf(p, e.before) + " over " + nameOf(p, e.after) +
             " is of two steps, or too long";
  }
  for (const Span &s : p.spans) {
    if (s.resource >= p.resources.size() || s.step >= p.steps.size() || s.low > s.high ||
        (s.begins.empty() && s.ends.empty()))
      return "a span has no resource, no step, no parts or no end";
    for (const std::vector<Moment> *moments : {&s.begins, &s.ends})
      for (const Moment &m : *moments)
        if (m.bundle >= p.bundles.size() || p.bundles[m.bundle].step != s.step || isLarge(m.at))
          return "a span of " + p.resources[s.resource].name +
                 " ends with a bundle that does not exist, or of another step";
  }
  return {};
}

/// A bundle that holds a part of a resource twice at one time never fits.
std::string conflictWithin(const ScheduleProblem &p, uint32_t b) {
  std::map<uint32_t, std::vector<std::pair<Cycle, const Hold *>>> uses;
  for (const Hold &h : p.bundles[b].holds)
    for (uint32_t k = 0; k < h.count; ++k)
      uses[h.resource].push_back({h.at + Cycle(k) * h.every, &h});
  for (auto &[resource, list] : uses) {
    std::sort(list.begin(), list.end(),
              [](const auto &x, const auto &y) { return x.first < y.first; });
    for (size_t x = 0; x < list.size(); ++x)
      for (size_t y = x + 1;
           y < list.size() && list[y].first < list[x].first + list[x].second->length; ++y)
        if (list[x].second->low <= list[y].second->high &&
            list[y].second->low <= list[x].second->high)
          return nameOf(p, b) + " holds " + p.resources[resource].name + " twice " +
                 std::to_string(list[y].first) + " cycles behind its start";
  }
  return {};
}

/// Longest ways along precedence: to each bundle's start, or from it to the last write slot behind
/// it. Nothing on a circle that grows without end; `circle` is then a bundle of it.
std::optional<std::vector<Cycle>> longestWays(const ScheduleProblem &p, bool toEnd,
                                              uint32_t *circle = nullptr) {
  std::vector<Cycle> way(p.bundles.size(), 0);
  if (toEnd)
    for (uint32_t b = 0; b < way.size(); ++b)
      way[b] = p.bundles[b].lastWrite.value_or(kNoWay);
  std::vector<const Precedence *> edges;
  for (const Precedence &e : p.precedence)
    edges.push_back(&e);
  std::sort(edges.begin(), edges.end(), [&](const Precedence *x, const Precedence *y) {
    return toEnd ? x->after > y->after : x->before < y->before;
  });
  for (size_t round = 0; round <= p.bundles.size(); ++round) {
    bool changed = false;
    for (const Precedence *e : edges) {
      Cycle &to = way[toEnd ? e->before : e->after];
      const Cycle from = way[toEnd ? e->after : e->before];
      if (from == kNoWay || from + e->distance <= to)
        continue;
      to = from + e->distance;
      changed = true;
      if (circle)
        *circle = toEnd ? e->before : e->after;
      if (to > kLatest) // nothing else grows so far
        return std::nullopt;
    }
    if (!changed)
      return way;
  }
  return std::nullopt;
}

/// Two values that live from before the step, or to behind it, in one place.
std::string lastingConflict(const ScheduleProblem &p) {
  for (const bool atEnd : {false, true}) {
    std::vector<const Span *> lasting;
    for (const Span &s : p.spans)
      if ((atEnd ? s.ends : s.begins).empty())
        lasting.push_back(&s);
    const auto place = [](const Span *s) { return std::tuple(s->step, s->resource, s->low); };
    std::sort(lasting.begin(), lasting.end(),
              [&](const Span *x, const Span *y) { return place(x) < place(y); });
    for (size_t k = 1; k < lasting.size(); ++k)
      if (lasting[k]->step == lasting[k - 1]->step &&
          lasting[k]->resource == lasting[k - 1]->resource &&
          lasting[k]->low <= lasting[k - 1]->high)
        return "two values live " + std::string(atEnd ? "to the end" : "from the beginning") +
               " of a step in " + p.resources[lasting[k]->resource].name + " " +
               std::to_string(lasting[k]->low);
  }
  return {};
}

/// Work of a unit: from `release` on, `work` cycles, then `tail` to the last write slot.
struct Job {
  Cycle release, work, tail;
};

/// Most of release, work and tail that a set of jobs adds up to: the length of the schedule in
/// which the job with the longest tail interrupts the others (Jackson).
Cycle boundOf(std::vector<Job> jobs) {
  std::sort(jobs.begin(), jobs.end(),
            [](const Job &x, const Job &y) { return x.release < y.release; });
  std::priority_queue<std::pair<Cycle, Cycle>> open; // tail, work left
  Cycle now = 0, bound = 0;
  const auto workUntil = [&](Cycle end) {
    while (!open.empty() && now < end) {
      auto [tail, left] = open.top();
      open.pop();
      const Cycle done = std::min(left, end - now);
      now += done;
      if (left > done)
        open.push({tail, left - done});
      else
        bound = std::max(bound, now + tail);
    }
    now = std::max(now, end);
  };
  for (const Job &job : jobs) {
    workUntil(job.release);
    open.push({job.tail, job.work});
  }
  Cycle rest = now;
  for (const Job &job : jobs)
    rest += job.work;
  workUntil(rest);
  return bound;
}

} // namespace

Starts startsOf(const ScheduleProblem &problem) {
  Starts starts;
  for (const Bundle &b : problem.bundles)
    starts.push_back(b.start);
  return starts;
}

Cycle cyclesOf(const ScheduleProblem &problem, const Starts &starts) {
  std::vector<Cycle> last(problem.steps.size(), 0); // T14: also when nothing is written
  for (uint32_t b = 0; b < starts.size(); ++b)
    if (const Bundle &bundle = problem.bundles[b]; bundle.lastWrite)
      last[bundle.step] = std::max(last[bundle.step], starts[b] + *bundle.lastWrite);
  Cycle cycles = 0;
  for (size_t s = 0; s < last.size(); ++s)
    cycles += problem.steps[s].fixed + last[s];
  return cycles;
}

Status check(const ScheduleProblem &problem) {
  if (std::string what = wholeness(problem); !what.empty())
    return Error{"the problem is damaged: " + what};
  for (uint32_t b = 0; b < problem.bundles.size(); ++b)
    if (std::string what = conflictWithin(problem, b); !what.empty())
      return Error{"no schedule exists: " + what};
  uint32_t circle = 0;
  if (!longestWays(problem, false, &circle))
    return Error{"no schedule exists: " + nameOf(problem, circle) +
                 " waits for itself, along precedence"};
  if (std::string what = lastingConflict(problem); !what.empty())
    return Error{"no schedule exists: " + what};
  return Success{};
}

Cycle lowerBound(const ScheduleProblem &problem, uint32_t step) {
  const auto heads = longestWays(problem, false), tails = longestWays(problem, true);
  if (!heads || !tails)
    return problem.steps[step].fixed;
  Cycle most = 0;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<Job>> jobs; // by resource and part
  for (uint32_t b = 0; b < problem.bundles.size(); ++b) {
    if (problem.bundles[b].step != step || (*tails)[b] == kNoWay)
      continue;
    most = std::max(most, (*heads)[b] + (*tails)[b]);
    for (const Hold &h : problem.bundles[b].holds)
      if (problem.resources[h.resource].kind != ResourceKind::Stream && h.low == h.high) {
        const Cycle end = h.at + Cycle(h.count - 1) * h.every + h.length;
        jobs[{h.resource, h.low}].push_back(
            {(*heads)[b] + h.at, h.length * Cycle(h.count), (*tails)[b] - end});
      }
  }
  for (auto &[place, list] : jobs)
    most = std::max(most, boundOf(std::move(list)));
  return problem.steps[step].fixed + most;
}

} // namespace millrace::schedule
