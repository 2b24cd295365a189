// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Building a piece and finding its place.
#include "compiler/Schedule/Piece.h"

#include <algorithm>
#include <numeric>

namespace millrace::schedule {

Piece::StreamVar Piece::stream(unsigned pe, Hemisphere h, Direction d, unsigned width) {
  Stream s{};
  s.pe = pe;
  s.hemisphere = h;
  s.direction = d;
  s.width = width;
  streams.push_back(std::move(s));
  return unsigned(streams.size() - 1);
}

Piece::AluVar Piece::alu(unsigned pe) {
  alus.push_back({pe});
  return unsigned(alus.size() - 1);
}

Piece::BurstId Piece::add(unsigned pe, Unit unit, Instruction proto, Cycle at) {
  Burst b;
  b.pe = pe;
  b.unit = unit;
  b.proto = proto;
  b.at = at;
  bursts.push_back(b);
  return unsigned(bursts.size() - 1);
}

Piece::BurstId Piece::addAlu(AluVar alu, Instruction proto, Cycle at) {
  BurstId id = add(alus[alu].pe, {UnitKind::Alu, Hemisphere::West, 0}, proto, at);
  bursts[id].onAlu = true;
  bursts[id].alu = alu;
  alus[alu].at = std::min(alus[alu].at, at);
  // Results leave one at a time, too: a slow operation keeps its ALU from faster ones behind it.
  const Cycle slower = proto.opcode == Opcode::Alu
                           ? program.timing.aluOp(AluOp(proto.function)) - program.timing.leastOp()
                           : 0;
  if (const Cycle last = at + lastElementCycle(proto) + slower; last >= alus[alu].last) {
    alus[alu].last = last;
    alus[alu].lastBurst = id;
  }
  return id;
}

void Piece::feed(BurstId burst, unsigned outSlot, StreamVar stream, unsigned byte, unsigned width,
                 unsigned position, Cycle delay) {
  streams[stream].feeds.push_back({burst, byte, width, position, delay, outSlot});
}

void Piece::tap(BurstId burst, ProducerOf operand, StreamVar stream, unsigned byte, unsigned width,
                unsigned position) {
  streams[stream].taps.push_back({burst, operand, byte, width, position});
}

void Piece::chain(BurstId burst, ProducerOf operand, BurstId from) {
  chains.push_back({burst, operand, from});
}

void Piece::latch(BurstId burst, ProducerOf operand, BurstId from) {
  latches.push_back({burst, operand, from});
}

void Piece::sum(BurstId accumulate, std::vector<Origin> partial) {
  sums.push_back({accumulate, std::move(partial)});
}

void Piece::weights(BurstId activate, unsigned plane, std::vector<Origin> groups) {
  installed.push_back({activate, plane, std::move(groups)});
}

void Piece::product(BurstId accumulate, BurstId activate) {
  products.push_back({accumulate, activate});
}

void Piece::link(BurstId receive, BurstId send) { links.push_back({receive, send}); }

Cycle Piece::diagonal(const Stream &s, Cycle cycle, unsigned position) const {
  Cycle reach = program.timing.hops(0, position);
  return s.direction == Direction::Outward ? cycle - reach : cycle + reach;
}

void Piece::collectHolds(BurstId id) {
  const Burst &b = bursts[id];
  const Machine &m = program.machine;
  const Resources resources(m);
  PeOccupancy &o = program.occupancy[b.pe];
  Cycle length = lastElementCycle(b.proto) + 1;
  if (b.unit.kind == UnitKind::Send) // the link carries the last vector for a whole slot (S9)
    for (const Link &link : m.links)
      if (link.from == b.pe && link.port == b.unit.index)
        length += Cycle(link.slot) - 1;
  if (b.unit.kind != UnitKind::Mem) {
    if (b.onAlu)
      return; // held as a whole, chosen at placement
    const auto hold = [&](unsigned queue) {
      const uint32_t port = resources.unit(queue);
      holds.push_back({&o.units[queue], b.at, length, id, port, *resources.causeOf(port)});
    };
    hold(m.queue(b.unit));
    const MxmFormatSpec *format =
        b.proto.opcode == Opcode::Activate || b.proto.opcode == Opcode::Accumulate
            ? m.mxm.format(b.proto.format)
            : nullptr;
    for (unsigned k = 1; format && k < format->planes; ++k)
      hold(m.queue({b.unit.kind, b.unit.hemisphere, b.unit.index + k}));
    return;
  }
  if (program.ignoresMemory)
    return;
  const size_t slice = size_t(b.unit.hemisphere) * m.memory.slices + b.unit.index;
  const bool writes = b.proto.opcode == Opcode::Write;
  const uint32_t readPort = resources.readPort(b.unit.hemisphere, b.unit.index),
                 writePort = resources.writePort(b.unit.hemisphere, b.unit.index);
  holds.push_back({writes ? &o.writePorts[slice] : &o.readPorts[slice], b.at, length, id,
                   writes ? writePort : readPort, writes ? Cause::WritePort : Cause::ReadPort});
  const unsigned first = b.proto.address / m.memory.rowsPerBank;
  const unsigned last = b.proto.opcode == Opcode::Gather
                            ? (program.lastRowOf(b.proto)) / m.memory.rowsPerBank
                            : first; // which rows a Gather takes is data
  for (unsigned bank = first; bank <= last; ++bank)
    holds.push_back({&o.banks[slice * m.memory.banks + bank],
                     b.at + (writes ? program.timing.writeSlot() : 0), length, id,
                     resources.bank(b.unit.hemisphere, b.unit.index, bank), Cause::Bank});
  // The port of its own kind keeps others of that kind away.
  dispatchNeeds.push_back(
      {&o.dispatches[m.queue(b.unit)], b.at, id, writes ? readPort : writePort});
}

void Piece::collectNeeds() {
  for (BurstId b = 0; b < bursts.size(); ++b)
    collectHolds(b);
  for (Stream &s : streams) {
    s.needs.assign(s.width, Rectangle{INT64_MAX, INT64_MIN, UINT16_MAX, 0});
    auto cover = [&](unsigned byte, Cycle d0, Cycle d1, unsigned position) {
      Rectangle &r = s.needs[byte];
      r.d0 = std::min(r.d0, d0);
      r.d1 = std::max(r.d1, d1);
      r.p0 = std::min<uint16_t>(r.p0, uint16_t(position));
      r.p1 = std::max<uint16_t>(r.p1, uint16_t(position));
    };
    for (const Feed &f : s.feeds) {
      Cycle d = diagonal(s, bursts[f.burst].at + f.delay, f.position);
      for (unsigned k = 0; k < f.width; ++k)
        cover(f.byte + k, d, d + lastElementCycle(bursts[f.burst].proto), f.position);
    }
    for (const Tap &t : s.taps) {
      Cycle d = diagonal(s, bursts[t.burst].at, t.position);
      for (unsigned k = 0; k < t.width; ++k)
        cover(t.byte + k, d, d + lastElementCycle(bursts[t.burst].proto), t.position);
    }
  }
}

bool Piece::excludeEachOther(const Stream &x, const Stream &y) const {
  if (x.pe != y.pe || x.hemisphere == y.hemisphere || x.direction != y.direction)
    return false;
  for (const Tap &t : x.taps)
    for (const Tap &u : y.taps)
      if (t.burst == u.burst && bursts[t.burst].onAlu)
        return true;
  return false;
}

/// How much later the stream's bytes fit on streams from `base` on, given the first `chosen` of
/// streamOrder.
Cycle Piece::shiftFor(const Stream &s, unsigned base, size_t chosen, Cycle start,
                      bool alone) const {
  const Machine &m = program.machine;
  auto rectangle = [&](const Stream &of, unsigned byte) {
    Rectangle r = of.needs[byte];
    r.d0 += start;
    r.d1 += start;
    return r;
  };
  for (size_t k = 0; k < chosen; ++k) {
    const Stream &other = streams[streamOrder[k]];
    if (base < other.base + other.width && other.base < base + s.width &&
        excludeEachOther(s, other))
      return kNoShift;
  }
  Cycle shift = 0;
  for (unsigned byte = 0; byte < s.width; ++byte) {
    const Rectangle r = rectangle(s, byte);
    if (!alone)
      shift = std::max(shift, program.occupancy[s.pe]
                                  .streams[m.stream(s.hemisphere, s.direction, base + byte)]
                                  .shiftNeeded(r));
    for (size_t k = 0; k < chosen && !shift; ++k) {
      const Stream &other = streams[streamOrder[k]];
      if (other.pe == s.pe && other.hemisphere == s.hemisphere && other.direction == s.direction &&
          base + byte >= other.base && base + byte < other.base + other.width &&
          rectangle(other, base + byte - other.base).overlaps(r))
        return kNoShift;
    }
  }
  return shift;
}

Cycle Piece::misfitStreams(Cycle start, bool alone, unsigned *which) {
  for (size_t k = 0; k < streamOrder.size(); ++k) {
    Stream &s = streams[streamOrder[k]];
    Cycle least = kNoShift;
    const unsigned groups = program.machine.streams / s.width;
    for (unsigned g = 0; g < groups && least != 0; ++g) {
      // Wide groups from the top, narrow ones from the bottom, so that they seldom meet.
      const unsigned base = (s.width >= 8 ? groups - 1 - g : g) * s.width;
      const Cycle shift = shiftFor(s, base, k, start, alone);
      if (shift < least) {
        least = shift;
        s.base = base;
      }
    }
    if (!least)
      continue;
    if (which)
      *which = streamOrder[k];
    return least;
  }
  return 0;
}

Cycle Piece::misfitAlus(Cycle start, bool alone, unsigned *which) {
  for (size_t k = 0; k < aluOrder.size(); ++k) {
    AluNeed &need = alus[aluOrder[k]];
    const Cycle length = need.last - need.at + 1;
    Cycle least = kNoShift;
    for (unsigned a = 0; a < program.alus && least != 0; ++a) {
      bool taken = false;
      for (size_t u = 0; u < k && !taken; ++u) {
        const AluNeed &other = alus[aluOrder[u]];
        taken = other.pe == need.pe && other.chosen == a && other.at <= need.last &&
                need.at <= other.last;
      }
      if (taken)
        continue;
      const unsigned queue = program.machine.queue({UnitKind::Alu, Hemisphere::West, a});
      const Cycle at = start + need.at;
      const Cycle wait =
          alone ? 0 : program.occupancy[need.pe].units[queue].firstFree(at, length) - at;
      if (wait < least) {
        least = wait;
        need.chosen = a;
      }
    }
    if (!least)
      continue;
    if (which)
      *which = aluOrder[k];
    return least;
  }
  return 0;
}

Error Piece::tooManyStreams(const Stream &last) const {
  unsigned together = 0;
  for (const Stream &s : streams)
    if (s.pe == last.pe && s.hemisphere == last.hemisphere && s.direction == last.direction)
      for (unsigned byte = 0; byte < s.width; ++byte)
        together += s.needs[byte].d0 <= last.needs[0].d1 && last.needs[0].d0 <= s.needs[byte].d1;
  return Error{"bursts that belong together need " + std::to_string(together) + " " +
               (last.direction == Direction::Inward ? "inward" : "outward") +
               " streams of one hemisphere at once, in aligned groups; the machine has streams = " +
               std::to_string(program.machine.streams)};
}

Error Piece::tooManyAlus() const {
  std::ptrdiff_t most = 0;
  for (const AluNeed &need : alus)
    most = std::max(most, std::count_if(alus.begin(), alus.end(), [&](const AluNeed &other) {
                      return other.pe == need.pe && other.at <= need.at && need.at <= other.last;
                    }));
  return Error{"a kernel's epilogue needs " + std::to_string(most) + " ALUs at once, the VXM has " +
               std::to_string(program.alus) +
               "; use a machine with more, or cut the node into several"};
}

/// As given if that serves; else by their first cycle, which takes no more than are held at once:
/// first fit colours interval graphs optimally in that order.
Status Piece::orderAlus() {
  aluOrder.resize(alus.size());
  std::iota(aluOrder.begin(), aluOrder.end(), 0u);
  if (misfitAlus(0, /*alone=*/true)) {
    std::stable_sort(aluOrder.begin(), aluOrder.end(),
                     [&](unsigned x, unsigned y) { return alus[x].at < alus[y].at; });
    if (misfitAlus(0, /*alone=*/true))
      return tooManyAlus();
  }
  return Success{};
}

bool Piece::findsAlus() { return bool(orderAlus()); }

/// ALUs as above; streams as given if that serves, else the widest first.
Status Piece::orderChoices() {
  streamOrder.resize(streams.size());
  std::iota(streamOrder.begin(), streamOrder.end(), 0u);
  if (Status s = orderAlus(); !s)
    return s;
  if (misfitStreams(0, /*alone=*/true)) {
    std::stable_sort(streamOrder.begin(), streamOrder.end(),
                     [&](unsigned x, unsigned y) { return streams[x].width > streams[y].width; });
    if (misfitStreams(0, /*alone=*/true))
      return tooManyStreams(streams[streamOrder.back()]);
  }
  return Success{};
}

bool Piece::reads(unsigned pe, Hemisphere h, unsigned slice) const {
  return std::any_of(bursts.begin(), bursts.end(), [&](const Burst &b) {
    return b.pe == pe && (b.proto.opcode == Opcode::Read || b.proto.opcode == Opcode::Gather) &&
           b.unit.kind == UnitKind::Mem && b.unit.hemisphere == h && b.unit.index == slice;
  });
}

bool Piece::touches(unsigned pe, Hemisphere h, unsigned slice, Cycle at) const {
  return std::any_of(bursts.begin(), bursts.end(), [&](const Burst &b) {
    return b.pe == pe && b.unit.kind == UnitKind::Mem && b.unit.hemisphere == h &&
           b.unit.index == slice && b.at <= at && at <= b.at + lastElementCycle(b.proto);
  });
}

bool Piece::clashes() const {
  std::vector<std::pair<unsigned, Cycle>> dispatches;
  for (const Burst &b : bursts)
    if (b.unit.kind == UnitKind::Mem)
      dispatches.push_back({b.pe * program.machine.queues() + program.machine.queue(b.unit), b.at});
  std::sort(dispatches.begin(), dispatches.end());
  return std::adjacent_find(dispatches.begin(), dispatches.end()) != dispatches.end();
}

Status Piece::checkHolds() const {
  std::vector<const Hold *> sorted;
  for (const Hold &h : holds)
    sorted.push_back(&h);
  std::sort(sorted.begin(), sorted.end(), [](const Hold *x, const Hold *y) {
    return std::pair(x->set, x->at) < std::pair(y->set, y->at);
  });
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i]->set == sorted[i - 1]->set &&
        sorted[i]->at < sorted[i - 1]->at + sorted[i - 1]->length) {
      program.crowded = true;
      const Burst &b = bursts[sorted[i]->burst], &other = bursts[sorted[i - 1]->burst];
      return Error{
          "two bursts that belong together need " +
          program.machine.queueName(program.machine.queue(b.unit)) + " at once (" +
          std::string(info(other.proto.opcode).mnemonic) + " of row " +
          std::to_string(other.proto.address) + ", " + std::string(info(b.proto.opcode).mnemonic) +
          " of row " + std::to_string(b.proto.address) +
          "); the machine has too few slices or banks for this kernel; use a machine with more, or "
          "cut the node into several"};
    }
  return Success{};
}

} // namespace millrace::schedule
