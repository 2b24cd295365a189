// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Program.h"

#include <algorithm>
#include <numeric>

namespace millrace::schedule {

PeOccupancy::PeOccupancy(const Machine &machine)
    : readPorts(size_t(kHemispheres) * machine.memory.slices), writePorts(readPorts.size()),
      banks(readPorts.size() * machine.memory.banks), units(machine.queues()),
      dispatches(machine.queues()), streams(machine.streamCount()) {}

Program::Program(const Machine &machine, unsigned alus)
    : machine(machine), alus(alus ? alus : machine.vxm.alus), timing(machine) {
  for (unsigned pe = 0; pe < machine.pes(); ++pe) {
    occupancy.emplace_back(machine);
    state.emplace_back(machine);
  }
  pes.resize(machine.pes());
  waits.held.emplace_back(machine.pes());
}

void Program::noteAccess(uint32_t id, Cycle first, Cycle last) {
  RegionState &region = regions[id];
  if (region.step0 == UINT32_MAX) {
    region.step0 = step();
    region.from = first;
  } else if (region.step0 == step()) {
    region.from = std::min(region.from, first);
  }
  region.to = region.step1 == step() ? std::max(region.to, last) : last;
  region.step1 = step();
}

bool Program::stepIsEmpty() const {
  for (size_t pe = 0; pe < pes.size(); ++pe)
    if (pes[pe].instructions.size() > (steps.empty() ? 0 : steps.back().pes[pe].end))
      return false;
  return true;
}

void Program::endGridStep() {
  Step grid;
  grid.kind = Step::Kind::Grid;
  grid.predictedCycles = uint64_t(timing.countFrom(lastWrite));
  for (size_t pe = 0; pe < pes.size(); ++pe)
    grid.pes.push_back(
        {steps.empty() ? 0 : steps.back().pes[pe].end, uint32_t(pes[pe].instructions.size())});
  steps.push_back(std::move(grid));
  beginStep();
}

void Program::addHostStep(Step host) {
  host.kind = Step::Kind::Host;
  for (size_t pe = 0; pe < pes.size(); ++pe) // an empty range: where the next step begins
    host.pes.push_back(
        {uint32_t(pes[pe].instructions.size()), uint32_t(pes[pe].instructions.size())});
  steps.push_back(std::move(host));
  beginStep();
}

uint64_t Program::cycles() const {
  uint64_t sum = 0;
  for (const Step &step : steps)
    sum += step.predictedCycles;
  return sum;
}

void Program::beginStep() {
  waits.held.emplace_back(pes.size());
  lastWrite = 0;
  for (size_t pe = 0; pe < pes.size(); ++pe) {
    occupancy[pe] = PeOccupancy(machine);
    state[pe].beginStep();
  }
  for (RegionState &region : regions)
    region.notBefore = kNever;
}

std::vector<std::vector<uint32_t>> Program::finish(Image &image) const {
  // Old number -> place in the image, per PE.
  std::vector<std::vector<uint32_t>> place(pes.size()), order(pes.size());
  for (size_t pe = 0; pe < pes.size(); ++pe) {
    const auto &list = pes[pe].instructions;
    order[pe].resize(list.size());
    std::iota(order[pe].begin(), order[pe].end(), 0u);
    for (const Step &step : steps)
      std::sort(order[pe].begin() + step.pes[pe].begin, order[pe].begin() + step.pes[pe].end,
                [&](uint32_t x, uint32_t y) {
                  return std::pair(list[x].cycle, list[x].queue) <
                         std::pair(list[y].cycle, list[y].queue);
                });
    place[pe].resize(list.size());
    for (uint32_t i = 0; i < order[pe].size(); ++i)
      place[pe][order[pe][i]] = i;
  }
  image.instructions.resize(pes.size());
  image.producers.resize(pes.size());
  for (size_t pe = 0; pe < pes.size(); ++pe) {
    std::vector<Instruction> &out = image.instructions[pe].edit();
    std::vector<Producer> &producers = image.producers[pe].edit();
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
  }
  image.steps = steps;
  for (Step &step : image.steps)
    if (step.kind == Step::Kind::Host)
      step.pes.clear(); // the ranges of host steps say where the next grid step begins, here only
  const unsigned lastStep = unsigned(steps.size()) - 1;
  for (const RegionState &r : regions) {
    Region region;
    region.name = r.name;
    region.pe = uint16_t(r.pe);
    region.hemisphere = r.hemisphere;
    region.slice = uint16_t(r.slice);
    region.row = r.row;
    const bool used = r.step0 != UINT32_MAX;
    region.rows = used ? r.rows : 0; // what nobody writes or reads holds nothing
    region.step0 = uint16_t(used ? r.step0 : 0);
    region.from = uint64_t(used ? std::max<Cycle>(0, r.from) : 0);
    region.step1 = uint16_t(r.untilEnd ? lastStep : r.step1);
    region.to =
        r.untilEnd ? image.steps.back().predictedCycles : uint64_t(std::max<Cycle>(0, r.to));
    image.tensors.push_back(region);
  }
  return order;
}

} // namespace millrace::schedule
