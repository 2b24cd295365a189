// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/fuzz/Simulation.h"

#include "tests/fuzz/Target.h"
#include "tests/simulator/system/Same.h"

#include "arch/program/HostData.h"
#include "simulator/system/Simulate.h"
#include "simulator/truth/Truth.h"

#include <algorithm>

namespace millrace::fuzz {
namespace {

using sim::SimulationOptions, sim::SimulationResult;

constexpr uint64_t mostElements = 4096, mostCycles = 50000, mostLanes = 64, mostQueues = 400,
                   mostPes = 8, mostRows = 1 << 18, mostHostBytes = 1 << 20;

/// Cycles of an instruction's elements, from 0; saturates.
uint64_t endOf(const Instruction &i) {
  const auto span = [](uint64_t count, uint64_t cycles) {
    return count > 1 ? std::min<uint64_t>((count - 1) * std::min<uint64_t>(cycles, mostCycles),
                                          mostCycles)
                     : 0;
  };
  return std::min<uint64_t>(i.cycle, mostCycles) + span(i.n0, i.c0) + span(i.n1, i.c1);
}

/// A tensor of the host: a pattern that is valid in every type (bytes 0 and 1; booleans too).
std::vector<uint8_t> patternFor(const Binding &binding) {
  std::vector<uint8_t> bytes(std::min<uint64_t>(hostBytes(binding), mostHostBytes));
  const bool isWide = binding.hostType != "bool" && !binding.extent;
  for (size_t k = 0; k < bytes.size(); ++k)
    bytes[k] = isWide && k % 8 == 0 ? uint8_t(k / 8) : 0;
  return bytes;
}

/// A function of the host that reads its operands and writes patterns.
class AnyHost : public HostStepRunner {
public:
  Status run(const Image &image, const Step &step, RowAccess &memory) override {
    for (uint32_t input : step.inputs) {
      const Binding &binding = image.bindings[input];
      std::vector<uint8_t> bytes(hostBytes(binding));
      if (Status s = readTensor(binding, bytes.data(), memory); !s)
        return s;
    }
    for (uint32_t output : step.outputs) {
      const Binding &binding = image.bindings[output];
      if (Status s = writeTensor(binding, patternFor(binding).data(), memory); !s)
        return s;
    }
    return Success{};
  }
};

struct Run {
  Expected<SimulationResult> result;
  std::vector<std::vector<uint8_t>> rows, outputs;
};

template <class Simulator>
Run runWith(Simulator simulator, const Image &image, const Machine &machine,
            SimulationOptions options) {
  AnyHost host;
  Run run{Error{"did not run"}, {}, {}};
  options.writeInputs = [&](RowAccess &memory) -> Status {
    for (const Binding &binding : image.bindings)
      if (binding.role == Binding::Role::Input)
        if (Status s = writeTensor(binding, patternFor(binding).data(), memory); !s)
          return s;
    return Success{};
  };
  options.readOutputs = [&](RowAccess &memory) -> Status {
    run.rows = sim::test::rowsOf(image, machine, memory);
    for (const Binding &binding : image.bindings) {
      if (binding.role != Binding::Role::Output)
        continue;
      run.outputs.emplace_back(hostBytes(binding));
      if (Status s = readTensor(binding, run.outputs.back().data(), memory); !s)
        return s;
    }
    return Success{};
  };
  run.result = simulator(image, machine, options, &host);
  return run;
}

void checkAgreement(const Image &image, const Machine &machine, const SimulationOptions &options) {
  const Run fast = runWith(sim::simulate, image, machine, options);
  if (fast.result && !sim::test::isShort(*fast.result))
    return;
  const Run slow = runWith(sim::simulateSlowly, image, machine, options);
  require(bool(fast.result) == bool(slow.result), "both simulators take an image or neither does",
          fast.result ? slow.result.error() : fast.result.error());
  if (!fast.result)
    return requireError(fast.result.error());
  const std::string text = sim::test::difference(*fast.result, *slow.result);
  require(text.empty(), "the two simulators agree", text);
  if (fast.result->violation)
    return;
  require(fast.rows == slow.rows, "the two simulators leave the same memory");
  require(fast.outputs == slow.outputs, "the two simulators give the same outputs");
}

} // namespace

bool isSmall(const Image &image, const Machine &machine) {
  const LatencySpec &l = machine.latency;
  uint64_t elements = 0, cycles = 0;
  for (const Records<Instruction> &list : image.instructions)
    for (const Instruction &i : list) {
      elements += std::min<uint64_t>(uint64_t(i.n0) * i.n1, mostElements + 1);
      cycles = std::max(cycles, endOf(i));
    }
  uint64_t rows = 0;
  for (const Region &r : image.tensors)
    rows += r.rows;
  for (const Block &b : image.blocks)
    rows += b.rows;
  for (const Binding &b : image.bindings)
    rows += hostBytes(b) > mostHostBytes ? mostRows : elementsWritten(b);
  for (const Link &link : machine.links)
    cycles = std::max<uint64_t>(cycles, link.latency);
  for (unsigned latency : {l.hop * machine.lastPosition(),
                           l.memRead,
                           l.memGather,
                           l.memWrite,
                           l.aluEntry,
                           l.aluOp,
                           l.aluChain,
                           l.aluExit,
                           l.sxmEntry,
                           l.transposer,
                           l.transposerExit,
                           l.distributor,
                           l.permutor,
                           l.shifter,
                           l.selector,
                           l.rotator,
                           l.mxmEntry,
                           l.mxmExit,
                           l.mxmMultiply,
                           l.mxmAccumulate})
    cycles = std::max<uint64_t>(cycles, latency);
  return elements <= mostElements && cycles < mostCycles && rows <= mostRows &&
         machine.lanes() <= mostLanes && machine.queues() <= mostQueues &&
         machine.pes() <= mostPes && machine.streams <= 128 && machine.mxm.columns <= 64 &&
         uint64_t(machine.rowsPerSlice()) * machine.memory.slices <= mostRows &&
         machine.mxm.accumulatorRows * uint64_t(machine.mxm.planes) <= 4096 &&
         image.steps.size() <= 16;
}

void checkSimulation(const Image &image, const Machine &machine) {
  if (!isSmall(image, machine))
    return;
  SimulationOptions options;
  options.ignoreMachineHash = true;
  options.values = false;
  checkAgreement(image, machine, options);
  options.values = true;
  checkAgreement(image, machine, options);
  options.annotations = sim::Annotations::Ignored;
  checkAgreement(image, machine, options);
}

} // namespace millrace::fuzz
