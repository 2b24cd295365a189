// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random kernel graphs (odd sizes, sizes of 1, sizes around tile boundaries) on machines with
// random parameters: does each compile, take the predicted cycles and give the reference's values?
#include "tests/contract/GridRun.h"
#include "tests/contract/RandomPrograms.h"
#include "tests/simulator/system/Same.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"

#include <cstdlib>
#include <gtest/gtest.h>

using namespace millrace;
using millrace::test::Draw;

namespace {

/// What the slow simulator finds otherwise than the fast one, or nothing.
std::string differenceFromTruth(const forms::KernelGraph &graph, const Machine &machine,
                                const std::map<unsigned, forms::TensorBytes> &inputs) {
  grid::CompileReport report;
  const Expected<Image> image = grid::compile(graph, machine, {}, report);
  if (!image)
    return image.error();
  sim::SimulationOptions options;
  options.writeInputs = test::inputWriter(*image, graph, inputs);
  return sim::test::differenceOn(*image, machine, options);
}

TEST(RandomGraphs, TakeThePredictedCyclesAndGiveTheReferencesValues) {
  // A campaign takes its length from the environment.
  const char *count = std::getenv("MILLRACE_RANDOM_GRAPHS");
  const unsigned graphs = count ? unsigned(std::atoi(count)) : 400;
  // One graph of so many also runs in the slow simulator.
  const char *every = std::getenv("MILLRACE_RANDOM_STEPPED");
  const unsigned stepped = every ? unsigned(std::max(1, std::atoi(every))) : 10;
  unsigned ran = 0, refused = 0;
  for (unsigned seed = 1; seed <= graphs; ++seed) {
    Draw draw(seed);
    std::string text;
    const forms::KernelGraph graph = test::randomGraph(draw, text);
    const std::vector<std::string> overrides = test::randomOverrides(draw);
    Expected<Machine> machine = loadMachine("tsp-small", overrides);
    std::string where = "seed " + std::to_string(seed) + ": " + text + " on tsp-small";
    for (const std::string &o : overrides)
      where += " " + o;
    SCOPED_TRACE(where);
    ASSERT_TRUE(machine) << machine.error();
    const auto inputs = forms::randomInputs(graph, seed);
    const test::GridRun run = test::runOnGrid(graph, *machine, inputs);
    // Known limits of the compiler: several bursts of a kernel need one slice at once (attention
    // over more columns than a plane), or more ALUs than there are (maxima over 3 x 3 windows).
    if (run.error.find("that belong together need") != std::string::npos ||
        run.error.find("epilogue needs") != std::string::npos) {
      ++refused;
      std::printf("refused: %s: %s\n", where.c_str(), run.error.c_str());
      continue;
    }
    EXPECT_EQ(run.error, "");
    if (!run.error.empty())
      continue;
    EXPECT_FALSE(run.simulated.violation) << run.simulated.violation->describe();
    if (run.simulated.violation)
      continue;
    EXPECT_EQ(run.simulated.measuredCycles, run.report.predictedCycles);
    const double distance = test::distanceFromReference(graph, run, inputs);
    EXPECT_EQ(distance, 0) << "not bit for bit what the evaluation gives";
    if (seed % stepped == 0) {
      EXPECT_EQ(differenceFromTruth(graph, *machine, inputs), "");
    }
    ++ran;
  }
  std::printf("%u of %u graphs ran, %u were refused\n", ran, graphs, refused);
  EXPECT_LE(100 * refused, 15 * graphs);
}

/// Legal and right, or an error; what is wrong otherwise. `refusal` is the error's text.
std::string verdictOn(const forms::KernelGraph &graph, const Machine &machine, unsigned seed,
                      std::string &refusal) {
  const auto inputs = forms::randomInputs(graph, seed);
  const test::GridRun run = test::runOnGrid(graph, machine, inputs);
  refusal = run.error;
  if (!refusal.empty())
    return "";
  if (run.simulated.violation)
    return run.simulated.violation->describe();
  if (run.simulated.measuredCycles != run.report.predictedCycles)
    return "predicted " + std::to_string(run.report.predictedCycles) + " cycles, measured " +
           std::to_string(run.simulated.measuredCycles);
  const double distance = test::distanceFromReference(graph, run, inputs);
  return distance >= 0 && distance <= 1e-3 ? "" : "distance " + std::to_string(distance);
}

// Found by the random machines: two moves used one link within a slot (S9).
TEST(RandomGraphs, LinksOfSeveralCyclesAVectorTakeOneMoveAfterAnother) {
  Expected<Machine> machine = loadMachine("mesh-4x4", {"fabric.link.slot=5"});
  ASSERT_TRUE(machine) << machine.error();
  std::string refusal;
  EXPECT_EQ(verdictOn(forms::buildAttention(20, 32, 16, true), *machine, 1, refusal), "");
  EXPECT_EQ(refusal, "");
}

TEST(RandomGraphs, OnMachinesOfEveryShapeAreRightOrRefused) {
  const char *count = std::getenv("MILLRACE_RANDOM_SHAPES");
  const unsigned graphs = count ? unsigned(std::atoi(count)) : 60;
  unsigned refused = 0;
  for (unsigned seed = 1; seed <= graphs; ++seed) {
    Draw draw(seed + 1000000);
    std::string text, refusal;
    const forms::KernelGraph graph = test::randomGraph(draw, text);
    std::vector<std::string> overrides = test::randomOverrides(draw);
    for (const std::string &o : test::randomShape(draw))
      overrides.push_back(o);
    std::string where = "seed " + std::to_string(seed) + ": " + text + " on tsp-small";
    for (const std::string &o : overrides)
      where += " " + o;
    Expected<Machine> machine = loadMachine("tsp-small", overrides);
    if (!machine) { // numbers that contradict each other: no machine
      ADD_FAILURE() << where << ": " << machine.error();
      continue;
    }
    EXPECT_EQ(verdictOn(graph, *machine, seed, refusal), "") << where;
    if (!refusal.empty())
      std::printf("refused: %s: %s\n", where.c_str(), refusal.c_str());
    refused += !refusal.empty();
  }
  std::printf("%u of %u graphs on machines of every shape were refused\n", refused, graphs);
  EXPECT_LE(100 * refused, 15 * graphs);
}

} // namespace
