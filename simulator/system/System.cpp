// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/system/System.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace millrace::sim {

static constexpr Cycle kLargestWindow = 4096; ///< of a PE that no link can surprise

static auto placeOf(const Block &b) {
  return std::tuple(unsigned(b.pe), b.hemisphere, unsigned(b.slice), b.row);
}

System::System(const Image &image, const Machine &machine, const SimulationOptions &options)
    : image(image), machine(machine), options(options), timing(machine), log(timing.horizon) {
  for (size_t k = 0; k < machine.links.size(); ++k)
    links.push_back(
        std::make_unique<LinkModule>(("link" + std::to_string(k)).c_str(), machine.links[k]));
  parts.resize(machine.pes());
  for (unsigned k = 0; k < machine.pes(); ++k)
    build(options.reverseConstruction ? machine.pes() - 1 - k : k);
}

System::~System() = default;

/// The user's unit, or our own.
template <class Own, class... Arguments>
std::unique_ptr<UnitModule> System::make(const std::string &name, PeContext &context, Unit unit,
                                         Arguments &&...arguments) {
  if (options.makeUnit)
    if (std::unique_ptr<UnitModule> theirs = options.makeUnit(name.c_str(), context, unit))
      return theirs;
  return std::make_unique<Own>(name.c_str(), context, std::forward<Arguments>(arguments)...);
}

void System::build(unsigned pe) {
  auto part = std::make_unique<Part>(machine, timing, image, pe, options, log);
  const std::string prefix = "pe" + std::to_string(pe);
  auto name = [&](const std::string &what) { return prefix + "_" + what; };
  for (unsigned h = 0; h < kHemispheres; ++h)
    for (unsigned s = 0; s < machine.memory.slices; ++s)
      part->memory.push_back(
          std::make_unique<MemorySlice>(name((h ? "mem_e_" : "mem_w_") + std::to_string(s)).c_str(),
                                        part->context, Hemisphere(h), s));
  for (unsigned h = 0; h < kHemispheres; ++h) {
    const Hemisphere side = Hemisphere(h);
    part->matrix.push_back(make<MatrixUnit>(name(h ? "mxm_e" : "mxm_w"), part->context,
                                            {UnitKind::MxmInstall, side, 0}, options.batch));
    part->switches.push_back(make<SwitchUnit>(name(h ? "sxm_e" : "sxm_w"), part->context,
                                              {UnitKind::Transposer, side, 0}, side));
  }
  part->vector = make<VectorUnit>(name("vxm"), part->context, {UnitKind::Alu, Hemisphere::West, 0});
  std::vector<LinkModule *> sends(machine.c2c.ports), receives(machine.c2c.ports);
  for (std::unique_ptr<LinkModule> &link : links) {
    if (link->link.from == pe)
      sends[link->link.port] = link.get();
    if (link->link.to == pe)
      receives[link->link.toPort] = link.get();
  }
  part->ports = make<PortUnit>(name("c2c"), part->context, {UnitKind::Send, Hemisphere::West, 0},
                               sends, receives);
  const Pe::Wiring wiring = wire(*part);
  part->pe = std::make_unique<Pe>(prefix.c_str(), part->context, wiring, windowOf(pe, wiring),
                                  options.observer);
  parts[pe] = std::move(part);
}

Pe::Wiring System::wire(Part &part) const {
  Pe::Wiring w;
  for (std::unique_ptr<MemorySlice> &m : part.memory)
    w.units.push_back(m.get());
  const unsigned matrix = unsigned(w.units.size()), switches = matrix + kHemispheres,
                 vector = switches + kHemispheres, ports = vector + 1;
  for (unsigned h = 0; h < kHemispheres; ++h)
    w.units.push_back(part.matrix[h].get());
  for (unsigned h = 0; h < kHemispheres; ++h)
    w.units.push_back(part.switches[h].get());
  w.units.push_back(part.vector.get());
  w.units.push_back(part.ports.get());
  for (unsigned q = 0; q < machine.queues(); ++q) {
    Unit u = machine.unit(q);
    switch (u.kind) {
    case UnitKind::Mem:
      w.unitOfQueue.push_back(unsigned(u.hemisphere) * machine.memory.slices + u.index);
      break;
    case UnitKind::MxmInstall:
    case UnitKind::MxmActivate:
    case UnitKind::MxmAccumulate:
      w.unitOfQueue.push_back(matrix + unsigned(u.hemisphere));
      break;
    case UnitKind::Alu:
      w.unitOfQueue.push_back(vector);
      break;
    case UnitKind::Send:
    case UnitKind::Receive:
      w.unitOfQueue.push_back(ports);
      break;
    default:
      w.unitOfQueue.push_back(switches + unsigned(u.hemisphere));
    }
  }
  return w;
}

/// What is sent in one window is received in a later one.
Cycle System::windowOf(unsigned pe, const Pe::Wiring &wiring) const {
  Cycle least = kLargestWindow;
  for (const UnitInterface *unit : wiring.units)
    if (unit->hasProcesses())
      return 1;
  for (const Link &link : machine.links)
    if (link.to == pe)
      least = std::min<Cycle>(least, link.latency);
  if (options.window > 0)
    least = std::min(least, options.window);
  return std::max<Cycle>(least, 1);
}

