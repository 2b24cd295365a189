// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Compile.h"

#include "compiler/Codegen/Grid/GridCompiler.h"
#include "compiler/Codegen/Grid/Tactics.h"

#include <map>
#include <mutex>
#include <optional>

namespace millrace::grid {
namespace {

/// Half of the memory for values beyond estimates.
constexpr unsigned kMostPressure = 5;

/// The same program in fewer cycles, if a search finds one; room is found in the same way.
void improve(const KernelGraph &graph, const Machine &machine, const CompileOptions &options,
             const Way &way, Image &image, CompileReport &report, const CompileReport &before) {
  CompileOptions quiet = options;
  quiet.progress = nullptr;
  std::mutex mutex;
  // Orders that are equal give one schedule.
  using Key = std::tuple<std::vector<size_t>, int64_t, unsigned, unsigned>;
  std::map<Key, uint64_t> known;
  const auto keyOf = [](const GridCompiler &compiler, const Tactic &tactic) -> Key {
    return {compiler.kernelOrder(), tactic.mapRows, tactic.bands, tactic.pes};
  };
  {
    CompileReport its = before;
    GridCompiler first(graph, machine, quiet, its, way, options.tactic);
    if (first.plan())
      known[keyOf(first, options.tactic)] = report.predictedCycles;
  }
  const auto schedule = [&](const Tactic &tactic) -> uint64_t {
    CompileReport its = before;
    GridCompiler compiler(graph, machine, quiet, its, way, tactic);
    if (!compiler.plan())
      return 0;
    const Key key = keyOf(compiler, tactic);
    {
      const std::lock_guard lock(mutex);
      if (const auto at = known.find(key); at != known.end())
        return at->second;
    }
    const Expected<uint64_t> cycles = compiler.count();
    const std::lock_guard lock(mutex);
    return known[key] = cycles ? *cycles : 0;
  };
  Found found = searchTactics(
      options.tactic, report.predictedCycles, report.bursts, options.effort,
      {.orders = !options.keepsOrder, .pes = options.partition == "auto" ? machine.pes() : 1},
      schedule, options.searching);
  report.tried = found.tried;
  if (found.best == options.tactic)
    return;
  CompileReport its = before;
  GridCompiler compiler(graph, machine, quiet, its, way, found.best);
  Status planned = compiler.plan();
  Expected<Image> better = planned ? compiler.run() : planned.takeError();
  if (!better || its.predictedCycles >= report.predictedCycles) // pruned, they are as good
    return;
  its.tried = std::move(report.tried);
  image = std::move(*better);
  report = std::move(its);
}

} // namespace

Expected<Image> compile(const KernelGraph &graph, const Machine &machine,
                        const CompileOptions &options, CompileReport &report) {
  if (Status s = machine.verify(); !s)
    return s.takeError();
  const CompileReport before = report;
  std::optional<Error> first;
  std::vector<std::vector<std::vector<Hemisphere>>> dealt; // at the last attempt
  bool full = false;
  unsigned start = 0; // pressure at which the way before was crowded first
  for (Way way : {Way{ColumnPlaces::Sets, false, true}, Way{ColumnPlaces::Apart, false, true},
                  Way{ColumnPlaces::Sets, false, false}, Way{ColumnPlaces::Apart, false, false},
                  Way{ColumnPlaces::Sets, true, false}, Way{ColumnPlaces::Shared, true, false}}) {
    std::optional<unsigned> crowdedAt;
    const bool alternates = way.alternates;
    bool wasTooLarge = false;
    for (way.pressure = start;; ++way.pressure) {
      report = before;
      way.alternates = alternates && way.pressure < 2;
      GridCompiler compiler(graph, machine, options, report, way, options.tactic);
      Status planned = compiler.plan();
      Expected<Image> image = planned ? compiler.run() : planned.takeError();
      if (image) {
        if (options.effort > 0)
          improve(graph, machine, options, way, *image, report, before);
        return image;
      }
      if (options.refused)
        options.refused(image.error());
      report.crowded = compiler.crowded();
      full = report.full = full || compiler.full();
      if (report.crowded && !crowdedAt)
        crowdedAt = way.pressure;
      const bool isSame = compiler.hemispheres() == dealt;
      // Several PEs are given what their values leave: once more of it changes little.
      const bool isNew = !compiler.isTooLarge() ? way.pressure < 3 || !isSame
                         : machine.pes() == 1   ? !isSame || options.sparing
                                                : !wasTooLarge || options.sparing;
      if (compiler.isBeyondMemory()) // however weights are dealt
        return image.takeError();
      wasTooLarge = compiler.isTooLarge();
      dealt = compiler.hemispheres();
      if (!report.crowded && compiler.full() && way.pressure < kMostPressure && isNew)
        continue;
      if (report.crowded && way.pressure < 2 && compiler.isTight())
        continue;
      if (!first && !crowdedAt)
        return image.takeError();
      if (!first ||
          (way.detours && !report.crowded)) // rows elsewhere, or those that wait, had no room
        first = image.takeError();
      break;
    }
    start = crowdedAt.value_or(start);
  }
  report.crowded = true;
  return *first;
}

} // namespace millrace::grid
