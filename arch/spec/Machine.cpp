// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/spec/Machine.h"

#include <array>
#include <bit>
#include <string_view>

namespace millrace {

const char *nameOf(ElementType type) {
  constexpr const char *names[kElementTypes] = {"int8", "uint8", "int32", "fp16",
                                                "bf16", "fp32",  "e4m3",  "e5m2"};
  return unsigned(type) < kElementTypes ? names[unsigned(type)] : "unknown";
}

const MxmFormatSpec *MxmSpec::format(ElementType type) const {
  for (const MxmFormatSpec &candidate : formats)
    if (candidate.type == type)
      return &candidate;
  return nullptr;
}

unsigned LatencySpec::aluLatency(const std::string &mnemonic) const {
  auto found = aluOps.find(mnemonic);
  return found == aluOps.end() ? aluOp : found->second;
}

namespace {

constexpr unsigned kMxmQueuesPerPlane = 3; // install, activate, accumulate

struct SxmKind {
  UnitKind kind;
  const char *name;
  unsigned SxmSpec::*count;
};

/// Queue order of the SXM units of one hemisphere.
constexpr std::array<SxmKind, 6> kSxmKinds{{
    {UnitKind::Transposer, "transposer", &SxmSpec::transposers},
    {UnitKind::Permutor, "permutor", &SxmSpec::permutors},
    {UnitKind::Distributor, "distributor", &SxmSpec::distributors},
    {UnitKind::Shifter, "shifter", &SxmSpec::shifters},
    {UnitKind::Selector, "selector", &SxmSpec::selectors},
    {UnitKind::Rotator, "rotator", &SxmSpec::rotators},
}};

/// First queue of each part of a PE, in the order that Machine::queues documents.
struct QueueMap {
  unsigned mem, mxm, sxm, alu, send, receive, end;

