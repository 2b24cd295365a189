// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Tactics.h"

#include "compiler/Schedule/Order.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace millrace::grid {

std::string Tactic::text() const {
  const Tactic usual;
  std::string text = order;
  if (seed)
    text += ", drawn by " + std::to_string(seed);
  if (mapRows != usual.mapRows)
    text += ", maps of " + std::to_string(mapRows) + " rows";
  if (bands != usual.bands)
    text += ", sweeps of 1/" + std::to_string(bands) + " of the accumulators";
  if (pes)
    text += ", over " + std::to_string(pes) + (pes > 1 ? " PEs" : " PE");
  return text;
}

namespace {

/// What an effort allows: so many schedules, of so many bursts together (some 7 microseconds each).
struct Budget {
  uint64_t schedules, bursts;
};
constexpr Budget kBudgets[kMostEffort + 1] = {
    {0, 0}, {12, 500'000}, {64, 5'000'000}, {320, 25'000'000}};

/// Each holds a program of its own, with its constants.
constexpr size_t kMostThreads = 8;

class Search {
public:
  Search(const Tactic &first, uint64_t cycles, uint64_t left,
         const std::function<uint64_t(const Tactic &)> &schedule,
         const std::function<void(size_t, size_t)> &progress)
      : left(left), most(left), schedule(schedule), progress(progress), least(cycles) {
    found.best = first;
    found.tried.push_back({first, cycles});
  }

  /// Tries those that are new, as far as the budget goes; the best of all is known afterwards.
  void run(std::vector<Tactic> tactics);
  bool isOver() const { return left == 0; }

  Found found;

private:
  uint64_t left;
  const uint64_t most;
  const std::function<uint64_t(const Tactic &)> &schedule;
  const std::function<void(size_t, size_t)> &progress;
  uint64_t least;
};

void Search::run(std::vector<Tactic> tactics) {
  std::erase_if(tactics, [&](const Tactic &t) {
    return std::any_of(found.tried.begin(), found.tried.end(),
                       [&](const Tried &tried) { return tried.tactic == t; });
  });
  tactics.resize(std::min<size_t>(tactics.size(), left));
  left -= tactics.size();
  std::vector<uint64_t> cycles(tactics.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < tactics.size(); i = next++)
      cycles[i] = schedule(tactics[i]);
  };
  std::vector<std::thread> others;
  const size_t threads =
      std::min<size_t>({std::thread::hardware_concurrency(), kMostThreads, tactics.size()});
  for (size_t i = 1; i < threads; ++i)
    others.emplace_back(work);
  work();
  for (std::thread &other : others)
    other.join();
  for (size_t i = 0; i < tactics.size(); ++i) {
    found.tried.push_back({tactics[i], cycles[i]});
    if (cycles[i] && cycles[i] < least) {
      least = cycles[i];
      found.best = tactics[i];
    }
  }
  if (progress)
    progress(size_t(most - left), size_t(most));
}

} // namespace

Found searchTactics(const Tactic &first, uint64_t cycles, uint64_t bursts, unsigned effort,
                    const Free &free, const std::function<uint64_t(const Tactic &)> &schedule,
                    const std::function<void(size_t, size_t)> &progress) {
  const Budget &budget = kBudgets[std::min(effort, kMostEffort)];
  std::vector<unsigned> fewer; // PEs
  for (unsigned pes = free.pes / 2; pes > 0; pes /= 2)
    fewer.push_back(pes);
  Search search(
      first, cycles,
      std::min(budget.schedules + fewer.size(), budget.bursts / std::max<uint64_t>(bursts, 1)),
      schedule, progress);
  std::vector<Tactic> round;
  for (const int64_t rows : {first.mapRows, int64_t(128), int64_t(32)})
    for (const schedule::OrderSolver &solver : schedule::orderSolvers())
      if (free.orders || solver.name == first.order) {
        round.push_back(first);
        round.back().order = solver.name;
        round.back().mapRows = rows;
      }
  search.run(std::move(round));
  round.clear();
  for (const unsigned pes : fewer) {
    round.push_back(search.found.best);
    round.back().pes = pes;
  }
  search.run(std::move(round));
  round.clear();
  for (const unsigned bands : {4u, 8u}) {
    round.push_back(search.found.best);
    round.back().bands = bands;
  }
  for (const int64_t rows : {512, 64, 16}) {
    round.push_back(search.found.best);
    round.back().mapRows = rows;
  }
  search.run(std::move(round));
  constexpr size_t kAtOnce = 8; // drawn with what was best before
  for (uint64_t seed = 1; free.orders && !search.isOver(); seed += kAtOnce) {
    round.assign(kAtOnce, search.found.best);
    for (size_t i = 0; i < kAtOnce; ++i) {
      round[i].order = "critical";
      round[i].seed = seed + i;
    }
    search.run(std::move(round));
    round.clear();
  }
  return std::move(search.found);
}

} // namespace millrace::grid
