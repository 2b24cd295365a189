// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moving bundles to where they fit: back from the end, then forward from the beginning.
#include "compiler/Schedule/Problem/Board.h"
#include "compiler/Schedule/Problem/Succession.h"

#include <algorithm>
#include <numeric>

namespace millrace::schedule {
namespace {

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

  /// Until nothing is gained twice: what moves without a gain may make room for the next round.
  void run(unsigned rounds) {
    Starts best = starts;
    for (unsigned round = 0, idle = 0; round < rounds && idle < 2; ++round) {
      pushBack();
      moveToBegin();
      listSchedule();
      pullForward();
      ++idle;
      if (length(starts) >= length(best))
        continue;
      best = starts;
      idle = 0;
    }
    starts = best;
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
  /// Precedence, and who follows whom on the parts of spans, as it is now.
  void addEdges() {
    for (const Precedence &p : problem.precedence)
      if (problem.bundles[p.before].step == step)
        connect(p.before, p.after, p.distance);
    const auto base = uint32_t(problem.bundles.size());
    for (uint32_t k = 0; k < problem.spans.size(); ++k)
      if (problem.spans[k].step == step)
        for (const Moment &m : problem.spans[k].ends)
          connect(m.bundle, base + k, m.at);
    for (const auto &[before, after] : successionsOf(problem, starts))
      if (problem.spans[after].step == step)
        for (const Moment &m : problem.spans[after].begins)
          follow(before, m);
  }
  /// A bundle begins a value behind those of a span. One that both ends and begins does not wait
  /// for itself.
  void follow(uint32_t before, const Moment &begin) {
    const std::vector<Moment> &ends = problem.spans[before].ends;
    const bool isIn = std::any_of(ends.begin(), ends.end(),
                                  [&](const Moment &m) { return m.bundle == begin.bundle; });
    if (!isIn)
      return connect(uint32_t(problem.bundles.size()) + before, begin.bundle, -begin.at);
    for (const Moment &m : ends)
      if (m.bundle != begin.bundle)
        connect(m.bundle, begin.bundle, m.at - begin.at);
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
  /// All as they are, from cycle 0 on.
  void moveToBegin() {
    Cycle first = kLatest;
    for (const uint32_t b : bundles)
      first = std::min(first, starts[b]);
    for (const uint32_t b : bundles)
      starts[b] -= first;
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
