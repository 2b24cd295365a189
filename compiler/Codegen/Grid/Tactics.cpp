// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Tactics.h"

#include "compiler/Schedule/Order.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <thread>
#include <type_traits>

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
  if (fills)
    text += fills > 1 ? ", pieces that fill the ALUs, of maps too" : ", pieces that fill the ALUs";
  if (flight != usual.flight)
    text += ", " + std::to_string(flight) + " kernels together";
  if (segments)
    text += ", rows in " + std::to_string(segments) + " segments";
  if (meeting)
    text += ", rows apart by time, at a cost of " + std::to_string(meeting);
  if (pes)
    text += ", over " + std::to_string(pes) + (pes > 1 ? " PEs" : " PE");
  if (mixed)
    text += ", weights beside activations";
  if (otherSlices)
    text += ", replicas in other slices";
  if (otherBanks)
    text += ", halves in other banks";
  const auto add = [&](unsigned number, const char *units) {
    if (number)
      text += ", " + std::to_string(number) + " " + units;
  };
  add(used.planes, "planes");
  add(used.slicesPerRegister, "slices a register");
  add(used.alus, "ALUs");
  add(used.banks, "banks");
  return text;
}

std::vector<unsigned> fewerPes(const Machine &machine, unsigned pes) {
  const unsigned rows = machine.fabric.rows, columns = machine.fabric.columns;
  std::vector<unsigned> numbers;
  const auto add = [&](unsigned number) {
    if (number && number < (pes ? pes : machine.pes()) &&
        (numbers.empty() || number < numbers.back()))
      numbers.push_back(number);
  };
  add((columns - 1) * rows);
  for (unsigned number = std::bit_floor(columns); number > 0; number /= 2)
    add(number * rows);
  for (unsigned number = std::bit_floor(rows); number > 0; number /= 2)
    add(number);
  return numbers;
}

std::vector<Used> partsOf(const Machine &machine) {
  std::vector<Used> parts;
  const auto add = [&](unsigned Used::*units, unsigned all, unsigned step) {
    for (const unsigned number : {all / 2 / step * step, all - std::min(all, step)})
      if (number && (parts.empty() || parts.back().*units != number)) {
        parts.emplace_back();
        parts.back().*units = number;
      }
  };
  unsigned together = 1; // planes
  for (const MxmFormatSpec &format : machine.mxm.formats)
    together = std::max(together, format.planes);
  add(&Used::planes, machine.mxm.planes, together);
  add(&Used::slicesPerRegister, machine.memory.slicesPerRegister, 1);
  add(&Used::alus, machine.vxm.alus, 1);
  add(&Used::banks, machine.memory.banks, 1);
  return parts;
}

