// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Problem/Extract.h"

#include "compiler/Schedule/Problem/Extractor.h"

#include <algorithm>

namespace millrace::schedule {

std::string_view nameOf(ResourceKind kind) {
  static constexpr std::string_view names[kResourceKinds] = {
      "queue",        "read_port", "write_port", "banks",   "mxm_port", "alu",
      "sxm_port",     "link_port", "alu_result", "link",    "stream",   "weights",
      "accumulators", "latch",     "rows",       "contents"};
  return names[unsigned(kind)];
}

std::string_view nameOf(PrecedenceKind kind) {
  static constexpr std::string_view names[kPrecedenceKinds] = {"data", "install", "partial_sum",
                                                               "latch", "reuse"};
  return names[unsigned(kind)];
}

uint32_t Extractor::resource(ResourceKind kind, unsigned pe, unsigned queue,
                             const std::string &part, Cycle cyclesPerPart) {
  std::string name = "pe" + std::to_string(pe) + "." +
                     (queue < machine.queues() ? machine.queueName(queue) : "") + part;
  const auto [found, isNew] =
      numbers.emplace(std::pair(kind, name), uint32_t(problem.resources.size()));
  if (isNew)
    problem.resources.push_back({kind, std::move(name), cyclesPerPart});
  return found->second;
}

Expected<ScheduleProblem> Extractor::run() {
  problem.machine = machine.name;
  problem.machineHash = machine.hash();
  makeBundles();
  if (wrong.empty())
    addHolds();
  if (wrong.empty())
    addPrecedence();
  if (wrong.empty())
    addSpans();
  if (!wrong.empty())
    return Error{wrong};
  for (uint32_t s = 0; s < problem.steps.size(); ++s)
    problem.steps[s].fewest = lowerBound(problem, s);
  return std::move(problem);
}

Expected<ScheduleProblem> problemOf(const Image &image, const Machine &machine) {
  return Extractor(image, machine).run();
}

} // namespace millrace::schedule
