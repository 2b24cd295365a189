// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When bundles of a finished program start: its schedule problem, starts that are given, and those
// that moving bundles finds.
#include "compiler/Tools/Stages.h"

#include "compiler/Schedule/Problem/Text.h"

#include <fstream>
#include <map>
#include <sstream>
#include <tuple>

namespace millrace::driver {

std::optional<Failure> Stages::poseProblem() {
  if (problem)
    return std::nullopt;
  Expected<schedule::ScheduleProblem> posed = schedule::problemOf(image, *target);
  if (!posed)
    return failed(options.from == Level::Sched ? BadInput : Wrong,
                  "its schedule is no problem: " + posed.error());
  if (Status s = schedule::check(*posed); !s)
    return failed(options.from == Level::Sched ? BadInput : Wrong, s.error());
  problem = std::move(*posed);
  return std::nullopt;
}

std::optional<Failure> Stages::applySchedule(grid::CompileReport *report) {
  if (options.schedule.empty())
    return std::nullopt;
  std::ifstream file(options.schedule, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return Failure{BadInput, "cannot read '" + options.schedule + "'; check the path"};
  if (auto failure = poseProblem())
    return failure;
  const Expected<schedule::Starts> starts = schedule::readSchedule(text.str(), *problem);
  if (!starts)
    return Failure{BadInput, options.schedule + ": " + starts.error()};
  if (Status s = schedule::verify(*problem, *starts); !s)
    return Failure{BadInput, options.schedule + ": " + s.error()};
  return startAt(*starts, report);
}

std::optional<Failure> Stages::improveSchedule(grid::CompileReport &report) {
  if (!options.schedule.empty())
    return std::nullopt;
  progress.stage("improving the schedule");
  if (auto failure = poseProblem())
    return failure;
  const unsigned rounds = options.effort > 2 ? 20 : 4;
  const schedule::Starts placed = schedule::startsOf(*problem),
                         better = schedule::improve(*problem, placed, {.rounds = rounds});
  if (schedule::cyclesOf(*problem, better) >= schedule::cyclesOf(*problem, placed))
    return std::nullopt;
  if (Status s = schedule::verify(*problem, better); !s)
    return failed(Wrong, "the compiler improved a schedule to a wrong one (" + s.error() +
                             "); please report it with the model and the machine");
  return startAt(better, &report);
}

std::optional<Failure> Stages::startAt(const schedule::Starts &starts,
                                       grid::CompileReport *report) {
  const std::vector<std::vector<uint32_t>> numbers =
      schedule::reschedule(image, *target, *problem, starts);
  if (!report)
    return std::nullopt;
  Expected<schedule::CycleAccount> account =
      schedule::accountOf(image, *target, *problem, starts, numbers, report->kernelOf,
                          options.explain == "cycles", reliefs());
  if (!account)
    return failed(Wrong, account.error());
  report->ledger = std::move(account->ledger);
  report->bounds = std::move(account->bounds);
  report->relieved = std::move(account->relieved);
  report->predictedCycles = uint64_t(schedule::cyclesOf(*problem, starts));
  std::map<unsigned, std::pair<Cycle, Cycle>> spans; // first and last cycle, by kernel
  for (size_t pe = 0; pe < numbers.size(); ++pe)
    for (uint32_t k = 0; k < numbers[pe].size(); ++k) {
      const Instruction &i = image.instructions[pe][k];
      const auto [found, isNew] = spans.emplace(report->kernelOf[pe][numbers[pe][k]],
                                                std::pair(Cycle(i.cycle), Cycle(i.lastCycle())));
      found->second.first = std::min(found->second.first, Cycle(i.cycle));
      found->second.second = std::max(found->second.second, Cycle(i.lastCycle()));
    }
  for (grid::KernelReport &kernel : report->kernels)
    if (const auto found = spans.find(kernel.kernel); found != spans.end())
      std::tie(kernel.firstCycle, kernel.lastCycle) = found->second;
  return std::nullopt;
}

} // namespace millrace::driver