namespace {

/// So many schedules, of so many bursts together (some 7 microseconds each), but of each of up to
/// kLarge the `first` ones; none at all where fewer than `least` would be allowed.
struct Budget {
  static constexpr uint64_t kLarge = 1'000'000;
  uint64_t schedules, bursts, least = 0, first = 0;
  uint64_t of(uint64_t programs, uint64_t itsBursts) const {
    const uint64_t allowed =
        std::max(bursts / std::max<uint64_t>(itsBursts, 1), itsBursts <= kLarge ? first : 0);
    return allowed < least ? 0 : std::min(programs, allowed);
  }
};
/// What an effort allows for orders and lengths of pieces; then for places and parts of the
/// machine, of which the first few rarely help: by default small programs alone try them.
constexpr Budget kBudgets[kMostEffort + 1] = {
    {0, 0}, {20, 1'000'000, 0, 3}, {69, 5'000'000, 0, 3}, {325, 25'000'000, 0, 3}};
constexpr Budget kPlaceBudgets[kMostEffort + 1] = {
    {0, 0}, {40, 120'000, 8}, {64, 2'000'000}, {128, 10'000'000}};

/// Each holds a program of its own, with its constants.
constexpr size_t kMostThreads = 8;

class Search {
public:
  Search(const Tactic &first, uint64_t cycles,
         const std::function<uint64_t(const Tactic &)> &schedule,
         const std::function<void(size_t, size_t)> &progress)
      : schedule(schedule), progress(progress), least(cycles) {
    found.best = first;
    found.tried.push_back({first, cycles});
  }

  /// Tries those that are new, as far as the budget goes; the best of all is known afterwards.
  void run(std::vector<Tactic> tactics);
  /// What was allowed before and not used is lost.
  void allow(uint64_t more) {
    most += more - left;
    left = more;
  }
  bool isOver() const { return left == 0; }
  uint64_t allowed() const { return left; }
  uint64_t cycles() const { return least; } ///< of the best one

  Found found;

private:
  uint64_t left = 0, most = 0;
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

/// In other orders, with maps of `rows` at most in a piece.
std::vector<Tactic> ordersOf(const Tactic &like, const Tactic &first, const Free &free,
                             const std::vector<int64_t> &rows) {
  std::vector<Tactic> round;
  for (const int64_t most : rows)
    for (const schedule::OrderSolver &solver : schedule::orderSolvers())
      if (free.orders || solver.name == first.order) {
        round.push_back(like);
        round.back().order = solver.name;
        round.back().seed = solver.name == like.order ? like.seed : 0;
        round.back().mapRows = most;
      }
  return round;
}
/// With maps of other lengths, too.
std::vector<Tactic> ordersOf(const Tactic &like, const Tactic &first, const Free &free) {
  return ordersOf(like, first, free, {first.mapRows, 128, 32});
}

std::vector<Tactic> operator+(std::vector<Tactic> x, const std::vector<Tactic> &y) {
  x.insert(x.end(), y.begin(), y.end());
  return x;
}

/// With each of these values of one choice.
template <class T>
std::vector<Tactic> variantsOf(const Tactic &like, T Tactic::*choice,
                               const std::vector<std::type_identity_t<T>> &values) {
  std::vector<Tactic> round;
  for (const T &value : values) {
    round.push_back(like);
    round.back().*choice = value;
  }
  return round;
}

std::vector<Tactic> lengthsOf(const Tactic &like) {
  return variantsOf(like, &Tactic::bands, {4, 8}) +
         variantsOf(like, &Tactic::mapRows, {512, 64, 16});
}

/// With pieces that fill the ALUs.
std::vector<Tactic> fillingsOf(const Tactic &like) {
  return variantsOf(like, &Tactic::fills, {1, 2});
}

/// With rows in segments that follow each other through slices.
std::vector<Tactic> segmentsOf(const Tactic &like) {
  return variantsOf(like, &Tactic::segments, {4, 8, 2});
}

/// With rows where little else happens meanwhile: in other slices for that, or within those that
/// they would lie in.
std::vector<Tactic> meetingsOf(const Tactic &like) {
  return variantsOf(like, &Tactic::meeting, {100, 15});
}

/// With kernels scheduled together.
std::vector<Tactic> flightsOf(const Tactic &like, const Free &free) {
  if (!free.flights && like.pes != 1)
    return {};
  return variantsOf(like, &Tactic::flight, {2, 3, 12});
}

/// In other places.
std::vector<Tactic> placesOf(const Tactic &like, const Free &free) {
  std::vector<Tactic> round;
  for (bool Tactic::*place : {&Tactic::mixed, &Tactic::otherBanks, &Tactic::otherSlices}) {
    if (!free.places)
      break;
    round.push_back(like);
    round.back().*place = !(like.*place);
  }
  return round;
}

/// On parts of the machine.
std::vector<Tactic> partsOf(const Tactic &like, const Free &free) {
  return variantsOf(like, &Tactic::used, free.parts);
}

/// Other places and parts of the machine, each alone; then orders and lengths with one that takes
/// fewer cycles, or else with those that take hardly more.
void searchPlaces(Search &search, const Tactic &first, const Free &free) {
  constexpr double kHardlyMore = 1.03;
  const Tactic &best = search.found.best;
  std::vector<Tactic> seen; ///< whose neighbours were tried
  while (!search.isOver()) {
    seen.push_back(best);
    const size_t before = search.found.tried.size();
    search.run(partsOf(best, free) + placesOf(best, free));
    if (!(best == seen.back())) {
      search.run(ordersOf(best, first, free) + lengthsOf(best));
      continue;
    }
    std::vector<Tried> near(search.found.tried.begin() + std::ptrdiff_t(before),
                            search.found.tried.end());
    std::erase_if(near, [&](const Tried &t) {
      return t.cycles <= search.cycles() ||
             double(t.cycles) > kHardlyMore * double(search.cycles());
    });
    std::stable_sort(near.begin(), near.end(),
                     [](const Tried &x, const Tried &y) { return x.cycles < y.cycles; });
    for (const Tried &t : near)
      if (best == seen.back())
        search.run(placesOf(t.tactic, free) + ordersOf(t.tactic, first, free));
    if (best == seen.back())
      return;
  }
}

/// Halves in two banks where they are in one, orders, fewer PEs, rows apart by time, segments of
/// rows, lengths of pieces, kernels scheduled together, pieces that fill the ALUs, then orders that
/// are drawn while any are allowed. Where many are, places of rows come behind these lengths.
void searchOrders(Search &search, const Tactic &first, const Free &free) {
  const Tactic &best = search.found.best;
  std::vector<Tactic> round;
  if (free.halves) {
    round.push_back(first);
    round.back().otherBanks = true;
    search.run(std::move(round));
  }
  constexpr uint64_t kAll = 18; // with so many, each of the rounds is tried whole
  const bool isShort = search.allowed() < kAll;
  search.run(isShort ? ordersOf(best, first, free, {first.mapRows}) : ordersOf(best, first, free));
  search.run(variantsOf(best, &Tactic::pes, free.pes));
  const auto runPlaces = [&] {
    search.run(meetingsOf(best));
    search.run(segmentsOf(best));
  };
  if (isShort) { // places gain most
    runPlaces();
    search.run(ordersOf(best, first, free));
  }
  search.run(lengthsOf(best));
  search.run(flightsOf(best, free));
  search.run(fillingsOf(best));
  if (!isShort)
    runPlaces();
  constexpr size_t kAtOnce = 8; // drawn with what was best before
  for (uint64_t seed = 1; free.orders && !search.isOver(); seed += kAtOnce) {
    round.assign(kAtOnce, best);
    for (size_t i = 0; i < kAtOnce; ++i) {
      round[i].order = "critical";
      round[i].seed = seed + i;
    }
    search.run(std::move(round));
  }
}

} // namespace

Found searchTactics(const Tactic &first, uint64_t cycles, uint64_t bursts, unsigned effort,
                    const Free &free, const std::function<uint64_t(const Tactic &)> &schedule,
                    const std::function<void(size_t, size_t)> &progress) {
  Search search(first, cycles, schedule, progress);
  for (unsigned e = 1; e <= std::min(effort, kMostEffort); ++e) {
    const auto more = [&](const Budget *budgets) {
      const size_t fewer = free.pes.size();
      return budgets[e].of(budgets[e].schedules + fewer, bursts) -
             (e > 1 ? budgets[e - 1].of(budgets[e - 1].schedules + fewer, bursts) : 0);
    };
    const uint64_t tries = more(kBudgets);
    search.allow(tries + (tries && e == 1 && free.halves)); // that one beside the others
    searchOrders(search, first, free);
    if (!free.places && free.parts.empty())
      continue;
    search.allow(more(kPlaceBudgets));
    searchPlaces(search, first, free);
  }
  return std::move(search.found);
}

} // namespace millrace::grid
