// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Is a damaged program of the compiler rejected by the simulator, with an invariant that fits the
// damage, or at least visibly different? A damage is harmless only if outputs are bit-equal on
// three inputs, cycles are equal and nothing is violated; those are counted.
#include "tests/contract/GridRun.h"

#include "arch/spec/MachineFile.h"
#include "compiler/Forms/Builders.h"

#include <functional>
#include <gtest/gtest.h>
#include <random>

using namespace millrace;
using sim::Invariant;

namespace {

/// Changes one instruction, or returns false when this kind of damage does not apply to it.
struct Damage {
  const char *name;
  std::function<bool(Instruction &, std::vector<Producer> &, const Machine &, std::mt19937 &)>
      apply;
  std::vector<Invariant> fitting;
};

bool isMemory(const Instruction &i) {
  return i.opcode == Opcode::Read || i.opcode == Opcode::Write;
}

/// Another stream of the same hemisphere and direction, as aligned as the old one.
StreamId elsewhere(StreamId s, unsigned width, const Machine &m, std::mt19937 &random) {
  const unsigned groups = m.streams / width, index = m.indexOf(s) / width;
  return StreamId(s - m.indexOf(s) + (index + 1 + random() % (groups - 1)) % groups * width);
}

std::vector<Damage> damages() {
  using enum Invariant;
  const std::vector<Invariant> any = {S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11};
  return {
      {"a cycle shifted",
       [](Instruction &i, std::vector<Producer> &, const Machine &, std::mt19937 &random) {
         if (i.opcode == Opcode::Nop || i.cycle < 4)
           return false;
         i.cycle += 1 + random() % 3;
         return true;
       },
       any},
      {"a result on another stream",
       [](Instruction &i, std::vector<Producer> &, const Machine &m, std::mt19937 &random) {
         if (i.opcode != Opcode::Read)
           return false;
         i.out[0] = elsewhere(i.out[0], 1, m, random);
         return true;
       },
       {S3, S4}},
      {"an operand from another stream",
       [](Instruction &i, std::vector<Producer> &, const Machine &m, std::mt19937 &random) {
         if (i.opcode != Opcode::Write)
           return false;
         i.a.index = elsewhere(i.a.index, 1, m, random);
         return true;
       },
       {S4}},
      {"the other bank",
       [](Instruction &i, std::vector<Producer> &, const Machine &m, std::mt19937 &) {
         if (!isMemory(i))
           return false;
         i.address = (i.address + m.memory.rowsPerBank) % m.rowsPerSlice();
         return true;
       },
       {S5, S6, S10}},
      {"an install dropped",
       [](Instruction &i, std::vector<Producer> &, const Machine &, std::mt19937 &) {
         if (i.opcode != Opcode::Install && i.opcode != Opcode::Clear)
           return false;
         i.opcode = Opcode::Nop;
         i.n0 = i.n1 = 1;
         i.producerCount = 0;
         return true;
       },
       {S7}},
      {"a repeat count changed",
       [](Instruction &i, std::vector<Producer> &, const Machine &, std::mt19937 &random) {
         if (!info(i.opcode).fields.has(Field::Loops) || i.n0 < 2)
           return false;
         i.n0 = uint16_t(random() % 2 ? i.n0 - 1 : i.n0 + 1);
         return true;
       },
       any},
      {"an address changed",
       [](Instruction &i, std::vector<Producer> &, const Machine &, std::mt19937 &random) {
         if (!isMemory(i))
           return false;
         i.address += 1 + random() % 5;
         return true;
       },
       {S5, S6, S10}},
      {"a buffer swapped",
       [](Instruction &i, std::vector<Producer> &, const Machine &, std::mt19937 &) {
         if (i.opcode != Opcode::Activate && i.opcode != Opcode::Install)
           return false;
         i.buffer ^= 1;
         return true;
       },
       {S7}},
      {"a receive moved",
       [](Instruction &i, std::vector<Producer> &, const Machine &, std::mt19937 &) {
         if (i.opcode != Opcode::Receive)
           return false;
         ++i.cycle;
         return true;
       },
       {S1, S2, S9}},
      {"an annotation changed",
       [](Instruction &i, std::vector<Producer> &producers, const Machine &, std::mt19937 &random) {
         if (!i.producerCount)
           return false;
         Producer &p = producers[i.producers + random() % i.producerCount];
         random() % 2 ? ++p.first : ++p.count0;
         return true;
       },
       {S4, S6, S7}},
  };
}

struct Tally {
  unsigned rejected = 0, different = 0, harmless = 0, malformed = 0;
};

class DamagedImages : public testing::Test {
protected:
  /// Damages `image` in `each` ways of every kind; judges every result.
  void judge(const forms::KernelGraph &graph, const std::string &machineName, unsigned each) {
    Expected<Machine> machine = loadMachine(machineName);
    ASSERT_TRUE(machine) << machine.error();
    grid::CompileReport report;
    Expected<Image> image = grid::compile(graph, *machine, {}, report);
    ASSERT_TRUE(image) << image.error();
    std::vector<std::map<unsigned, forms::TensorBytes>> inputs;
    std::vector<test::GridRun> right;
    for (unsigned seed : {7u, 8u, 9u}) {
      inputs.push_back(forms::randomInputs(graph, seed));
      right.push_back(test::simulateImage(*image, graph, *machine, inputs.back()));
      ASSERT_EQ(right.back().error, "");
      ASSERT_FALSE(right.back().simulated.violation)
          << right.back().simulated.violation->describe();
    }
    for (const Damage &damage : damages()) {
      std::mt19937 random(1);
      for (unsigned done = 0, tries = 0; done < each && tries < 400 * each; ++tries) {
        Image damaged = *image;
        const unsigned pe = random() % unsigned(damaged.instructions.size());
        std::vector<Instruction> &list = damaged.instructions[pe].edit();
        if (list.empty())
          continue;
        const uint32_t index = random() % uint32_t(list.size());
        if (!damage.apply(list[index], damaged.producers[pe].edit(), *machine, random))
          continue;
        ++done;
        verdictOf(damage, damaged, graph, *machine, inputs, right,
                  machineName + ", pe " + std::to_string(pe) + ", instruction " +
                      std::to_string(index));
      }
    }
    image->steps[0].predictedCycles += 1;
    test::GridRun run = test::simulateImage(*image, graph, *machine, inputs[0]);
    ASSERT_TRUE(run.simulated.violation);
    EXPECT_EQ(run.simulated.violation->invariant, Invariant::S11);
  }