  explicit QueueMap(const Machine &machine) {
    mem = 0;
    mxm = mem + kHemispheres * machine.memory.slices;
    sxm = mxm + kHemispheres * machine.mxm.planes * kMxmQueuesPerPlane;
    alu = sxm + kHemispheres * machine.sxm.units();
    send = alu + machine.vxm.alus;
    receive = send + machine.c2c.ports;
    end = receive + machine.c2c.ports;
  }
};

/// The SXM kind, and the index within it, of the unit with this number within its hemisphere.
std::pair<const SxmKind *, unsigned> sxmUnit(const SxmSpec &sxm, unsigned number) {
  for (const SxmKind &entry : kSxmKinds) {
    if (number < sxm.*entry.count)
      return {&entry, number};
    number -= sxm.*entry.count;
  }
  return {nullptr, 0};
}

unsigned sxmNumber(const SxmSpec &sxm, UnitKind kind, unsigned index) {
  unsigned before = 0;
  for (const SxmKind &entry : kSxmKinds) {
    if (entry.kind == kind)
      return before + index;
    before += sxm.*entry.count;
  }
  return before;
}

/// FNV-1a, 64 bits, over the little-endian bytes of each number.
class Fnv {
public:
  void add(uint64_t number) {
    for (unsigned byte = 0; byte < 8; ++byte)
      state = (state ^ (number >> (8 * byte) & 0xff)) * 0x100000001b3;
  }
  void add(double number) { add(std::bit_cast<uint64_t>(number)); }
  void add(std::string_view text) {
    add(uint64_t(text.size()));
    for (unsigned char c : text)
      state = (state ^ c) * 0x100000001b3;
  }
  uint64_t value() const { return state; }

private:
  uint64_t state = 0xcbf29ce484222325;
};

} // namespace

unsigned Machine::queues() const { return QueueMap(*this).end; }

unsigned Machine::queue(Unit unit) const {
  const QueueMap map(*this);
  const unsigned side = unsigned(unit.hemisphere);
  switch (unit.kind) {
  case UnitKind::Mem:
    return map.mem + side * memory.slices + unit.index;
  case UnitKind::MxmInstall:
  case UnitKind::MxmActivate:
  case UnitKind::MxmAccumulate:
    return map.mxm + (side * mxm.planes + unit.index) * kMxmQueuesPerPlane +
           (unsigned(unit.kind) - unsigned(UnitKind::MxmInstall));
  case UnitKind::Alu:
    return map.alu + unit.index;
  case UnitKind::Send:
    return map.send + unit.index;
  case UnitKind::Receive:
    return map.receive + unit.index;
  default:
    return map.sxm + side * sxm.units() + sxmNumber(sxm, unit.kind, unit.index);
  }
}

Unit Machine::unit(unsigned queue) const {
  const QueueMap map(*this);
  if (queue < map.mxm)
    return {UnitKind::Mem, Hemisphere(queue / memory.slices), queue % memory.slices};
  if (queue < map.sxm) {
    const unsigned number = queue - map.mxm, plane = number / kMxmQueuesPerPlane;
    return {UnitKind(unsigned(UnitKind::MxmInstall) + number % kMxmQueuesPerPlane),
            Hemisphere(plane / mxm.planes), plane % mxm.planes};
  }
  if (queue < map.alu) {
    const unsigned number = queue - map.sxm;
    auto [kind, index] = sxmUnit(sxm, number % sxm.units());
    return {kind->kind, Hemisphere(number / sxm.units()), index};
  }
  if (queue < map.send)
    return {UnitKind::Alu, Hemisphere::West, queue - map.alu};
  if (queue < map.receive)
    return {UnitKind::Send, Hemisphere::West, queue - map.send};
  return {UnitKind::Receive, Hemisphere::West, queue - map.receive};
}

std::string Machine::queueName(unsigned queue) const {
  if (queue >= queues())
    return "queue." + std::to_string(queue);
  const Unit u = unit(queue);
  const std::string side = u.hemisphere == Hemisphere::West ? "w." : "e.";
  const std::string index = std::to_string(u.index);
  switch (u.kind) {
  case UnitKind::Mem:
    return "mem." + side + index;
  case UnitKind::MxmInstall:
    return "mxm." + side + index + ".install";
  case UnitKind::MxmActivate:
    return "mxm." + side + index + ".activate";
  case UnitKind::MxmAccumulate:
    return "mxm." + side + index + ".accumulate";
  case UnitKind::Alu:
    return "alu." + index;
  case UnitKind::Send:
    return "send." + index;
  case UnitKind::Receive:
    return "receive." + index;
  default:
    for (const SxmKind &entry : kSxmKinds)
      if (entry.kind == u.kind)
        return "sxm." + side + entry.name + "." + index;
    return "queue." + std::to_string(queue);
  }
}

uint64_t Machine::hash() const {
  Fnv fnv;
  auto add = [&fnv](auto... numbers) { (fnv.add(uint64_t(numbers)), ...); };
  fnv.add(clockHz);
  add(superlanes, lanesPerSuperlane, streams);
  add(memory.slices, memory.slicesPerRegister, memory.banks, memory.rowsPerBank);
  add(mxm.planes, mxm.rows, mxm.columns, mxm.columnsPerInstall, mxm.buffers, mxm.accumulatorRows);
  add(mxm.formats.size());
  for (const MxmFormatSpec &format : mxm.formats)
    add(format.type, format.planes, format.lanesPerPass);
  add(vxm.alus, vxm.runningAccumulators);
  for (const SxmKind &entry : kSxmKinds)
    add(sxm.*entry.count);
  add(c2c.ports, c2c.position);

  const LatencySpec &l = latency;
  add(l.hop, l.memRead, l.memGather, l.memWrite, l.readAfterWrite);
  add(l.aluEntry, l.aluOp, l.aluChain, l.aluExit, l.aluOps.size());
  for (const auto &[mnemonic, cycles] : l.aluOps) {
    fnv.add(std::string_view(mnemonic));
    add(cycles);
  }
  add(l.sxmEntry, l.transposer, l.transposerExit, l.distributor, l.permutor, l.shifter, l.selector,
      l.rotator);
  add(l.mxmEntry, l.mxmExit, l.mxmMultiply, l.mxmAccumulate, l.installToActivate,
      l.accumulateInterval);
  add(l.startBarrier, l.superlaneStagger);

  fnv.add(std::string_view(fabric.topology));
  add(fabric.rows, fabric.columns, fabric.link.latency, fabric.link.slot);
  fnv.add(host.bytesPerSecond);
  fnv.add(host.latencySeconds);
  add(links.size());
  for (const Link &link : links)
    add(link.from, link.to, link.port, link.toPort, link.latency, link.slot);
  return fnv.value();
}

} // namespace millrace
