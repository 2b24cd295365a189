// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does the simulator say of programs that no compiler touched what a person worked out by hand?
// Every file of tests/contract/programs is a test; its name says what it is about:
// sNN-UNIT-legal[-WORDS] keeps an invariant by the least amount, sNN-UNIT-illegal[-WORDS] breaks
// it, composition-WORDS is a row of "Checks by composition", refused-WORDS is no program.
#include "tests/contract/HandWritten.h"

#include "simulator/truth/Truth.h"
#include "tests/simulator/system/Same.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <set>

using namespace millrace;
using test::HandWritten;

namespace {

/// In the words of the files.
std::string wordsOf(const sim::Violation &v, const Machine &machine) {
  const std::string cycle = " cycle " + std::to_string(v.cycle);
  if (v.invariant == sim::Invariant::S11)
    return nameOf(v.invariant) + cycle;
  const std::string step = v.step ? " in step " + std::to_string(v.step) : "";
  return nameOf(v.invariant) + step + " at pe " + std::to_string(v.pe) + " " + machine.queueName(v.queue) +
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
  if (!program.refusal.empty()) {
    EXPECT_NE(program.error.find(program.refusal), std::string::npos)
        << (program.error.empty() ? "it is assembled" : program.error);
    return;
  }
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
  if (!program->refusal.empty())
    return;
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

constexpr const char *kKindNames[kUnitKinds] = {
    "mem",        "mxm install", "mxm activate", "mxm accumulate", "alu",
    "transposer", "permutor",    "distributor",  "shifter",        "selector",
    "rotator",    "send",        "receive"};

/// Which kinds of queues can break an invariant, and why no other can.
struct Breakers {
  std::set<UnitKind> kinds;
  const char *others;
};
const std::set<UnitKind> kAll = {
    UnitKind::Mem,     UnitKind::MxmInstall, UnitKind::MxmActivate, UnitKind::MxmAccumulate,
    UnitKind::Alu,     UnitKind::Transposer, UnitKind::Permutor,    UnitKind::Distributor,
    UnitKind::Shifter, UnitKind::Selector,   UnitKind::Rotator,     UnitKind::Send,
    UnitKind::Receive};
const std::map<unsigned, Breakers> kBreakers = {
    {1, {kAll, ""}},
    {2, {kAll, ""}},
    {3,
     {{UnitKind::Mem, UnitKind::MxmAccumulate, UnitKind::Alu, UnitKind::Transposer,
       UnitKind::Permutor, UnitKind::Distributor, UnitKind::Shifter, UnitKind::Selector,
       UnitKind::Rotator, UnitKind::Receive},
      "Install, Activate and Send put nothing on a stream"}},
    {4, {kAll, ""}},
    {5, {{UnitKind::Mem}, "only MEM has banks"}},
    {6, {{UnitKind::Mem}, "only MEM has rows"}},
    {7,
     {{UnitKind::MxmActivate},
      "only Activate uses weights: what an Install does wrong shows there"}},
    {8,
     {{UnitKind::MxmAccumulate, UnitKind::Alu}, "only these have accumulators and exits to share"}},
    {9, {{UnitKind::Send, UnitKind::Receive}, "only these use links"}},
    {10, {{UnitKind::Mem}, "only MEM has rows"}},
    {11, {{}, "the length is the step's; no instruction breaks it by itself"}},
};

/// The kind of the queue that "S4 at pe 0 mem.w.3 cycle 21" names.
std::optional<UnitKind> breakerOf(const HandWritten &program) {
  const std::string &v = program.violation;
  for (unsigned q = 0; q < program.machine.queues(); ++q)
    if (v.find(" " + program.machine.queueName(q) + " cycle") != v.npos)
      return program.machine.unit(q).kind;
  return std::nullopt;
}

TEST(TheFolder, HasALegalAndAnIllegalProgramForEveryInvariantAndUnit) {
  const std::vector<std::string> names = test::handWrittenNames();
  EXPECT_GE(names.size(), 60u);
  std::map<std::pair<unsigned, unsigned>, std::pair<unsigned, unsigned>> count; ///< legal, illegal
  std::set<unsigned> whole[2]; ///< invariants with programs, legal and illegal
  for (const std::string &name : names) {
    if (name[0] != 's')
      continue;
    const Expected<HandWritten> program = test::readHandWritten(name);
    ASSERT_TRUE(program) << program.error();
    const unsigned invariant = unsigned(std::stoi(name.substr(1, 2)));
    whole[!program->violation.empty()].insert(invariant);
    if (const std::optional<UnitKind> breaker = breakerOf(*program)) {
      ++count[{invariant, unsigned(*breaker)}].second;
      continue;
    }
    std::set<unsigned> used;
    for (const auto &list : program->image.instructions)
      for (const Instruction &i : list)
        used.insert(unsigned(program->machine.unit(i.queue).kind));
    for (unsigned kind : used)
      count[{invariant, kind}].first += program->violation.empty();
  }
  for (const auto &[invariant, breakers] : kBreakers) {
    std::printf("S%u:", invariant);
    for (unsigned kind = 0; kind < kUnitKinds; ++kind) {
      const auto [legal, illegal] = count[{invariant, kind}];
      const bool can = breakers.kinds.contains(UnitKind(kind));
      if (can)
        std::printf(" %s %u/%u", kKindNames[kind], legal, illegal);
      EXPECT_EQ(can, illegal > 0) << "S" << invariant << " by " << kKindNames[kind] << "; "
                                  << breakers.others;
      EXPECT_TRUE(!can || legal > 0) << "S" << invariant << ", " << kKindNames[kind];
    }
    std::printf("%s%s\n", *breakers.others ? "; " : "", breakers.others);
    EXPECT_TRUE(whole[0].contains(invariant) && whole[1].contains(invariant)) << "S" << invariant;
  }
}

TEST(TheFolder, NamesItsFilesByWhatTheyExpect) {
  for (const std::string &name : test::handWrittenNames()) {
    const Expected<HandWritten> program = test::readHandWritten(name);
    ASSERT_TRUE(program) << program.error();
    const bool illegal = name.find("-illegal-") != name.npos || name.ends_with("-illegal");
    EXPECT_EQ(illegal, !program->violation.empty()) << name;
    EXPECT_EQ(name.starts_with("refused-"), !program->refusal.empty()) << name;
    if (illegal && name[0] == 's') {
      const std::string invariant = "S" + std::to_string(std::stoi(name.substr(1, 2))) + " ";
      EXPECT_TRUE(program->violation.starts_with(invariant)) << name;
    }
  }
}

} // namespace