  void verdictOf(const Damage &damage, const Image &damaged, const forms::KernelGraph &graph,
                 const Machine &machine,
                 const std::vector<std::map<unsigned, forms::TensorBytes>> &inputs,
                 const std::vector<test::GridRun> &right, const std::string &where) {
    bool different = false;
    for (size_t k = 0; k < inputs.size() && !different; ++k) {
      test::GridRun run = test::simulateImage(damaged, graph, machine, inputs[k]);
      if (!run.error.empty()) {
        ++tally.malformed;
        return;
      }
      if (const auto &v = run.simulated.violation) {
        ++tally.rejected;
        EXPECT_NE(std::find(damage.fitting.begin(), damage.fitting.end(), v->invariant),
                  damage.fitting.end())
            << damage.name << " at " << where << ": " << v->describe();
        return;
      }
      different = run.outputs != right[k].outputs;
    }
    ++(different ? tally.different : tally.harmless);
    if (!different)
      std::printf("harmless: %s at %s\n", damage.name, where.c_str());
    EXPECT_STRNE(damage.name, "an annotation changed") << where << ": not noticed";
  }

  Tally tally;
  void TearDown() override {
    std::printf("%u rejected, %u different, %u harmless, %u malformed\n", tally.rejected,
                tally.different, tally.harmless, tally.malformed);
    EXPECT_GT(tally.rejected, 20u * std::max(1u, tally.harmless));
  }
};

TEST_F(DamagedImages, Convolution) {
  judge(
      forms::buildConv({.channels = 40, .height = 9, .width = 9, .filters = 50, .residual = true}),
      "tsp-v1", 12);
}
TEST_F(DamagedImages, Int8Convolution) {
  judge(forms::buildConv(
            {.channels = 40, .height = 9, .width = 9, .filters = 64, .type = ElementType::Int8}),
        "tsp-small", 12);
}
TEST_F(DamagedImages, Attention) {
  judge(forms::buildAttention(20, 32, 16, true), "tsp-small", 12);
}
TEST_F(DamagedImages, PerceptronOnAMesh) {
  judge(forms::buildPerceptron(30, 64, 4, ElementType::Fp16), "mesh-4x4", 12);
}

/// The program was scheduled for the machine as it is: a machine with one number changed must not
/// accept it.
TEST(ChangedMachine, EveryLatencyThatTheProgramUsesIsNoticed) {
  const auto graph = forms::buildConv({.channels = 40, .height = 9, .width = 9, .filters = 50});
  Expected<Machine> machine = loadMachine("tsp-v1");
  ASSERT_TRUE(machine) << machine.error();
  grid::CompileReport report;
  Expected<Image> image = grid::compile(graph, *machine, {}, report);
  ASSERT_TRUE(image) << image.error();
  const auto inputs = forms::randomInputs(graph);
  const std::pair<const char *, unsigned LatencySpec::*> used[] = {
      {"hop", &LatencySpec::hop},
      {"memRead", &LatencySpec::memRead},
      {"memWrite", &LatencySpec::memWrite},
      {"aluEntry", &LatencySpec::aluEntry},
      {"aluOp", &LatencySpec::aluOp},
      {"aluChain", &LatencySpec::aluChain},
      {"aluExit", &LatencySpec::aluExit},
      {"mxmEntry", &LatencySpec::mxmEntry},
      {"mxmMultiply", &LatencySpec::mxmMultiply},
      {"mxmAccumulate", &LatencySpec::mxmAccumulate},
      {"mxmExit", &LatencySpec::mxmExit},
      {"startBarrier", &LatencySpec::startBarrier},
      {"superlaneStagger", &LatencySpec::superlaneStagger}};
  for (auto [name, parameter] : used)
    for (int change : {-1, 1}) {
      Machine changed = *machine;
      if (changed.latency.*parameter == 0 && change < 0)
        continue;
      changed.latency.*parameter += unsigned(change);
      test::GridRun run = test::simulateImage(*image, graph, changed, inputs, true, true);
      EXPECT_TRUE(!run.error.empty() || run.simulated.violation) << name << " by " << change;
    }
}

} // namespace
