// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moving bundles to where they fit: back from the end, then forward from the beginning.
#include "compiler/Schedule/Problem/Problem.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

namespace millrace::schedule {
namespace {

/// Who has parts of a resource when. Cycles lie in bins, in which a conflict is found by looking at
/// all.
class Board {
public:
  explicit Board(const ScheduleProblem &problem)
      : problem(&problem), bins(problem.resources.size()) {}
  void put(uint32_t bundle, Cycle start) {
    forEachUse(bundle, start, [&](const Hold &h, Cycle first) {
      const Use use{first, first + h.length, h.low, h.high, bundle};
      for (Cycle bin = first >> kBits; bin <= (use.end - 1) >> kBits; ++bin)
        bins[h.resource][bin].push_back(use);
    });
  }
  void take(uint32_t bundle, Cycle start) {
    forEachUse(bundle, start, [&](const Hold &h, Cycle first) {
      for (Cycle bin = first >> kBits; bin <= (first + h.length - 1) >> kBits; ++bin)
        std::erase_if(bins[h.resource][bin], [&](const Use &u) { return u.bundle == bundle; });
    });
  }
  /// The first start from `from` on at which the bundle meets nobody; with `back` the last one up
  /// to there.
  Cycle fit(uint32_t bundle, Cycle from, bool back) const {
    Cycle start = from;
    const std::vector<Hold> &holds = problem->bundles[bundle].holds;
    for (size_t clean = 0, at = 0; clean < holds.size(); at = (at + 1) % holds.size()) {
      const Cycle shift = shiftFor(holds[at], start, back);
      start += back ? -shift : shift;
      clean = shift ? 1 : clean + 1; // shiftFor() leaves this hold free
    }
    return start;
  }

private:
  static constexpr int kBits = 7;
  struct Use {
    Cycle first, end;
    uint32_t low, high, bundle;
  };
  const ScheduleProblem *problem;
  std::vector<std::unordered_map<Cycle, std::vector<Use>>> bins; ///< [resource][cycle >> kBits]

  template <class F> void forEachUse(uint32_t bundle, Cycle start, F f) const {
    for (const Hold &h : problem->bundles[bundle].holds)
      for (uint32_t k = 0; k < h.count; ++k)
        f(h, start + h.at + Cycle(k) * h.every);
  }
  /// How far this hold moves until all of it is free.
  Cycle shiftFor(const Hold &h, Cycle start, bool back) const {
    Cycle shift = 0;
    for (uint32_t k = 0, clean = 0; clean < h.count; k = (k + 1) % h.count) {
      const Cycle first = start + h.at + Cycle(k) * h.every + (back ? -shift : shift);
      const Cycle more = shiftAt(h, first, back);
      shift += more;
      clean = more ? 0 : clean + 1;
    }
    return shift;
  }
  Cycle shiftAt(const Hold &h, Cycle first, bool back) const {
    const auto &of = bins[h.resource];
    const Cycle end = first + h.length;
    Cycle shift = 0;
    for (Cycle bin = first >> kBits; bin <= (end - 1) >> kBits; ++bin) {
      const auto found = of.find(bin);
      if (found == of.end())
        continue;
      for (const Use &u : found->second)
        if (u.first < end && first < u.end && u.low <= h.high && h.low <= u.high)
          shift = std::max(shift, back ? end - u.first : u.end - first);
    }
    return shift;
  }
};

struct Edge {
  uint32_t to = 0;
  Cycle distance = 0;
};

/// One step: its bundles, and behind them its spans, as nodes of a graph whose edges are distances.
/// A span's node is the cycle in which the last value that needs it is done.
class StepSolver {
public:
  StepSolver(const ScheduleProblem &problem, Starts &starts, uint32_t step)
      : problem(problem), step(step), starts(starts), board(problem),
        out(problem.bundles.size() + problem.spans.size()), in(out.size()) {
    for (uint32_t b = 0; b < problem.bundles.size(); ++b)
      if (problem.bundles[b].step == step)
        bundles.push_back(b);
    addEdges();
  }

  void run(unsigned rounds) {
    Cycle best = length(starts);
    Starts bestStarts = starts;
    for (unsigned round = 0; round < rounds; ++round) {
      pushBack();
      listSchedule();
      pullForward();
      const Cycle now = length(starts);
      if (now >= best)
        break;
      best = now;
      bestStarts = starts;
    }
    starts = bestStarts;
  }

private:
  const ScheduleProblem &problem;
  const uint32_t step;
  Starts &starts;
  Board board;
  std::vector<uint32_t> bundles;
  std::vector<std::vector<Edge>> out, in;

  Cycle length(const Starts &of) const {
    Cycle last = 0;
    for (const uint32_t b : bundles)
      last = std::max(last, of[b] + problem.bundles[b].lastWrite.value_or(0));
    return last;
  }
  void connect(uint32_t from, uint32_t to, Cycle distance) {
    out[from].push_back({to, distance});
    in[to].push_back({from, distance});
  }
  Cycle beginOf(const Span &s) const {
    Cycle first = s.begins.empty() ? -kLatest : INT64_MAX;
    for (const Moment &m : s.begins)
      first = std::min(first, starts[m.bundle] + m.at);
    return first;
  }

