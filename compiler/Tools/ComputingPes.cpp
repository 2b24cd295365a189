// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On how many PEs a program computes: what is formed for all of them divides work that may be
// done sooner by fewer, as rows take time to pass over links.
#include "compiler/Dialect/Spatial/Transforms/Facts.h"
#include "compiler/Tools/Checks.h"
#include "compiler/Tools/Stages.h"

#include <algorithm>

namespace millrace::driver {
namespace {

/// Most bursts of a program for which all numbers of PEs are tried; with an effort of 2, of any.
constexpr uint64_t kSmall = 15'000;
/// What must take more cycles than the best program by this is not looked at further.
constexpr double kHopeless = 1.3;

/// The machine with some of its PEs: for kernels, of which nothing depends on where PEs lie.
Machine withPes(Machine machine, unsigned pes) {
  machine.fabric.topology = pes > 1 ? "mesh" : "single";
  machine.fabric.rows = 1;
  machine.fabric.columns = pes;
  machine.links.clear();
  return machine;
}

/// Numbers of PEs to form kernels for beside all of them, the largest first: one, and that on which
/// the program took fewest cycles; with `all`, those that a search tries, too.
std::vector<unsigned> numbersOf(const Machine &machine, bool all, unsigned best) {
  std::vector<unsigned> numbers = all ? grid::fewerPes(machine) : std::vector{1u};
  if (best && std::find(numbers.begin(), numbers.end(), best) == numbers.end())
    numbers.push_back(best);
  std::sort(numbers.rbegin(), numbers.rend());
  return numbers;
}

/// Would the MXM of so many PEs alone take too long for what all of them do?
bool isHopeless(const grid::CompileReport &report, const Machine &machine, unsigned pes) {
  const double planes = double(pes) * kHemispheres * machine.mxm.planes;
  return double(report.ledger.busyOf(schedule::Engine::Mxm)) / planes >
         kHopeless * double(report.predictedCycles);
}

} // namespace

std::optional<Failure> Stages::chooseComputingPes() {
  if (target->pes() == 1 || room >= forms::Room::Spare || options.partition != "auto" ||
      options.effort == 0)
    return std::nullopt;
  Attempt best = compileKernels(options.effort);
  if (!best.image) {
    attempt = std::move(best);
    return std::nullopt;
  }
  Formed whole{std::move(graph), std::move(facts), std::move(explanation)};
  std::optional<Formed> chosen;
  const bool all = options.effort > 1 || best.report.bursts <= kSmall;
  for (const unsigned pes : numbersOf(*target, all, best.report.tactic.pes)) {
    if (isHopeless(best.report, *target, pes))
      continue;
    const Machine part = withPes(*target, pes);
    mlir::OwningOpRef<mlir::ModuleOp> copy = origin->module->clone();
    facts = origin->facts;
    explanation.reset();
    if (formKernelsFor(*copy, part, std::make_shared<layouts::CostCache>()))
      continue; // for all of them they are formed
    if (!checkFits(graph, part))
      continue;
    facts.machine = spatial::identityOf(*target);
    facts.computingPes = pes;
    const Attempt first = compileKernels(0);
    if (!first.image ||
        double(first.report.predictedCycles) > kHopeless * double(best.report.predictedCycles))
      continue;
    Attempt next = compileKernels(options.effort);
    progress.note("kernels formed for " + std::to_string(pes) + " of " +
                  std::to_string(target->pes()) + " PEs: " +
                  (next.image ? std::to_string(next.report.predictedCycles) + " cycles"
                              : next.image.error()));
    if (!next.image || next.report.predictedCycles >= best.report.predictedCycles)
      continue;
    best = std::move(next);
    chosen = Formed{std::move(graph), std::move(facts), std::move(explanation)};
  }
  take(std::move(chosen ? *chosen : whole));
  attempt = std::move(best);
  return std::nullopt;
}

} // namespace millrace::driver