void System::loadBlocks(unsigned step) {
  currentStep = step;
  for (size_t k = 0; k < image.blocks.size(); ++k) {
    const Block &b = image.blocks[k];
    const unsigned from = b.bytes ? 0 : image.tensors[b.tensor].step0;
    if (from != step)
      continue;
    slice(b.pe, b.hemisphere, b.slice).load(uint32_t(k));
  }
}

/// S1: a queue's program order is the order of the image's list.
void System::checkQueueOrder(unsigned step) {
  std::vector<Cycle> last(machine.queues());
  for (unsigned pe = 0; pe < parts.size(); ++pe) {
    std::fill(last.begin(), last.end(), -1);
    PeContext &context = parts[pe]->context;
    context.step = step;
    for (uint32_t k = image.steps[step].pes[pe].begin; k < image.steps[step].pes[pe].end; ++k) {
      const Instruction &i = image.instructions[pe][k];
      if (Cycle(i.cycle) < last[i.queue])
        context.reportAt(Invariant::S1, Cycle(i.cycle), i.queue, k, [&] {
          return "it stands after an instruction of cycle " + std::to_string(last[i.queue]) +
                 " in its queue";
        });
      last[i.queue] = Cycle(i.cycle);
    }
  }
}

uint64_t System::runStep(unsigned step) {
  checkQueueOrder(step);
  for (unsigned pe = 0; pe < parts.size(); ++pe)
    parts[pe]->pe->beginStep(step, image.steps[step].pes[pe], base);
  if (options.observer)
    options.observer->beginStep(step);
  sc_core::sc_start();
  for (std::unique_ptr<Part> &part : parts)
    part->pe->settle();
  Cycle lastWrite = -1, lastDispatch = -1;
  for (std::unique_ptr<Part> &part : parts) {
    lastWrite = std::max(lastWrite, part->context.lastWriteSlot);
    lastDispatch = std::max(lastDispatch, part->context.lastDispatch);
  }
  const uint64_t measured = uint64_t(1 + std::max<Cycle>(lastWrite, 0)) +
                            machine.latency.startBarrier + machine.latency.superlaneStagger;
  if (!log.decided(step))
    checkCount(step, measured);
  if (options.observer)
    options.observer->endStep(step, measured);
  for (std::unique_ptr<Part> &part : parts)
    part->pe->endStep();
  base += std::max(lastWrite, lastDispatch) +
          1000000; // far enough that nothing of this step seems recent in the next
  return measured;
}

/// S11: the header's count is only ever compared.
void System::checkCount(unsigned step, uint64_t measured) {
  if (measured == image.steps[step].predictedCycles)
    return;
  Violation v;
  v.invariant = Invariant::S11;
  v.step = step;
  v.cycle = Cycle(measured);
  v.unit = "system";
  v.message = "the step takes " + std::to_string(measured) + " cycles; the image says " +
              std::to_string(image.steps[step].predictedCycles);
  log.add(std::move(v));
}

void System::finishCounters() {
  for (std::unique_ptr<Part> &part : parts) {
    part->context.counters.streamVectors = part->context.streams.injected();
    part->context.counters.streamHops = part->context.streams.vectorHops();
  }
}

void System::read(unsigned pe, Hemisphere h, unsigned s, uint32_t row, std::span<uint8_t> bytes) {
  assert(bytes.size() == machine.lanes() && row < machine.rowsPerSlice());
  slice(pe, h, s).readRow(row, bytes.data());
}

void System::sortBlocks() {
  blockOrder.resize(image.blocks.size());
  std::iota(blockOrder.begin(), blockOrder.end(), 0u);
  std::sort(blockOrder.begin(), blockOrder.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(placeOf(image.blocks[a]), a) < std::tuple(placeOf(image.blocks[b]), b);
  });
}

/// The block that holds a row in the present step, or the number of blocks when none does.
uint32_t System::blockOf(unsigned pe, Hemisphere h, unsigned s, uint32_t row) const {
  auto after = std::upper_bound(
      blockOrder.begin(), blockOrder.end(), std::tuple(pe, h, s, row),
      [&](const auto &place, uint32_t b) { return place < placeOf(image.blocks[b]); });
  while (after != blockOrder.begin()) {
    const Block &b = image.blocks[*--after];
    if (b.pe != pe || b.hemisphere != h || b.slice != s)
      break;
    const Region &tensor =
        image.tensors[b.tensor]; // rows may belong to another one in another step
    if (row < b.row + b.rows && tensor.step0 <= currentStep && currentStep <= tensor.step1)
      return *after;
  }
  return uint32_t(image.blocks.size());
}

std::span<uint8_t> System::write(unsigned pe, Hemisphere h, unsigned s, uint32_t row) {
  assert(row < machine.rowsPerSlice());
  if (blockOrder.empty())
    sortBlocks();
  uint32_t block = blockOf(pe, h, s, row);
  std::optional<Tag> tag;
  if (block < image.blocks.size())
    tag = Tag::initial(block, row - image.blocks[block].row);
  return {slice(pe, h, s).hostRow(row, tag), machine.lanes()};
}

} // namespace millrace::sim
