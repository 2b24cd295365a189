// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Compile.h"

#include "compiler/Codegen/Grid/GridCompiler.h"
#include "compiler/Codegen/Grid/Tactics.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

namespace millrace::grid {
namespace {

/// Half of the memory for values beyond estimates.
constexpr unsigned kMostPressure = 5;

/// In turn: as they are; where weights leave few rows, with less of these; with bursts that are led
/// around each other; with halves of rows in one bank. What shares rows, or found room for values
/// that must be whole where weights gave it, is compared with the next way of detours.
constexpr Way kWays[] = {{ColumnPlaces::Sets, false, true},
                         {ColumnPlaces::Apart, false, true},
                         {ColumnPlaces::Sets, false, true, 0, /*sharesRows=*/true},
                         {ColumnPlaces::Sets, false, false, 0, /*sharesRows=*/true},
                         {ColumnPlaces::Sets, true, true},
                         {ColumnPlaces::Shared, true, true},
                         {ColumnPlaces::Sets, false, false},
                         {ColumnPlaces::Apart, false, false},
                         {ColumnPlaces::Sets, true, false},
                         {ColumnPlaces::Shared, true, false}};

/// Ways in which a tactic may find room, where `found` is that of the usual one. A part of the
/// machine may find it in one that the whole did not.
std::vector<Way> waysOf(const Tactic &tactic, const Way &found) {
  Way other = found;
  if (tactic.otherSlices)
    other.columnPlaces =
        found.columnPlaces == ColumnPlaces::Sets ? ColumnPlaces::Apart : ColumnPlaces::Sets;
  if (tactic.otherBanks)
    other.alternates = !found.alternates;
  if (!(other == found)) {
    Way around = other;
    around.detours = true;
    return found.detours ? std::vector<Way>{other} : std::vector<Way>{other, around};
  }
  if (tactic.used == Used()) {
    Way around = found; // where bursts meet that did not in the usual order
    around.detours = true;
    Way apart = around;
    apart.alternates = false;
    std::vector<Way> ways = {found};
    for (const Way &way : {around, apart})
      if (!(way == ways.back()))
        ways.push_back(way);
    return ways;
  }
  std::vector<Way> ways;
  for (Way way : kWays) {
    way.pressure = found.pressure;
    way.alternates = way.alternates && way.pressure < 2;
    if (way == found)
      break;
    ways.push_back(way);
  }
  ways.push_back(found);
  return ways;
}

/// Values that both hemispheres hold whole, found by trying.
class WholeValues {
public:
  bool empty() const { return values.empty(); }
  /// There is no room for them, however little weights take.
  void giveUp() {
    isFull = !values.empty();
    values.clear();
  }
  /// Compiles with them by `run`, again while that fails for what they are.
  template <class Make, class Run> auto compile(Make make, Run run) {
    while (true) {
      std::unique_ptr<GridCompiler> compiler = make(values);
      Status planned = compiler->plan();
      auto result = planned ? run(*compiler) : planned.takeError();
      if (result || !learnFrom(*compiler))
        return std::pair(std::move(compiler), std::move(result));
    }
  }

private:
  std::set<unsigned> values;
  bool isFull = false; ///< with values that would have to be whole: there are none then
  unsigned turns = 0;

  bool learnFrom(const GridCompiler &failed) {
    constexpr unsigned kMostTurns = 12;
    if (isFull || turns == kMostTurns)
      return false;
    ++turns;
    const std::set<unsigned> met = failed.partsThatMet();
    values.insert(met.begin(), met.end());
    return !met.empty();
  }
};

/// The same program in fewer cycles, if a search finds one.
class Improvement {
public:
  Improvement(const KernelGraph &graph, const Machine &machine, const CompileOptions &options,
              const Way &way, const WholeValues &whole, const CompileReport &before)
      : graph(graph), machine(machine), options(options), way(way), whole(whole), before(before) {
    this->options.progress = nullptr;
  }

  void run(Image &image, CompileReport &report);

private:
  const KernelGraph &graph;
  const Machine &machine;
  CompileOptions options;
  const Way way;
  const WholeValues whole;
  const CompileReport &before;
  // Orders that are equal give one schedule: the key has the tactic without its order.
  using Key = std::pair<std::vector<size_t>, Tactic>;
  std::mutex mutex;
  std::map<Key, uint64_t> known;

