// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// RandomCampaign ranges                    the tables that cases are drawn from
// RandomCampaign case MACHINE GRAPH        the case of these seeds, as text
// RandomCampaign images FIRST COUNT        hashes of their images, to compare builds
// RandomCampaign try FILE                  what becomes of a case
// RandomCampaign reduce MACHINE GRAPH
//     the smallest case that fails for the same reason, as text
// RandomCampaign problem MACHINE GRAPH EFFORT FILE
//     writes the schedule problem (docs/spec/schedule-problem.md) of the case, scheduled as the
//     compiler does by itself; prints a line of JSON: bundles, cycles as placed, with bundles moved
//     in 4 rounds, and those that the compiler proves
// RandomCampaign starts PROBLEM SCHEDULE   verifies starts of a problem and prints their cycles
// RandomCampaign run MACHINES GRAPHS [FIRST [STEPS]]
//     the tables, then GRAPHS cases on each of MACHINES machines, seeds from FIRST on; runs of at
//     most STEPS cycles times PEs are stepped in the slow simulator, too
#include "compiler/Schedule/Problem/Extract.h"
#include "compiler/Schedule/Problem/Text.h"
#include "tests/contract/Campaign.h"
#include "tests/contract/Reduce.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

using namespace millrace;
using namespace millrace::test;

namespace {

/// Prints the error; the exit code.
int fail(const std::string &error) {
  std::fprintf(stderr, "%s\n", error.c_str());
  return 2;
}

/// Nothing, and what is wrong printed, of a file that cannot be read.
std::optional<std::string> textOf(const char *path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    fail(std::string(path) + ": cannot be read");
    return std::nullopt;
  }
  return text.str();
}

int tryFile(const char *path) {
  const std::optional<std::string> text = textOf(path);
  if (!text)
    return 2;
  const Expected<Case> c = parseCase(*text);
  if (!c)
    return fail(path + (": " + c.error()));
  const Outcome o = tryCaseApart(*c, {1, kMostSteps});
  std::printf("%s\n", describe(o).c_str());
  return o.verdict == Verdict::Failed;
}

/// FNV-1a of the image's bytes, or the error, of each seed.
void printImages(unsigned first, unsigned count) {
  for (unsigned seed = first; seed < first + count; ++seed) {
    const auto image = imageOf(randomCase(seed, seed));
    uint64_t hash = 0xcbf29ce484222325ull;
    if (image)
      for (const uint8_t byte : *image)
        hash = (hash ^ byte) * 0x100000001b3ull;
    std::printf("%u %s\n", seed, image ? std::to_string(hash).c_str() : image.error().c_str());
  }
}

int reduceSeeds(unsigned machine, unsigned graph) {
  const Case c = randomCase(machine, graph);
  TrialOptions options{graph, 0};
  Outcome o = tryCaseApart(c, options);
  if (o.verdict == Verdict::Agrees)
    o = tryCaseApart(c, options = {graph, kMostSteps});
  if (o.verdict == Verdict::Agrees) {
    std::fprintf(stderr, "machine %u graph %u agrees: there is nothing to reduce\n", machine,
                 graph);
    return 1;
  }
  const Case small = reduce(c, sameAs(o, options));
  std::printf("# machine %u, graph %u\n# %s\n%s", machine, graph,
              describe(tryCaseApart(small, options)).c_str(), print(small).c_str());
  return 0;
}

int writeProblem(unsigned machine, unsigned graph, unsigned effort, const char *path) {
  Case c = randomCase(machine, graph);
  c.layouts = c.schedule = 0;
  const Expected<CompiledCase> compiled = compileCase(c, effort);
  if (!compiled)
    return fail(compiled.error());
  const Expected<schedule::ScheduleProblem> problem =
      schedule::problemOf(compiled->image, compiled->machine);
  if (!problem)
    return fail(problem.error());
  std::ofstream file(path);
  file << schedule::writeProblem(*problem);
  if (!file.flush())
    return fail(std::string(path) + ": cannot be written");
  const schedule::Starts placed = schedule::startsOf(*problem),
                         moved = schedule::improve(*problem, placed, {.rounds = 4});
  Cycle ofProblem = 0;
  for (const schedule::GridStep &step : problem->steps)
    ofProblem += step.fewest;
  std::printf("{\"bundles\": %zu, \"cycles\": %lld, \"moved_cycles\": %lld, \"proven_cycles\": "
              "%lld}\n",
              problem->bundles.size(), static_cast<long long>(cyclesOf(*problem, placed)),
              static_cast<long long>(cyclesOf(*problem, moved)),
              static_cast<long long>(std::max(compiled->bound, ofProblem)));
  return 0;
}

int verifyStarts(const char *problemPath, const char *schedulePath) {
  const auto problemText = textOf(problemPath), scheduleText = textOf(schedulePath);
  if (!problemText || !scheduleText)
    return 2;
  const Expected<schedule::ScheduleProblem> problem = schedule::readProblem(*problemText);
  if (!problem)
    return fail(problem.error());
  const Expected<schedule::Starts> starts = schedule::readSchedule(*scheduleText, *problem);
  if (!starts)
    return fail(starts.error());
  if (const Status s = schedule::verify(*problem, *starts); !s)
    return fail(s.error());
  std::printf("%lld\n", static_cast<long long>(cyclesOf(*problem, *starts)));
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  auto number = [&](int k, unsigned otherwise) {
    return k < argc ? unsigned(std::strtoul(argv[k], nullptr, 10)) : otherwise;
  };
  if (command == "ranges")
    std::printf("%s", rangesText().c_str());
  else if (command == "case" && argc == 4)
    std::printf("%s", print(randomCase(number(2, 1), number(3, 1))).c_str());
  else if (command == "images" && argc == 4)
    printImages(number(2, 1), number(3, 1));
  else if (command == "try" && argc == 3)
    return tryFile(argv[2]);
  else if (command == "reduce" && argc == 4)
    return reduceSeeds(number(2, 1), number(3, 1));
  else if (command == "problem" && argc == 6)
    return writeProblem(number(2, 1), number(3, 1), number(4, 0), argv[5]);
  else if (command == "starts" && argc == 4)
    return verifyStarts(argv[2], argv[3]);
  else if (command == "run" && argc >= 4) {
    std::printf("%s\n", rangesText().c_str());
    const CampaignTally tally =
        runCampaign({number(2, 1), number(3, 1), number(4, 1), number(5, kMostSteps)},
                    [](const std::string &s) {
                      std::printf("%s\n", s.c_str());
                      std::fflush(stdout);
                    });
    std::printf("%s", tally.text().c_str());
    return tally.failures != 0;
  } else {
    std::fprintf(
        stderr,
        "usage: RandomCampaign ranges | case MACHINE GRAPH | images FIRST COUNT | try FILE | "
        "reduce MACHINE GRAPH | problem MACHINE GRAPH EFFORT FILE | starts PROBLEM SCHEDULE | "
        "run MACHINES GRAPHS [FIRST [STEPS]]\n");
    return 2;
  }
  return 0;
}
