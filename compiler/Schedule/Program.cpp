// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Program.h"

#include <algorithm>
#include <numeric>

namespace millrace::schedule {

PeOccupancy::PeOccupancy(const Machine &machine)
    : readPorts(size_t(kHemispheres) * machine.memory.slices), writePorts(readPorts.size()),
      banks(readPorts.size() * machine.memory.banks), units(machine.queues()),
      dispatches(machine.queues()), streams(machine.streamCount()) {}

Program::Program(const Machine &machine) : machine(machine), timing(machine) {
  for (unsigned pe = 0; pe < machine.pes(); ++pe) {
    occupancy.emplace_back(machine);
    state.emplace_back(machine);
  }
  pes.resize(machine.pes());
}

void Program::finish(Image &image) const {
  Step step;
  step.kind = Step::Kind::Grid;
  step.predictedCycles = uint64_t(timing.countFrom(lastWrite));
  // Old number -> place in the image, per PE.
  std::vector<std::vector<uint32_t>> place(pes.size());
  std::vector<std::vector<uint32_t>> order(pes.size());
  for (size_t pe = 0; pe < pes.size(); ++pe) {
    const auto &list = pes[pe].instructions;
    order[pe].resize(list.size());
    std::iota(order[pe].begin(), order[pe].end(), 0u);
    std::sort(order[pe].begin(), order[pe].end(), [&](uint32_t x, uint32_t y) {
      return std::pair(list[x].cycle, list[x].queue) < std::pair(list[y].cycle, list[y].queue);
    });
    place[pe].resize(list.size());
    for (uint32_t i = 0; i < order[pe].size(); ++i)
      place[pe][order[pe][i]] = i;
  }
  image.instructions.resize(pes.size());
  image.producers.resize(pes.size());
  for (size_t pe = 0; pe < pes.size(); ++pe) {
    auto &out = image.instructions[pe];
    auto &producers = image.producers[pe];
    for (uint32_t old : order[pe]) {
      Instruction instruction = pes[pe].instructions[old];
      instruction.producers = uint32_t(producers.size());
      instruction.producerCount = uint16_t(pes[pe].producers[old].size());
      for (Producer p : pes[pe].producers[old]) {
        if (p.instruction != kInitialContents)
          p.instruction = place[p.pe][p.instruction];
        producers.push_back(p);
      }
      out.push_back(instruction);
    }
    step.pes.push_back({0, uint32_t(out.size())});
  }
  image.steps.push_back(step);
  for (const RegionState &r : regions) {
    Region region;
    region.name = r.name;
    region.pe = uint16_t(r.pe);
    region.hemisphere = r.hemisphere;
    region.slice = uint16_t(r.slice);
    region.row = r.row;
    region.rows = r.rows;
    region.from = uint64_t(std::max<Cycle>(0, std::min(r.from, r.to)));
    region.to = uint64_t(r.untilEnd ? std::max(lastWrite, r.to) : r.to);
    image.tensors.push_back(region);
  }
}

} // namespace millrace::schedule
