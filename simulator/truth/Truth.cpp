// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/truth/Truth.h"

#include "simulator/loader/Loader.h"
#include "simulator/truth/Pe.h"

#include <algorithm>

namespace millrace::sim {
namespace truth {
namespace {

/// After a violation: longer than anything that happened before it can stay unnoticed.
Cycle horizonOf(const Machine &m) {
  const LatencySpec &l = m.latency;
  Cycle sum = Cycle(m.lastPosition() + 1) * l.hop + m.mxm.columns + l.mxmEntry + l.mxmMultiply +
              l.mxmAccumulate + l.mxmExit + l.memRead + l.memGather + l.memWrite + 100;
  for (const Link &link : m.links)
    sum = std::max<Cycle>(sum, link.latency);
  return sum;
}

class System : public RowAccess {
public:
  System(const Image &image, const Machine &machine, const SimulationOptions &options)
      : image(image), machine(machine), log(horizonOf(machine)) {
    for (const Link &link : machine.links)
      wires.push_back({link, {}, std::nullopt});
    for (unsigned pe = 0; pe < machine.pes(); ++pe)
      pes.push_back(std::make_unique<Pe>(machine, image, pe, options, log, wires));
  }
  const Image &image;
  const Machine &machine;
  ViolationLog log;
  std::vector<Wire> wires;
  std::vector<std::unique_ptr<Pe>> pes;
  unsigned step = 0;

  void checkTensors();
  void loadBlocks(unsigned now);
  uint64_t runStep();

