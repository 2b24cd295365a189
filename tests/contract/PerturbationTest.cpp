// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Does a machine with one latency or distance changed reject a program that was scheduled for the
// machine as it is? For every distance of the schema and every program: changed to the next legal
// value above and below, the simulator must notice exactly when the program uses the distance.
// What a program uses is read off its instructions here, without any schedule formula.
#include "tests/contract/GridRun.h"

#include "arch/spec/MachineFile.h"
#include "arch/spec/Schema.h"
#include "compiler/Forms/Builders.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <set>

using namespace millrace;

namespace {

/// Facts about an image, from its instructions alone.
struct Facts {
  std::map<Opcode, unsigned> opcodes;
  std::set<AluOp> operations;
  bool chained = false, emits = false, defaultOperation = false;
  /// Least distances that occur: write slot to read of the row, between accumulates of one row,
  /// between two vectors on a link; INT64_MAX if none does.
  int64_t writeToRead = INT64_MAX, accumulates = INT64_MAX, sends = INT64_MAX;
  /// Least distance from the install of a column group to its use, less the group's number.
  int64_t installToUse = INT64_MAX;

  bool has(std::initializer_list<Opcode> list) const {
    return std::any_of(list.begin(), list.end(), [&](Opcode o) { return opcodes.count(o) != 0; });
  }
};

template <class F> void forEachBurstElement(const Instruction &i, F f) {
  for (uint32_t i1 = 0; i1 < i.n1; ++i1)
    for (uint32_t i0 = 0; i0 < i.n0; ++i0)
      f(int64_t(i.cycle) + int64_t(i1) * i.c1 + int64_t(i0) * i.c0,
        int64_t(i.address) + int64_t(i1) * i.s1 + int64_t(i0) * i.s0);
}

void addDistances(std::span<const Instruction> list, const Machine &m, Facts &facts) {
  using Place = std::tuple<unsigned, int64_t>; // queue or plane and buffer, row or group
  std::map<Place, std::vector<int64_t>> writes, reads, accumulates, installs;
  std::map<unsigned, std::vector<int64_t>> sends;
  struct Use {
    unsigned plane;
    int64_t group, at;
  };
  std::vector<Use> uses;
  auto planeOf = [&](const Unit &u, unsigned k, unsigned buffer) {
    return ((unsigned(u.hemisphere) * m.mxm.planes + u.index + k) * m.mxm.buffers) + buffer;
  };
  for (const Instruction &i : list) {
    const Unit unit = m.unit(i.queue);
    const bool stored = i.opcode == Opcode::Write || i.opcode == Opcode::Read;
    auto &rows = i.opcode == Opcode::Write ? writes : reads;
    forEachBurstElement(i, [&](int64_t at, int64_t address) {
      if (stored)
        rows[{i.queue, address}].push_back(at +
                                           (i.opcode == Opcode::Write ? m.latency.memWrite : 0));
      else if (i.opcode == Opcode::Accumulate)
        accumulates[{i.queue, address}].push_back(at);
      else if (i.opcode == Opcode::Install)
        installs[{planeOf(unit, 0, i.buffer), address}].push_back(at);
      else if (i.opcode == Opcode::Send)
        sends[i.queue].push_back(at);
      else if (i.opcode == Opcode::Activate)
        for (unsigned k = 0; k < m.mxm.format(i.format)->planes; ++k)
          for (int64_t group = i.g0; group < i.g1; ++group)
            uses.push_back({planeOf(unit, k, i.buffer), group, at});
    });
    if (i.opcode == Opcode::Clear)
      for (unsigned group = 0; group < m.mxm.columns / m.mxm.columnsPerInstall; ++group)
        installs[{planeOf(unit, 0, i.buffer), group}].push_back(int64_t(i.cycle));
  }
  auto closest = [](std::vector<int64_t> list) {
    std::sort(list.begin(), list.end());
    int64_t least = INT64_MAX;
    for (size_t k = 1; k < list.size(); ++k)
      least = std::min(least, list[k] - list[k - 1]);
    return least;
  };
  for (auto &[place, list] : accumulates)
    facts.accumulates = std::min(facts.accumulates, closest(list));
  for (auto &[queue, list] : sends)
    facts.sends = std::min(facts.sends, closest(list));
  auto sinceLast = [](std::vector<int64_t> &before, int64_t at, int64_t least) {
    for (int64_t b : before)
      if (b <= at)
        least = std::min(least, at - b);
    return least;
  };
  for (auto &[place, list] : reads)
    if (auto it = writes.find(place); it != writes.end())
      for (int64_t at : list)
        facts.writeToRead = sinceLast(it->second, at, facts.writeToRead);
  for (const Use &use : uses)
    if (auto it = installs.find({use.plane, use.group}); it != installs.end())
      facts.installToUse = sinceLast(it->second, use.at + use.group, facts.installToUse);
}

Facts factsOf(const Image &image, const Machine &m) {
  Facts facts;
  for (const auto &list : image.instructions) {
    for (const Instruction &i : list) {
      ++facts.opcodes[i.opcode];
      facts.emits |= i.opcode == Opcode::Accumulate && (i.function & AccumulateMode::Emit);
      if (i.opcode != Opcode::Alu)
        continue;
      const auto op = AluOp(i.function);
      facts.operations.insert(op);
      facts.defaultOperation |=
          !m.latency.aluOps.count(std::string(aluOpTable[i.function].mnemonic));
      for (const Operand &o : {i.a, i.b, i.c})
        facts.chained |= o.kind == OperandKind::Alu;
    }
    addDistances(list, m, facts);
  }
  return facts;
}

/// What uses the distance at `path`: both ways for exact distances. Bounds (at least so many cycles
/// between) can only be broken by an increase, and only where a program keeps no more than asked.
std::optional<std::pair<bool, bool>> useOf(const std::string &path, const Facts &f,
                                           const Machine &m) {
  using enum Opcode;
  auto exact = [](bool used) { return std::pair(used, used); };
  const bool switched = f.has({Transpose, Permute, Distribute, Shift, Select, Rotate});
  const std::map<std::string, std::pair<bool, bool>> uses = {
      {"memory.slices_per_register", exact(f.has({Read, Write}))},
      {"c2c.position", exact(f.has({Send, Receive}))},
      {"fabric.link.latency", exact(f.has({Send, Receive}))},
      {"fabric.link.slot", {f.sends == int64_t(m.fabric.link.slot), false}},
      {"latency.hop", exact(f.has({Read, Write}))},
      {"latency.mem_read", exact(f.has({Read, Receive}))},
      {"latency.mem_gather", exact(f.has({Gather}))},
      {"latency.mem_write", exact(f.has({Write, Scatter}))},
      {"latency.read_after_write", {f.writeToRead == int64_t(m.latency.readAfterWrite), false}},
      {"latency.alu_entry", exact(f.has({Alu}))},
      {"latency.alu_op", exact(f.defaultOperation)},
      {"latency.alu_chain", exact(f.chained)},
      {"latency.alu_exit", exact(f.has({Alu}))},
      {"latency.sxm_entry", exact(switched)},
      {"latency.transposer", exact(f.has({Transpose}))},
      {"latency.transposer_exit", exact(f.has({Transpose}))},
      {"latency.distributor", exact(f.has({Distribute}))},
      {"latency.permutor", exact(f.has({Permute}))},
      {"latency.shifter", exact(f.has({Shift}))},
      {"latency.selector", exact(f.has({Select}))},
      {"latency.rotator", exact(f.has({Rotate}))},
      {"latency.mxm_entry", exact(f.has({Accumulate}))},
      {"latency.mxm_multiply", exact(f.has({Accumulate}))},
      {"latency.mxm_accumulate", exact(f.emits)},
      {"latency.mxm_exit", exact(f.emits)},
      {"latency.install_to_activate",
       {f.installToUse == int64_t(m.latency.installToActivate), false}},
      {"latency.accumulate_interval",
       {f.accumulates == int64_t(m.latency.accumulateInterval), false}},
      {"latency.start_barrier", exact(true)},
      {"latency.superlane_stagger", exact(true)},
  };
  auto it = uses.find(path);
  return it == uses.end() ? std::nullopt : std::optional(it->second);
}

bool isDistance(std::string_view path) {
  return path.starts_with("latency.") || path == "memory.slices_per_register" ||
         path == "c2c.position" || path == "fabric.link.latency" || path == "fabric.link.slot";
}

/// Adds `by` to the number at `key`; links follow their class. False when out of the key's range.
bool change(Machine &m, const Key &key, const std::string &name, int64_t by) {
  unsigned *value = std::get<Key::Member<unsigned>>(key.member)(m, name);
  if (int64_t(*value) + by < int64_t(key.least) || int64_t(*value) + by > int64_t(key.most))
    return false;
  *value = unsigned(*value + by);
  for (Link &link : m.links) {
    link.latency = key.path == "fabric.link.latency" ? *value : link.latency;
    link.slot = key.path == "fabric.link.slot" ? *value : link.slot;
  }
  return true;
}

class Perturbation : public testing::Test {
protected:
  unsigned noticed = 0, unused = 0;
  std::set<std::string> neverUsed, used;