  /// Precedence, and who follows whom on the parts of spans, as it is now.
  void addEdges() {
    for (const Precedence &p : problem.precedence)
      if (problem.bundles[p.before].step == step)
        connect(p.before, p.after, p.distance);
    std::map<uint32_t, std::vector<uint32_t>> byResource;
    for (uint32_t k = 0; k < problem.spans.size(); ++k)
      if (problem.spans[k].step == step)
        byResource[problem.spans[k].resource].push_back(k);
    const auto base = uint32_t(problem.bundles.size());
    for (auto &[resource, list] : byResource) {
      std::stable_sort(list.begin(), list.end(), [&](uint32_t x, uint32_t y) {
        return beginOf(problem.spans[x]) < beginOf(problem.spans[y]);
      });
      std::map<uint32_t, std::pair<uint32_t, uint32_t>> last; // low: high, the span there
      for (const uint32_t k : list) {
        const Span &s = problem.spans[k];
        for (const Moment &m : s.ends)
          connect(m.bundle, base + k, m.at);
        for (const uint32_t before : replace(last, s.low, s.high, k))
          for (const Moment &m : s.begins)
            connect(base + before, m.bundle, -m.at);
      }
    }
  }
  /// Puts `span` on parts [low, high]; returns those that were there.
  static std::vector<uint32_t> replace(std::map<uint32_t, std::pair<uint32_t, uint32_t>> &last,
                                       uint32_t low, uint32_t high, uint32_t span) {
    std::vector<uint32_t> before;
    auto at = last.upper_bound(low);
    if (at != last.begin())
      --at;
    while (at != last.end() && at->first <= high) {
      const auto [from, what] = *at;
      if (what.first < low) {
        ++at;
        continue;
      }
      before.push_back(what.second);
      at = last.erase(at);
      if (from < low)
        last[from] = {low - 1, what.second};
      if (what.first > high)
        at = last.emplace(high + 1, what).first;
    }
    last[low] = {high, span};
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    return before;
  }

  /// The earliest start that those before the bundle leave, or the latest that those behind it do.
  Cycle earliest(uint32_t node) const {
    Cycle bound = node < problem.bundles.size() ? 0 : -kLatest;
    for (const Edge &e : in[node])
      bound = std::max(bound, (e.to < problem.bundles.size() ? starts[e.to] : earliest(e.to)) +
                                  e.distance);
    return bound;
  }
  Cycle latest(uint32_t node, Cycle end) const {
    Cycle bound = kLatest;
    if (node < problem.bundles.size())
      bound = end - problem.bundles[node].lastWrite.value_or(0);
    for (const Edge &e : out[node])
      bound = std::min(bound, (e.to < problem.bundles.size() ? starts[e.to] : latest(e.to, end)) -
                                  e.distance);
    return bound;
  }

  std::vector<uint32_t> byStart() const {
    std::vector<uint32_t> order = bundles;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t x, uint32_t y) { return starts[x] < starts[y]; });
    return order;
  }

  /// Each to the latest cycle at which it fits, the last first.
  void pushBack() {
    const Cycle end = length(starts);
    board = Board(problem);
    for (const uint32_t b : bundles)
      board.put(b, starts[b]);
    std::vector<uint32_t> order = byStart();
    std::reverse(order.begin(), order.end());
    for (const uint32_t b : order) {
      board.take(b, starts[b]);
      starts[b] = std::max(starts[b], board.fit(b, latest(b, end), true));
      board.put(b, starts[b]);
    }
  }
  /// Each to the earliest cycle at which it fits, the first first.
  void pullForward() {
    board = Board(problem);
    for (const uint32_t b : bundles)
      board.put(b, starts[b]);
    for (const uint32_t b : byStart()) {
      board.take(b, starts[b]);
      starts[b] = std::min(starts[b], board.fit(b, earliest(b), false));
      board.put(b, starts[b]);
    }
  }
  /// Each where it fits first beside those placed before it; of those whose predecessors are
  /// placed, the one that could wait least goes first. Taken if that is shorter.
  void listSchedule() {
    const Starts before = starts;
    std::vector<uint32_t> waits(out.size());
    for (const std::vector<Edge> &edges : out)
      for (const Edge &e : edges)
        ++waits[e.to];
    std::vector<std::pair<Cycle, uint32_t>> ready;
    const auto isLater = std::greater<>();
    const auto push = [&](uint32_t b) {
      ready.push_back({before[b], b});
      std::push_heap(ready.begin(), ready.end(), isLater);
    };
    for (const uint32_t b : bundles)
      if (!waits[b])
        push(b);
    board = Board(problem);
    size_t placed = 0;
    while (!ready.empty()) {
      std::pop_heap(ready.begin(), ready.end(), isLater);
      const uint32_t b = ready.back().second;
      ready.pop_back();
      starts[b] = board.fit(b, earliest(b), false);
      board.put(b, starts[b]);
      ++placed;
      for (std::vector<uint32_t> done{b}; !done.empty();) {
        const uint32_t node = done.back();
        done.pop_back();
        for (const Edge &e : out[node])
          if (!--waits[e.to]) {
            if (e.to < problem.bundles.size())
              push(e.to);
            else
              done.push_back(e.to);
          }
      }
    }
    if (placed < bundles.size() || length(starts) > length(before)) // a circle of distances below 0
      starts = before;
  }
};

} // namespace

Starts improve(const ScheduleProblem &problem, const Starts &starts, const SolveOptions &options) {
  Starts result = starts;
  for (uint32_t step = 0; step < problem.steps.size(); ++step)
    StepSolver(problem, result, step).run(options.rounds);
  return result;
}

} // namespace millrace::schedule