  static Key keyOf(const GridCompiler &compiler, Tactic tactic) {
    tactic.order.clear();
    tactic.seed = 0;
    return {compiler.kernelOrder(), std::move(tactic)};
  }
  uint64_t count(const Tactic &tactic);
  /// For a tactic that asks (Tactic::meeting); null where no schedule would have room, or none
  /// asks.
  std::shared_ptr<const Touches> touchesOf(const Tactic &tactic, const Way &its);
  std::mutex touching;
  std::map<std::pair<Way, Tactic>, std::shared_ptr<const Touches>> touched;
};

std::shared_ptr<const Touches> Improvement::touchesOf(const Tactic &tactic, const Way &its) {
  if (!tactic.meeting)
    return nullptr;
  Tactic like; // lengths of pieces change little of when things happen
  like.order = tactic.order;
  like.seed = tactic.seed;
  like.pes = tactic.pes;
  like.used = tactic.used;
  const std::lock_guard lock(touching); // who asks for the same waits for it
  const auto [at, isNew] = touched.try_emplace({its, like});
  if (!isNew)
    return at->second;
  CompileReport report = before;
  WholeValues own = whole;
  auto found = own.compile(
      [&](const std::set<unsigned> &values) {
        report = before;
        return std::make_unique<GridCompiler>(graph, machine, options, report, its, like, values);
      },
      [](GridCompiler &compiler) { return compiler.findTouches(); });
  if (found.second)
    at->second = std::move(*found.second);
  return at->second;
}

uint64_t Improvement::count(const Tactic &tactic) {
  uint64_t cycles = 0;
  std::optional<Key> key;
  for (const Way &its : waysOf(tactic, way)) {
    CompileReport report = before;
    WholeValues own = whole;
    std::shared_ptr<const Touches> touches;
    const auto make = [&](const std::set<unsigned> &values) {
      report = before;
      return std::make_unique<GridCompiler>(graph, machine, options, report, its, tactic, values,
                                            touches);
    };
    if (!key) {
      const std::unique_ptr<GridCompiler> planned = make({});
      if (!planned->plan())
        return 0;
      key = keyOf(*planned, tactic);
      const std::lock_guard lock(mutex);
      if (const auto at = known.find(*key); at != known.end())
        return at->second;
    }
    touches = touchesOf(tactic, its);
    const auto counted = own.compile(make, [](GridCompiler &compiler) { return compiler.count(); });
    if (counted.second) {
      cycles = *counted.second;
      break;
    }
  }
  const std::lock_guard lock(mutex);
  return known[*key] = cycles;
}

void Improvement::run(Image &image, CompileReport &report) {
  {
    CompileReport its = before;
    GridCompiler first(graph, machine, options, its, way, options.tactic, {});
    if (first.plan())
      known[keyOf(first, options.tactic)] = report.predictedCycles;
  }
  Found found = searchTactics(
      options.tactic, report.predictedCycles, report.bursts, options.effort,
      {.orders = !options.keepsOrder,
       .pes = options.partition == "auto" ? fewerPes(machine, options.tactic.pes)
                                          : std::vector<unsigned>(),
       .flights = machine.pes() == 1,
       .places = true,
       .halves = !way.alternates,
       .parts = partsOf(machine)},
      [this](const Tactic &tactic) { return count(tactic); }, options.searching);
  report.tried = found.tried;
  if (found.best == options.tactic)
    return;
  for (const Way &its : waysOf(found.best, way)) {
    CompileReport next;
    WholeValues own = whole;
    const std::shared_ptr<const Touches> touches = touchesOf(found.best, its);
    Expected<Image> better =
        own.compile(
               [&](const std::set<unsigned> &values) {
                 next = before;
                 return std::make_unique<GridCompiler>(graph, machine, options, next, its,
                                                       found.best, values, touches);
               },
               [](GridCompiler &compiler) { return compiler.run(); })
            .second;
    if (!better)
      continue;
    if (next.predictedCycles >= report.predictedCycles) // pruned, they are as good
      return;
    next.tried = std::move(report.tried);
    image = std::move(*better);
    report = std::move(next);
    return;
  }
}

} // namespace

Expected<Image> compile(const KernelGraph &given, const Machine &machine,
                        const CompileOptions &options, CompileReport &report) {
  if (Status s = machine.verify(); !s)
    return s.takeError();
  const std::optional<KernelGraph> apart = withOwnConstants(given, machine);
  const KernelGraph &graph = apart ? *apart : given;
  const CompileReport before = report;
  std::optional<Error> first;
  std::vector<std::vector<std::vector<Hemisphere>>> dealt; // at the last attempt
  bool full = false;
  const bool isOne = machine.pes() == 1 || options.tactic.pes == 1; // that computes
  std::string last;     // error of the way before, at its first pressure
  unsigned start = 0;   // pressure at which the way before was crowded first
  bool isTight = false; // at the last attempt that shared no rows
  struct Compiled {
    Image image;
    CompileReport report;
    Way way;
    WholeValues whole;
  };
  std::optional<Compiled>
      other; // with less room for weights: perhaps another way takes fewer cycles
  WholeValues whole;
  const auto best = [&](Compiled found) -> Image {
    if (other && other->report.predictedCycles <= found.report.predictedCycles)
      found = std::move(*other);
    report = std::move(found.report);
    if (options.effort > 0)
      Improvement(graph, machine, options, found.way, found.whole, before).run(found.image, report);
    return std::move(found.image);
  };
  for (Way way : kWays) {
    if (other ? !way.detours : way.sharesRows && (options.sharesRows || !isTight))
      continue;
    std::optional<unsigned> crowdedAt;
    const bool alternates = way.alternates;
    bool wasTooLarge = false;
    WholeValues apart; // what is led around each other need not lie in both hemispheres
    WholeValues &its = way.detours ? apart : whole;
    // What shares rows stores each weight once.
    const unsigned from = way.sharesRows ? std::max(start, 1u) : start;
    for (way.pressure = from;; ++way.pressure) {
      way.alternates = alternates && way.pressure < 2;
      auto [made, image] = its.compile(
          [&](const std::set<unsigned> &values) {
            report = before;
            return std::make_unique<GridCompiler>(graph, machine, options, report, way,
                                                  options.tactic, values);
          },
          [](GridCompiler &compiler) { return compiler.run(); });
      const GridCompiler &compiler = *made;
      if (image) {
        Compiled found{std::move(*image), std::move(report), way, its};
        if (!way.sharesRows && (way.detours || its.empty() || way.pressure == from))
          return best(std::move(found));
        other = std::move(found);
        break;
      }
      if (options.refused)
        options.refused(image.error());
      // As it was with replicas elsewhere: they are not why.
      const bool isKnown =
          way.columnPlaces == ColumnPlaces::Apart && way.pressure == from && image.error() == last;
      if (way.pressure == from)
        last = image.error();
      if (!way.sharesRows)
        isTight = compiler.isTight();
      report.crowded = compiler.crowded();
      full = report.full = full || compiler.full();
      if (report.crowded && !crowdedAt)
        crowdedAt = way.pressure;
      const bool isSame = compiler.hemispheres() == dealt;
      // Several PEs are given what their values leave: once more of it changes little.
      const bool isNew = !compiler.isTooLarge() ? way.pressure < 3 || !isSame
                         : isOne                ? !isSame || options.sparing
                                                : !wasTooLarge || options.sparing;
      if (compiler.isBeyondMemory() && !other) // however weights are dealt
        return image.takeError();
      wasTooLarge = compiler.isTooLarge();
      dealt = compiler.hemispheres();
      if (!report.crowded && compiler.full() && way.pressure < kMostPressure && isNew)
        continue;
      if (report.crowded && way.pressure < 2 && compiler.isTight() && !isKnown)
        continue;
      if (!report.crowded && !its.empty()) { // bursts met, or values would not be whole
        its.giveUp();
        report.crowded = true;
        crowdedAt = crowdedAt.value_or(from);
      }
      if (!first && !crowdedAt && !other)
        return image.takeError();
      if (!first ||
          (way.detours && !report.crowded)) // rows elsewhere, or those that wait, had no room
        first = image.takeError();
      break;
    }
    start = crowdedAt.value_or(start);
  }
  if (other) {
    Compiled found = std::move(*other);
    other.reset();
    return best(std::move(found));
  }
  report.crowded = true;
  return *first;
}

} // namespace millrace::grid