  void examine(const forms::KernelGraph &graph, const std::string &machineName) {
    SCOPED_TRACE(graph.name + " on " + machineName);
    Expected<Machine> machine = loadMachine(machineName);
    ASSERT_TRUE(machine) << machine.error();
    grid::CompileReport report;
    Expected<Image> image = grid::compile(graph, *machine, {}, report);
    ASSERT_TRUE(image) << image.error();
    const Facts facts = factsOf(*image, *machine);
    test::GridRun right = test::simulateImage(*image, graph, *machine, {}, false);
    ASSERT_EQ(right.error, "");
    ASSERT_FALSE(right.simulated.violation) << right.simulated.violation->describe();

    for (const Key &key : machineKeys()) {
      if (!isDistance(key.path))
        continue;
      if (key.path == "latency.alu_ops.*") {
        for (AluOp op : facts.operations) {
          const std::string name(aluOpTable[unsigned(op)].mnemonic);
          Machine named = *machine; // gives the operation a latency of its own, unchanged
          named.latency.aluOps[name] = named.latency.aluLatency(name);
          bothWays(graph, *image, named, key, name, {true, true});
        }
        continue;
      }
      const auto use = useOf(std::string(key.path), facts, *machine);
      ASSERT_TRUE(use) << "no rule says which programs use " << key.path;
      bothWays(graph, *image, *machine, key, "", *use);
    }
    for (int64_t by : {-1, 1}) {
      Image wrong = *image;
      wrong.steps[0].predictedCycles += uint64_t(by);
      test::GridRun run = test::simulateImage(wrong, graph, *machine, {}, false);
      ASSERT_EQ(run.error, "");
      ASSERT_TRUE(run.simulated.violation) << "a wrong cycle count was not noticed";
      EXPECT_EQ(run.simulated.violation->invariant, sim::Invariant::S11);
    }
  }

