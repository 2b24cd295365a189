// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does every machine that loads satisfy compiler and simulator alike, at the boundaries of every
// number?
#include "arch/program/ImageCheck.h"
#include "arch/spec/MachineFile.h"
#include "arch/spec/Schema.h"
#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Forms/Builders.h"
#include "simulator/system/Simulate.h"
#include "tests/contract/RandomMachine.h"

#include <gtest/gtest.h>

#include <sstream>

namespace millrace {
namespace {

/// A program of this machine that does nothing.
Image emptyImage(const Machine &machine) {
  Image image;
  image.machineName = machine.name;
  image.machineHash = machine.hash();
  image.instructions.resize(machine.pes());
  image.producers.resize(machine.pes());
  image.steps.assign(1, Step());
  image.steps[0].pes.assign(machine.pes(), {0, 0});
  image.steps[0].predictedCycles =
      1 + machine.latency.startBarrier + machine.latency.superlaneStagger;
  return image;
}

sim::SimulationOptions cyclesOnly() {
  sim::SimulationOptions options;
  options.values = false;
  return options;
}

/// Whether compile() refused the model's size rather than the machine: it names what had no room.
bool isOfTheModel(const std::string &error) {
  return error.find("kernel '") != error.npos || error.find("room") != error.npos ||
         error.find("memory") != error.npos;
}

/// The compiler keeps the state of every row; more than these take it seconds.
constexpr uint64_t kMostRowsCompiled = 1u << 21;
uint64_t rowsOf(const Machine &machine) {
  return uint64_t(machine.pes()) * kHemispheres * machine.memory.slices * machine.rowsPerSlice();
}

struct Tally {
  unsigned taken = 0, refused = 0, compiled = 0;
};

/// Compiler and simulator take a machine that loaded.
void expectTaken(const Machine &machine, const std::string &what, Tally &tally) {
  SCOPED_TRACE(what);
  ++tally.taken;
  const Image empty = emptyImage(machine);
  const auto idle = sim::simulate(empty, machine, cyclesOnly(), nullptr);
  ASSERT_TRUE(idle) << idle.error();
  EXPECT_FALSE(idle->violation) << idle->violation->describe();
  if (!machine.mxm.format(ElementType::Fp16) || rowsOf(machine) > kMostRowsCompiled)
    return;
  grid::CompileReport report;
  const auto image =
      grid::compile(forms::buildMatmul({.m = 3, .k = 5, .n = 4}), machine, {}, report);
  if (!image) {
    EXPECT_TRUE(isOfTheModel(image.error())) << image.error();
    return;
  }
  ++tally.compiled;
  const Status verified = verifyImage(*image, machine);
  ASSERT_TRUE(verified) << verified.error();
  const auto run = sim::simulate(*image, machine, cyclesOnly(), nullptr);
  ASSERT_TRUE(run) << run.error();
  EXPECT_FALSE(run->violation) << run->violation->describe();
  EXPECT_EQ(run->measuredCycles, report.predictedCycles);
}

/// Every line of the refusal of a machine that was right before names one of the options.
void expectBlamed(const std::string &error, const std::vector<std::string> &settings) {
  std::istringstream lines(error);
  for (std::string line; std::getline(lines, line);) {
    bool blamed = false;
    for (const std::string &setting : settings)
      blamed |= line.starts_with("--set " + setting);
    EXPECT_TRUE(blamed) << line;
  }
}

void expectTakenOrBlamed(const std::string &base, const std::vector<std::string> &settings,
                         Tally &tally) {
  std::string what = base;
  for (const std::string &setting : settings)
    what += " --set " + setting;
  const Expected<Machine> machine = loadMachine(base, settings);
  if (machine)
    return expectTaken(*machine, what, tally);
  SCOPED_TRACE(what);
  ++tally.refused;
  expectBlamed(machine.error(), settings);
}

/// The ends of the key's range, what lies beside them, and beside what the machine has.
std::vector<double> boundaries(const Key &key, const std::string &path, const Machine &machine) {
  std::vector<double> values = {key.least, key.least + 1, key.most - 1, key.most};
  std::visit(
      [&](auto member) {
        auto &number = *member(const_cast<Machine &>(machine), findKey(path).name);
        if constexpr (!std::is_same_v<std::decay_t<decltype(number)>, std::string>)
          for (double by : {-1.0, 1.0, double(number)})
            values.push_back(double(number) + by);
      },
      key.member);
  return values;
}

std::string settingOf(const Key &key, const std::string &path, double value) {
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.0f", value);
  const bool isReal = std::holds_alternative<Key::Member<double>>(key.member);
  return path + "=" + digits + (isReal ? " " + std::string(key.unit) : "");
}

class Bounds : public testing::TestWithParam<const char *> {};

TEST_P(Bounds, OfEveryKeyAreTakenByAllOrRefusedByTheCheckOfTheMachine) {
  const Expected<Machine> base = loadMachine(GetParam());
  ASSERT_TRUE(base) << base.error();
  Tally tally;
  for (const Key &key : machineKeys()) {
    if (key.unit == "text")
      continue;
    for (const std::string &path : pathsOf(key, *base))
      for (double value : boundaries(key, path, *base))
        expectTakenOrBlamed(GetParam(), {settingOf(key, path, value)}, tally);
  }
  EXPECT_GT(tally.taken, 200u);
  EXPECT_GT(tally.refused, 60u);
  EXPECT_GT(tally.compiled, 150u);
}

INSTANTIATE_TEST_SUITE_P(Machines, Bounds, testing::Values("tsp-small", "mesh-4x4"),
                         [](const auto &info) {
                           return std::string(info.param).substr(0, 4) == "mesh" ? "Mesh" : "One";
                         });

/// Whole keys and boundary values at once, so that rules meet.
TEST(RandomMachines, AreTakenByAllOrRefusedByTheCheckOfTheMachine) {
  Tally tally;
  for (unsigned seed = 0; seed < 150; ++seed) {
    test::Draw draw(seed);
    std::vector<std::string> settings = test::randomMachine(draw);
    const Expected<Machine> drawn = loadMachine("tsp-small", settings);
    ASSERT_TRUE(drawn) << drawn.error();
    for (int64_t changes = draw.below(4); changes > 0; --changes) {
      const Key &key = machineKeys()[size_t(draw.below(int64_t(machineKeys().size())))];
      const std::vector<std::string> paths = pathsOf(key, *drawn);
      if (key.unit == "text" || paths.empty())
        continue;
      const std::string path = draw.of(paths);
      std::erase_if(settings, [&](const auto &text) { return text.starts_with(path + "="); });
      settings.push_back(settingOf(key, path, draw.of(boundaries(key, path, *drawn))));
    }
    expectTakenOrBlamed("tsp-small", settings, tally);
  }
  EXPECT_GT(tally.taken, 50u);
  EXPECT_GT(tally.refused, 30u);
  EXPECT_GT(tally.compiled, 20u);
}

/// What once only the simulator, or only the compiler, knew.
TEST(Machines, ThatOneHalfRefusedAreRefusedByTheirCheck) {
  const auto refusal = [](std::vector<std::string> settings) {
    const Expected<Machine> machine = loadMachine("tsp-v1", settings);
    return machine ? std::string() : machine.error();
  };
  EXPECT_NE(refusal({"mxm.columns_per_install=8"}).find("lies outside 16 to 64"),
            std::string::npos);
  EXPECT_NE(refusal({"mxm.columns_per_install=40", "streams=40"}).find("no multiple of 16"),
            std::string::npos);
  EXPECT_NE(refusal({"superlanes=64", "mxm.rows=1024", "mxm.columns=1024"})
                .find("fewer than the 64 column groups"),
            std::string::npos);
  EXPECT_NE(refusal({"memory.slices=12"}).find("memory.slices = 12 is less than"),
            std::string::npos);
}

} // namespace
} // namespace millrace