  unsigned lanes() const override { return machine.lanes(); }
  void read(unsigned pe, Hemisphere h, unsigned slice, uint32_t row,
            std::span<uint8_t> bytes) override {
    std::copy_n(pes[pe]->memories.row(h, slice, row).bytes.begin(), bytes.size(), bytes.begin());
  }
  std::span<uint8_t> write(unsigned pe, Hemisphere h, unsigned slice, uint32_t row) override;

private:
  Cycle nextCycle(Cycle now) const;
  void dropMissed(Cycle now);
  void checkCount(uint64_t measured);
};

using Moment = std::pair<unsigned, uint64_t>; ///< step, cycle

/// S10 of the tensor table itself: no row is of two tensors that live at the same time.
void System::checkTensors() {
  const auto birth = [](const Region &r) { return Moment(r.step0, r.from); };
  const auto death = [](const Region &r) { return Moment(r.step1, r.to); };
  for (size_t a = 0; a < image.tensors.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      const Region &x = image.tensors[a], &y = image.tensors[b];
      const bool together =
          x.pe == y.pe && x.hemisphere == y.hemisphere && x.slice == y.slice &&
          std::max(x.row, y.row) < std::min(uint64_t(x.row) + x.rows, uint64_t(y.row) + y.rows);
      const Moment from = std::max(birth(x), birth(y)), to = std::min(death(x), death(y));
      if (!together || from > to)
        continue;
      Violation v;
      v.invariant = Invariant::S10;
      v.step = from.first, v.cycle = Cycle(std::min<uint64_t>(from.second, INT64_MAX)), v.pe = x.pe;
      v.queue = machine.queue({UnitKind::Mem, x.hemisphere, x.slice});
      v.unit = "pe" + std::to_string(v.pe) + "." + machine.queueName(v.queue);
      v.message = "tensors " + std::to_string(b) + " and " + std::to_string(a) +
                  " own one row at the same time";
      log.add(std::move(v));
    }
}

/// Contents that exist from the start of a step on: data from the first, rows that inputs or the
/// host fill in the one in which their tensor begins.
void System::loadBlocks(unsigned now) {
  step = now;
  for (size_t k = 0; k < image.blocks.size(); ++k) {
    const Block &b = image.blocks[k];
    if ((b.bytes ? 0 : image.tensors[b.tensor].step0) != now)
      continue;
    for (uint32_t r = 0; r < b.rows; ++r) {
      Memories::Row &row = pes[b.pe]->memories.row(b.hemisphere, b.slice, b.row + r);
      row.tag = Tag::initial(uint32_t(k), r);
      std::fill(row.bytes.begin(), row.bytes.end(), 0);
      std::copy_n(image.data.data() + b.offset + size_t(r) * b.bytes, b.bytes, row.bytes.begin());
    }
  }
}

/// A row of a block that lives now counts as its initial contents again.
std::span<uint8_t> System::write(unsigned pe, Hemisphere h, unsigned slice, uint32_t number) {
  Memories::Row &row = pes[pe]->memories.row(h, slice, number);
  std::optional<std::pair<uint32_t, size_t>> owner; // of several, that which begins last
  for (size_t k = 0; k < image.blocks.size(); ++k) {
    const Block &b = image.blocks[k];
    const Region &tensor = image.tensors[b.tensor];
    if (b.pe == pe && b.hemisphere == h && b.slice == slice && number >= b.row &&
        number - b.row < b.rows && tensor.step0 <= step && step <= tensor.step1)
      owner = std::max(owner, std::optional(std::pair(b.row, k)));
  }
  if (owner)
    row.tag = Tag::initial(uint32_t(owner->second), number - owner->first);
  return row.bytes;
}

/// The next cycle in which anything may happen: while nothing is under way nothing changes.
Cycle System::nextCycle(Cycle now) const {
  Cycle next = INT64_MAX;
  for (const Wire &wire : wires)
    if (!wire.messages.empty())
      next = now;
  for (const std::unique_ptr<Pe> &pe : pes)
    if (const std::optional<Cycle> of = pe->next(now))
      next = std::min(next, *of);
  return next;
}

/// S9 of vectors that came in this cycle and were not taken.
void System::dropMissed(Cycle now) {
  for (Wire &wire : wires)
    while (!wire.messages.empty() && wire.messages.front().sent + Cycle(wire.link.latency) <= now) {
      pes[wire.link.to]->missed(wire);
      wire.messages.pop_front();
    }
}

uint64_t System::runStep() {
  for (Wire &wire : wires)
    wire.messages.clear(), wire.lastSent.reset();
  for (const std::unique_ptr<Pe> &pe : pes)
    pe->beginStep(step);
  for (Cycle now = nextCycle(0); now != INT64_MAX && !log.isPast(step, now);
       now = nextCycle(now + 1)) {
    for (const std::unique_ptr<Pe> &pe : pes)
      pe->cycle(now);
    dropMissed(now);
  }
  Cycle lastWrite = 0; // T14: also when nothing is written
  for (const std::unique_ptr<Pe> &pe : pes)
    lastWrite = std::max(lastWrite, pe->core.lastWriteSlot);
  const uint64_t measured =
      1 + uint64_t(lastWrite) + machine.latency.startBarrier + machine.latency.superlaneStagger;
  if (!log.decided(step))
    checkCount(measured);
  return measured;
}

/// S11.
void System::checkCount(uint64_t measured) {
  const uint64_t stated = image.steps[step].predictedCycles;
  if (measured == stated)
    return;
  Violation v;
  v.invariant = Invariant::S11;
  v.step = step, v.cycle = Cycle(measured);
  v.unit = "system";
  v.message = "the step takes " + std::to_string(measured) + " cycles; the image says " +
              std::to_string(stated);
  log.add(std::move(v));
}

Status runSteps(System &system, const SimulationOptions &options, HostStepRunner *host,
                SimulationResult &result) {
  if (options.values && options.writeInputs)
    if (Status s = options.writeInputs(system); !s)
      return s;
  for (unsigned k = 0; k < system.image.steps.size(); ++k) {
    const Step &step = system.image.steps[k];
    if (k > 0)
      system.loadBlocks(k);
    StepResult r{step.kind, step.predictedCycles, 0};
    if (step.kind == Step::Kind::Grid)
      result.measuredCycles += r.measuredCycles = system.runStep();
    else if (options.values)
      if (Status s = host->run(system.image, step, system); !s)
        return s;
    result.steps.push_back(r);
    if (system.log.decided(k))
      return Success{};
  }
  if (options.values && options.readOutputs)
    return options.readOutputs(system);
  return Success{};
}

} // namespace
} // namespace truth

Expected<SimulationResult> simulateSlowly(const Image &image, const Machine &machine,
                                          const SimulationOptions &options, HostStepRunner *host) {
  if (image.machineHash != machine.hash() && !options.ignoreMachineHash)
    return Error{"the image was compiled for machine '" + image.machineName + "', not for this '" +
                 machine.name + "'; compile it again"};
  if (Status s = checkStructure(image, machine); !s)
    return s.takeError();
  for (const Step &step : image.steps)
    if (step.kind == Step::Kind::Host && options.values && !host)
      return Error{"step '" + step.function +
                   "' runs on the host, but no host runner is given; simulate cycles only"};
  truth::System system(image, machine, options);
  system.checkTensors();
  system.loadBlocks(0);
  SimulationResult result;
  if (Status s = truth::runSteps(system, options, host, result); !s)
    return s.takeError();
  for (const std::unique_ptr<truth::Pe> &pe : system.pes) {
    pe->core.counters.streamVectors = pe->core.streams.vectors;
    pe->core.counters.streamHops = pe->core.streams.hops;
    result.pes.push_back(pe->core.counters);
    result.total.add(result.pes.back());
  }
  result.violation = system.log.first();
  return result;
}

} // namespace millrace::sim
