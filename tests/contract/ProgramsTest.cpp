// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does the simulator say of programs that no compiler touched what a person worked out by hand?
// Every file of tests/contract/programs is a test; its name says what it is about:
// sNN-UNIT-legal[-WORDS] keeps an invariant by the least amount, sNN-UNIT-illegal[-WORDS] breaks
// it, composition-WORDS is a row of "Checks by composition".
#include "tests/contract/HandWritten.h"

#include "simulator/truth/Truth.h"
#include "tests/simulator/system/Same.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

using namespace millrace;
using test::HandWritten;

namespace {

/// In the words of the files.
std::string wordsOf(const sim::Violation &v, const Machine &machine) {
  const std::string cycle = " cycle " + std::to_string(v.cycle);
  if (v.invariant == sim::Invariant::S11)
    return nameOf(v.invariant) + cycle;
  return nameOf(v.invariant) + " at pe " + std::to_string(v.pe) + " " + machine.queueName(v.queue) +
         cycle;
}

void expectBytes(const HandWritten &program, RowAccess &memory) {
  const Machine &m = program.machine;
  for (const HandWritten::Bytes &b : program.bytes) {
    unsigned queue = 0;
    while (queue < m.queues() && m.queueName(queue) != b.slice)
      ++queue;
    ASSERT_LT(queue, m.queues()) << "there is no " << b.slice;
    const Unit unit = m.unit(queue);
    std::vector<uint8_t> row(m.lanes());
    memory.read(b.pe, unit.hemisphere, unit.index, b.row, row);
    ASSERT_LE(b.lane + b.values.size(), row.size());
    const std::vector<uint8_t> found(row.begin() + b.lane,
                                     row.begin() + b.lane + ptrdiff_t(b.values.size()));
    EXPECT_EQ(found, b.values) << b.slice << " row " << b.row << " lane " << b.lane;
  }
}

class Programs : public testing::TestWithParam<std::string> {};

using Simulator = Expected<sim::SimulationResult> (*)(const Image &, const Machine &,
                                                      const sim::SimulationOptions &,
                                                      HostStepRunner *);

void expectOutcome(const HandWritten &program, Simulator simulator) {
  for (bool values : {true, false}) {
    if (!values && program.valuesOnly)
      continue;
    sim::SimulationOptions options;
    options.values = values;
    options.readOutputs = [&](RowAccess &memory) -> Status {
      expectBytes(program, memory);
      return Success{};
    };
    const auto result = simulator(program.image, program.machine, options, nullptr);
    ASSERT_TRUE(result) << result.error();
    EXPECT_EQ(result->violation ? wordsOf(*result->violation, program.machine) : "",
              program.violation)
        << (result->violation ? result->violation->describe() : "nothing is violated");
    if (program.cycles && !result->violation) {
      EXPECT_EQ(result->measuredCycles, *program.cycles);
    }
  }
}

TEST_P(Programs, DoWhatAPersonWorkedOut) {
  const Expected<HandWritten> program = test::readHandWritten(GetParam());
  ASSERT_TRUE(program) << program.error();
  expectOutcome(*program, sim::simulate);
}

TEST_P(Programs, DoTheSameInTheSlowSimulator) {
  const Expected<HandWritten> program = test::readHandWritten(GetParam());
  ASSERT_TRUE(program) << program.error();
  expectOutcome(*program, sim::simulateSlowly);
  for (bool values : {true, false}) {
    sim::SimulationOptions options;
    options.values = values;
    EXPECT_EQ(sim::test::differenceOn(program->image, program->machine, options), "");
  }
}

std::string testName(const testing::TestParamInfo<std::string> &info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(, Programs, testing::ValuesIn(test::handWrittenNames()), testName);

/// Invariants and the units whose instructions can keep or break them.
const std::map<std::string, std::vector<std::string>> kPairs = {
    {"s01", {"mem", "mxm", "alu", "sxm", "c2c"}},
    {"s02", {"mem", "mxm", "alu", "sxm", "c2c"}},
    {"s03", {"mem", "mxm", "alu", "sxm", "c2c"}},
    {"s04", {"mem", "mxm", "alu", "sxm", "c2c"}},
    {"s05", {"mem"}},
    {"s06", {"mem"}},
    {"s07", {"mxm"}},
    {"s08", {"mxm", "alu"}},
    {"s09", {"c2c"}},
    {"s10", {"mem"}},
    {"s11", {"mem"}},
};

TEST(TheFolder, HasALegalAndAnIllegalProgramForEveryInvariantAndUnit) {
  const std::vector<std::string> names = test::handWrittenNames();
  EXPECT_GE(names.size(), 60u);
  std::set<std::string> kinds; // "s01-mem-legal"
  for (const std::string &name : names) {
    size_t end = name.find('-');
    for (int k = 0; k < 2 && end != name.npos; ++k)
      end = name.find('-', end + 1);
    kinds.insert(name.substr(0, end));
  }
  for (const auto &[invariant, units] : kPairs)
    for (const std::string &unit : units)
      for (const char *kind : {"legal", "illegal"})
        EXPECT_TRUE(kinds.contains(invariant + "-" + unit + "-" + kind))
            << invariant << " " << unit << " has no " << kind << " program";
}

TEST(TheFolder, NamesItsFilesByWhatTheyExpect) {
  for (const std::string &name : test::handWrittenNames()) {
    const Expected<HandWritten> program = test::readHandWritten(name);
    ASSERT_TRUE(program) << program.error();
    const bool illegal = name.find("-illegal-") != name.npos || name.ends_with("-illegal");
    EXPECT_EQ(illegal, !program->violation.empty()) << name;
    if (illegal && name[0] == 's') {
      const std::string invariant = "S" + std::to_string(std::stoi(name.substr(1, 2))) + " ";
      EXPECT_TRUE(program->violation.starts_with(invariant)) << name;
    }
  }
}

} // namespace
