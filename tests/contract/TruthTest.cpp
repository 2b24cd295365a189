// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does the fast simulator find what the slow one finds, which steps every cycle and register: on
// compiled programs, and on their mutants? Cycles, counters, memory, and the first violation.
#include "tests/contract/GridRun.h"
#include "tests/contract/HandWritten.h"
#include "tests/contract/Mutants.h"
#include "tests/contract/Subjects.h"
#include "tests/simulator/system/Same.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <random>

using namespace millrace;

namespace {

/// A compiled program with inputs.
struct Compiled {
  std::string name;
  forms::KernelGraph graph;
  Machine machine;
  Image image;
  std::map<unsigned, forms::TensorBytes> inputs;
};

Expected<Compiled> compiled(const std::string &machineName, forms::KernelGraph graph) {
  Compiled c;
  c.name = graph.name + " on " + machineName;
  Expected<Machine> machine = loadMachine(machineName);
  if (!machine)
    return machine.takeError();
  grid::CompileReport report;
  Expected<Image> image = grid::compile(graph, *machine, {}, report);
  if (!image)
    return image.takeError();
  c.inputs = forms::randomInputs(graph);
  c.graph = std::move(graph), c.machine = *machine, c.image = std::move(*image);
  return c;
}

/// What differs between the two simulators, or nothing.
std::string differenceOf(const Compiled &c, const Image &image, bool values) {
  sim::SimulationOptions options;
  options.values = values;
  options.writeInputs = test::inputWriter(image, c.graph, c.inputs);
  return sim::test::differenceOn(image, c.machine, options);
}

std::vector<test::Subject> smallGraphs() {
  using namespace forms;
  std::vector<test::Subject> list = test::mutationSubjects();
  for (const char *machine : {"tsp-small", "mesh-4x4"}) {
    list.push_back({machine, buildMatmul({.m = 1, .k = 100, .n = 40})});
    list.push_back({machine, buildMatmul({.m = 33, .k = 65, .n = 31, .type = ElementType::Int8})});
    list.push_back({machine, buildConv({.channels = 40,
                                        .height = 15,
                                        .width = 13,
                                        .filters = 50,
                                        .stride = 2,
                                        .residual = true})});
    list.push_back(
        {machine,
         buildConv({.channels = 32, .height = 9, .width = 9, .filters = 64, .groups = 4})});
    list.push_back(
        {machine,
         buildConv({.channels = 48, .height = 9, .width = 9, .filters = 48, .groups = 48})});
    list.push_back({machine, buildMaxPool(64, 12, 12, 2, 2, 0, ElementType::Int8)});
    list.push_back({machine, buildPerceptron(10, 40, 3, ElementType::Fp16)});
  }
  list.push_back({"lp30", buildMatmul({.m = 3, .k = 40, .n = 20, .type = ElementType::Int8})});
  return list;
}

TEST(Truth, CompiledProgramsTakeTheSameCyclesAndGiveTheSameValuesStepByStep) {
  for (const test::Subject &subject : smallGraphs()) {
    Expected<Compiled> c = compiled(subject.machine, subject.graph);
    ASSERT_TRUE(c) << c.error();
    SCOPED_TRACE(c->name);
    for (bool values : {true, false})
      EXPECT_EQ(differenceOf(*c, c->image, values), "");
  }
}

/// A campaign takes its length from the environment.
unsigned numberOf(const char *variable, unsigned otherwise) {
  const char *text = std::getenv(variable);
  return text ? unsigned(std::atoi(text)) : otherwise;
}

TEST(Truth, MutantsBreakTheSameInvariantFirstOrDoTheSame) {
  const unsigned each = numberOf("MILLRACE_TRUTH_MUTANTS", 1),
                 seed = numberOf("MILLRACE_TRUTH_SEED", 3);
  unsigned compared = 0, violations = 0, tooLong = 0, malformed = 0;
  for (const test::Subject &subject : test::mutationSubjects()) {
    Expected<Compiled> c = compiled(subject.machine, subject.graph);
    ASSERT_TRUE(c) << c.error();
    test::forEachMutant(c->image, c->machine, each, seed, [&](const test::Mutant &mutant) {
      SCOPED_TRACE(mutant.kind + " of " + c->name + ", " + mutant.where);
      sim::SimulationOptions options;
      options.values = false;
      const auto cycles = sim::simulate(mutant.image, c->machine, options);
      if (!cycles) {
        ++malformed;
        return;
      }
      if (!sim::test::isShort(*cycles)) {
        ++tooLong;
        return;
      }
      ++compared;
      violations += cycles->violation.has_value();
      EXPECT_EQ(differenceOf(*c, mutant.image, true), "");
      EXPECT_EQ(differenceOf(*c, mutant.image, false), "");
    });
  }
  std::printf("%u mutants compared, %u of them violations; %u too long to step, %u malformed\n",
              compared, violations, tooLong, malformed);
  EXPECT_GE(compared, 200u);
  EXPECT_GE(violations, 100u);
  EXPECT_LE(20 * tooLong, compared);
}

/// Compares runs with and without values and annotations: without annotations most damage is legal,
/// and shows in counters and memory. False when a run is too long to be stepped.
bool compared(const Image &image, const Machine &machine) {
  sim::SimulationOptions options;
  options.ignoreMachineHash = true;
  options.values = false;
  const auto cycles = sim::simulate(image, machine, options);
  if (cycles && !sim::test::isShort(*cycles))
    return false;
  EXPECT_EQ(sim::test::differenceOn(image, machine, options), "");
  options.values = true;
  EXPECT_EQ(sim::test::differenceOn(image, machine, options), "");
  options.annotations = sim::Annotations::Ignored;
  const auto unchecked = sim::simulate(image, machine, options);
  if (!unchecked || sim::test::isShort(*unchecked)) {
    EXPECT_EQ(sim::test::differenceOn(image, machine, options), "");
  }
  return true;
}

TEST(Truth, MutantsOfHandWrittenProgramsDoTheSame) {
  const unsigned each = numberOf("MILLRACE_TRUTH_MUTANTS", 1),
                 seed = numberOf("MILLRACE_TRUTH_SEED", 3);
  unsigned count = 0, tooLong = 0;
  for (const std::string &name : test::handWrittenNames()) {
    const Expected<test::HandWritten> program = test::readHandWritten(name);
    ASSERT_TRUE(program) << program.error();
    if (!program->refusal.empty())
      continue;
    test::forEachMutant(program->image, program->machine, each, seed,
                        [&](const test::Mutant &mutant) {
                          SCOPED_TRACE(mutant.kind + " of " + name + ", " + mutant.where);
                          ++(compared(mutant.image, program->machine) ? count : tooLong);
                        });
  }
  std::printf("%u mutants compared, %u too long to step\n", count, tooLong);
  EXPECT_GE(count, 3000u);
  EXPECT_LE(20 * tooLong, count);
}

/// Changes of a few numbers that leave a machine whole.
Machine varied(Machine m, std::mt19937 &random) {
  const auto below = [&](unsigned n) { return unsigned(random() % n); };
  LatencySpec &l = m.latency;
  unsigned *latencies[] = {&l.hop,
                           &l.memRead,
                           &l.memGather,
                           &l.memWrite,
                           &l.readAfterWrite,
                           &l.aluEntry,
                           &l.aluOp,
                           &l.aluChain,
                           &l.aluExit,
                           &l.sxmEntry,
                           &l.transposer,
                           &l.transposerExit,
                           &l.distributor,
                           &l.permutor,
                           &l.shifter,
                           &l.selector,
                           &l.rotator,
                           &l.mxmEntry,
                           &l.mxmExit,
                           &l.mxmMultiply,
                           &l.mxmAccumulate,
                           &l.installToActivate,
                           &l.accumulateInterval,
                           &l.startBarrier,
                           &l.superlaneStagger};
  for (unsigned k = 1 + below(3); k-- > 0;) {
    unsigned &latency = *latencies[below(std::size(latencies))];
    latency = below(2) ? latency + 1 + below(3) : std::max(1u, latency - std::min(latency, 1u));
  }
  if (below(4) == 0)
    m.memory.slicesPerRegister = 1 + below(2);
  if (below(4) == 0)
    m.memory.rowsPerBank = 4096 + 64 * below(3) - 64;
  if (below(4) == 0)
    m.vxm.runningAccumulators = 1 + below(3);
  if (below(4) == 0)
    m.c2c.position = below(3);
  for (Link &link : m.links)
    if (below(4) == 0)
      link.latency = 1 + below(30), link.slot = 1 + below(10);
  return m;
}

TEST(Truth, HandWrittenProgramsDoTheSameOnMachinesThatTheyWereNotWrittenFor) {
  const unsigned each = numberOf("MILLRACE_TRUTH_MACHINES", 12),
                 seed = numberOf("MILLRACE_TRUTH_SEED", 3);
  std::mt19937 random(seed);
  unsigned count = 0;
  for (const std::string &name : test::handWrittenNames()) {
    const Expected<test::HandWritten> program = test::readHandWritten(name);
    ASSERT_TRUE(program) << program.error();
    if (!program->refusal.empty())
      continue;
    for (unsigned k = 0; k < each; ++k) {
      SCOPED_TRACE(name + ", machine " + std::to_string(k));
      count += compared(program->image, varied(program->machine, random));
    }
  }
  EXPECT_GE(count, 100 * each);
}

} // namespace
