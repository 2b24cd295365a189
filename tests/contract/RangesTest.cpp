// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does the table of what random machines are drawn from name every key of the schema, and do the
// machines keep to it?
#include "tests/contract/RandomGraph.h"
#include "tests/contract/RandomMachine.h"

#include "arch/spec/MachineFile.h"
#include "arch/spec/Schema.h"
#include "compiler/Forms/KernelBuilder.h"

#include <gmock/gmock.h>
#include <set>

using namespace millrace;
using namespace millrace::test;

namespace {

constexpr unsigned kSeeds = 450;

TEST(Ranges, NameEveryKeyOfTheMachineSchemaOnceInItsOrder) {
  std::vector<std::string_view> keys, named;
  for (const Key &key : machineKeys())
    keys.push_back(key.path);
  for (const Range &range : machineRanges())
    named.push_back(range.name);
  EXPECT_EQ(named, keys) << "a key of arch/spec/Schema.cpp is neither drawn nor named as fixed";
}

TEST(Ranges, SayWhyAKeyIsFixedOrBounded) {
  for (std::span<const Range> table : {machineRanges(), graphRanges()})
    for (const Range &range : table) {
      EXPECT_EQ(range.range.empty(), range.how == How::Fixed) << range.name;
      EXPECT_TRUE(range.how == How::Drawn || !range.text.empty()) << range.name;
    }
}

TEST(Ranges, LieWithinTheSchema) {
  for (size_t k = 0; k < machineRanges().size(); ++k) {
    const Key &key = machineKeys()[k];
    const Range &range = machineRanges()[k];
    if (key.unit == "text" || range.how == How::Fixed || range.name.ends_with("lanes_per_pass"))
      continue;
    Draw draw(1);
    for (unsigned i = 0; i < 100; ++i) {
      const double value = double(draw.number(range.range));
      EXPECT_TRUE(value >= key.least && value <= key.most) << range.name << " = " << value;
    }
  }
}

TEST(RandomMachines, AreWholeAndSetEveryKeyThatIsNotFixed) {
  std::set<std::string_view> set;
  std::set<std::string> topologies;
  std::set<unsigned> pes;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    Draw draw(seed);
    const std::vector<std::string> overrides = randomMachine(draw);
    const Expected<Machine> machine = loadMachine(kBaseMachine, overrides);
    ASSERT_TRUE(machine) << "seed " << seed << ": " << machine.error();
    for (const std::string &text : overrides)
      set.insert(findKey(text.substr(0, text.find('='))).key->path);
    topologies.insert(machine->fabric.topology);
    pes.insert(machine->pes());
    EXPECT_LE(machine->pes(), 16u);
  }
  for (const Range &range : machineRanges())
    EXPECT_EQ(set.contains(range.name), range.how != How::Fixed) << range.name;
  EXPECT_EQ(topologies.size(), 6u) << "single, mesh, torus, ring, full, list";
  EXPECT_TRUE(pes.contains(1) && pes.contains(2) && pes.contains(16));
}

TEST(RandomMachines, AreTheSameForASeed) {
  Draw a(7), b(7), c(8);
  const std::vector<std::string> first = randomMachine(a);
  EXPECT_EQ(first, randomMachine(b));
  EXPECT_NE(first, randomMachine(c));
}

/// Sizes relative to each boundary of the machine drawn: -1, 0, 1.
TEST(RandomGraphs, MeetEveryBoundaryOfTheirMachineFromBothSidesAndUseEveryOperation) {
  std::set<std::string> operations, met;
  unsigned shared = 0, severalOutputs = 0;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    Draw ofMachine(seed), draw(seed);
    const Expected<Machine> machine = loadMachine(kBaseMachine, randomMachine(ofMachine));
    ASSERT_TRUE(machine) << machine.error();
    const Recipe recipe = randomGraph(draw, *machine);
    const Expected<forms::KernelGraph> graph = realise(recipe);
    ASSERT_TRUE(graph) << graph.error();
    EXPECT_LE(2 * memoryRows(*graph, *machine), memoryRows(*machine));
    std::map<unsigned, unsigned> readers;
    unsigned outputs = 0;
    for (const Step &step : recipe.steps) {
      operations.insert(step.operation);
      for (unsigned o : std::set<unsigned>(step.operands.begin(), step.operands.end()))
        ++readers[o];
    }
    for (const auto &[step, count] : readers)
      shared += count > 1;
    const Machine &m = *machine;
    for (const forms::Tensor &t : graph->tensors) {
      outputs += t.role == forms::TensorRole::Output;
      const int64_t lanes = t.shape[t.laneDim], rows = forms::elementCount(t) / lanes;
      auto meet = [&](const char *what, int64_t size, int64_t bound) {
        if (size >= bound - 1 && size <= bound + 1)
          met.insert(std::string(what) + " " + std::to_string(size - bound));
      };
      meet("vector", lanes, m.lanes());
      meet("superlane", lanes, m.lanesPerSuperlane);
      meet("column group", lanes, m.mxm.columnsPerInstall);
      meet("columns", lanes, m.mxm.columns);
      meet("columns (rows)", rows, m.mxm.columns);
      meet("lanes per pass", lanes, m.mxm.format(ElementType::Fp16)->lanesPerPass);
      meet("accumulators", rows, m.mxm.accumulatorRows);
      meet("bank", rows, m.memory.rowsPerBank);
    }
    severalOutputs += outputs > 1;
  }
  EXPECT_EQ(met.size(), 8u * 3) << testing::PrintToString(met);
  // "attention" and "alternate" are drawn as the steps that they consist of; "start" draws the
  // others.
  const std::string_view list = rangeOf(graphRanges(), "operation");
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(' ', at), list.size());
    const std::string word(list.substr(at, end - at));
    EXPECT_TRUE(word == "attention" || word == "alternate" || operations.contains(word)) << word;
    at = end + 1;
  }
  EXPECT_GE(shared, kSeeds / 2) << "values with several readers";
  EXPECT_GE(severalOutputs, kSeeds / 4);
}

} // namespace