  void bothWays(const forms::KernelGraph &graph, const Image &image, const Machine &machine,
                const Key &key, const std::string &name, std::pair<bool, bool> use) {
    const std::string path = name.empty() ? std::string(key.path) : "latency.alu_ops." + name;
    (use.first || use.second ? used : neverUsed).insert(path);
    for (int64_t sign : {1, -1}) {
      // The next value that makes a machine: slices per register must divide the slices.
      for (int64_t by = sign; std::abs(by) < 64; by += sign) {
        Machine changed = machine;
        if (!change(changed, key, name, by))
          break;
        if (!changed.verify())
          continue;
        const bool expected = sign > 0 ? use.first : use.second;
        test::GridRun run = test::simulateImage(image, graph, changed, {}, false, true);
        const bool rejected = !run.error.empty() || run.simulated.violation.has_value();
        EXPECT_EQ(rejected, expected)
            << path << " by " << by << ": "
            << (run.simulated.violation ? run.simulated.violation->describe() : run.error);
        ++(rejected ? noticed : unused);
        break;
      }
    }
  }

  void TearDown() override {
    std::printf("%u changes noticed, %u rightly without effect; not used:", noticed, unused);
    for (const std::string &path : neverUsed)
      if (!used.count(path))
        std::printf(" %s", path.c_str());
    std::printf("\n");
  }
};

TEST_F(Perturbation, Contractions) {
  examine(forms::buildMatmul({.m = 20, .k = 100, .n = 70}), "tsp-small");
  examine(
      forms::buildConv({.channels = 40, .height = 9, .width = 9, .filters = 50, .residual = true}),
      "tsp-small");
  examine(forms::buildConv(
              {.channels = 40, .height = 9, .width = 9, .filters = 64, .type = ElementType::Int8}),
          "tsp-small");
  examine(forms::buildPerceptron(30, 64, 4, ElementType::Fp16), "tsp-small");
}
TEST_F(Perturbation, MapsAndReductions) {
  examine(forms::buildMaxPool(64, 12, 12, 2, 2, 0, ElementType::Fp16), "tsp-small");
  examine(forms::buildLayerNorm(20, 100), "tsp-small");
  examine(forms::buildAttention(20, 32, 16, true), "tsp-small");
}
TEST_F(Perturbation, LargeMachines) {
  examine(forms::buildConv({.channels = 40, .height = 9, .width = 9, .filters = 50}), "tsp-v1");
  examine(forms::buildMatmul({.m = 20, .k = 100, .n = 70, .type = ElementType::Int8}), "lp30");
}
TEST_F(Perturbation, ManyPes) {
  examine(forms::buildPerceptron(30, 64, 4, ElementType::Fp16), "mesh-4x4");
  examine(forms::buildAttention(20, 32, 16, true), "mesh-4x4"); // keys and values travel
  EXPECT_TRUE(used.count("fabric.link.latency"));
}

} // namespace
