// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writing a placed piece into the program: stream and ALU names, producer annotations, the state
// left behind.
#include "compiler/Schedule/Annotate.h"
#include "compiler/Schedule/Piece.h"

#include <algorithm>

namespace millrace::schedule {
namespace {

Operand &operandOf(Instruction &i, ProducerOf of) {
  return of == ProducerOf::A ? i.a : of == ProducerOf::B ? i.b : i.c;
}

/// Origins of a burst whose elements match a producer's one by one.
std::vector<Origin> identity(const Instruction &consumer, uint32_t producer) {
  std::vector<Origin> origins(consumer.elements());
  for (uint32_t e = 0; e < origins.size(); ++e)
    origins[e] = {producer, e, 0};
  return origins;
}

} // namespace

void Piece::emit(Cycle start) {
  const Machine &m = program.machine;
  for (Burst &b : bursts) {
    b.proto.cycle = uint64_t(start + b.at);
    if (b.onAlu)
      b.unit.index = alus[b.alu].chosen;
    b.proto.queue = uint16_t(m.queue(b.unit));
    PeProgram &pe = program.pes[b.pe];
    b.id = uint32_t(pe.instructions.size());
    pe.instructions.emplace_back();
    pe.producers.emplace_back();
    pe.placements.push_back(kNobody);
  }
  for (const Stream &s : streams) {
    for (const Feed &f : s.feeds) {
      Instruction &i = bursts[f.burst].proto;
      i.out[f.outSlot] = m.stream(s.hemisphere, s.direction, s.base + f.byte);
    }
    for (const Tap &t : s.taps) {
      Operand &o = operandOf(bursts[t.burst].proto, t.operand);
      o.kind = OperandKind::Stream;
      o.width = uint8_t(t.width);
      o.index = m.stream(s.hemisphere, s.direction, s.base + t.byte);
    }
  }
  for (const Chain &l : latches)
    operandOf(bursts[l.burst].proto, l.operand).kind = OperandKind::Latch;
  for (const Chain &c : chains) {
    Operand &o = operandOf(bursts[c.burst].proto, c.operand);
    o.kind = OperandKind::Alu;
    o.width = 0;
    o.index = uint16_t(bursts[c.from].unit.index);
  }
  for (Burst &b : bursts)
    annotateState(b);
  for (const Stream &s : streams)
    annotateStreams(s);
  annotateChains();
  for (Burst &b : bursts)
    updateState(b);
  for (const Burst &b : bursts)
    program.pes[b.pe].instructions[b.id] = b.proto;
}

/// Who made what a Read finds in memory.
void Piece::annotateState(const Burst &b) {
  const Instruction &i = b.proto;
  PeState &state = program.state[b.pe];
  if (i.opcode == Opcode::Read) {
    std::vector<Origin> origins;
    origins.reserve(i.elements());
    forEachElement(i, [&](unsigned i0, unsigned i1) {
      const RowState &row = state.row(b.unit.hemisphere, b.unit.index, elementAddress(i, i0, i1));
      if (row.origin.instruction == kNoOrigin)
        refuse("the compiler lets " + program.machine.queueName(i.queue) + " read row " +
               std::to_string(elementAddress(i, i0, i1)) +
               ", which nothing has written; please report it with the model and the machine");
      origins.push_back(row.origin);
    });
    annotate(producersOf(b), ProducerOf::Memory, kAllBytes, b.pe, i.n0, i.n1, origins);
  }
}

/// Elements of taps and feeds meet on diagonals.
void Piece::annotateStreams(const Stream &s) {
  for (unsigned byte = 0; byte < s.width; ++byte) {
    const Rectangle &r = s.needs[byte];
    if (r.d1 < r.d0)
      continue;
    std::vector<Origin> onDiagonal(size_t(r.d1 - r.d0 + 1), Origin{kNoOrigin, 0, 0});
    bool wholeGroup = true;
    unsigned producerPe = s.pe;
    for (const Feed &f : s.feeds) {
      if (byte < f.byte || byte >= f.byte + f.width)
        continue;
      const Burst &from = bursts[f.burst];
      producerPe = from.pe;
      wholeGroup &= f.width > 1;
      const Instruction &i = from.proto;
      const bool running = i.opcode == Opcode::Alu && (i.flags & AluFlag::Running);
      uint32_t element = 0;
      forEachElement(i, [&](unsigned i0, unsigned i1) {
        if (!running || i1 + 1u == i.n1) {
          Cycle d = diagonal(s, from.at + f.delay + elementCycle(i, i0, i1), f.position);
          onDiagonal[size_t(d - r.d0)] = {from.id, element, 0};
        }
        ++element;
      });
    }
    for (const Tap &t : s.taps) {
      if (byte < t.byte || byte >= t.byte + t.width || (wholeGroup && byte != t.byte))
        continue;
      const Burst &to = bursts[t.burst];
      std::vector<Origin> origins;
      origins.reserve(to.proto.elements());
      forEachElement(to.proto, [&](unsigned i0, unsigned i1) {
        Cycle d = diagonal(s, to.at + elementCycle(to.proto, i0, i1), t.position);
        if (onDiagonal[size_t(d - r.d0)].instruction == kNoOrigin)
          refuse("the compiler lets " + program.machine.queueName(to.proto.queue) +
                 " sample a stream that is empty there; please report it with the model and the "
                 "machine");
        origins.push_back(onDiagonal[size_t(d - r.d0)]);
      });
      annotate(producersOf(to), t.operand, wholeGroup ? kAllBytes : uint8_t(byte - t.byte),
               producerPe, to.proto.n0, to.proto.n1, origins);
    }
  }
}

void Piece::annotateChains() {
  for (const Chain &c : chains) {
    const Burst &to = bursts[c.burst], &from = bursts[c.from];
    std::vector<Origin> origins = identity(to.proto, from.id);
    if (from.proto.flags & AluFlag::Running)
      for (Origin &o : origins) // only the last round of a running operation can be taken
        o.element += from.proto.elements() - from.proto.n0;
    annotate(producersOf(to), c.operand, kAllBytes, to.pe, to.proto.n0, to.proto.n1, origins);
  }
  for (const Chain &l : latches) {
    const Burst &to = bursts[l.burst];
    const std::vector<Origin> origins(to.proto.elements(), Origin{bursts[l.from].id, 0, 0});
    annotate(producersOf(to), l.operand, kAllBytes, to.pe, to.proto.n0, to.proto.n1, origins);
  }
  for (const Sum &s : sums) {
    const Burst &to = bursts[s.accumulate];
    annotate(producersOf(to), ProducerOf::Sum, kAllBytes, to.pe, to.proto.n0, to.proto.n1,
             s.partial);
  }
  for (const Weights &w : installed) {
    const Burst &to = bursts[w.activate];
    annotate(producersOf(to), ProducerOf::Weights, uint8_t(w.plane), to.pe,
             unsigned(w.groups.size()), 1, w.groups);
  }
  for (const Pair &p : products)
    annotate(producersOf(bursts[p.consumer]), ProducerOf::Product, kAllBytes, bursts[p.consumer].pe,
             bursts[p.consumer].proto.n0, bursts[p.consumer].proto.n1,
             identity(bursts[p.consumer].proto, bursts[p.producer].id));
  for (const Pair &p : links)
    annotate(producersOf(bursts[p.consumer]), ProducerOf::Link, kAllBytes, bursts[p.producer].pe,
             bursts[p.consumer].proto.n0, bursts[p.consumer].proto.n1,
             identity(bursts[p.consumer].proto, bursts[p.producer].id));
}

void Piece::updateState(const Burst &b) {
  const Instruction &i = b.proto;
  PeState &state = program.state[b.pe];
  const Cycle t = Cycle(i.cycle);
  uint32_t element = 0;
  switch (i.opcode) {
  case Opcode::Read:
    forEachElement(i, [&](unsigned i0, unsigned i1) {
      RowState &row = state.row(b.unit.hemisphere, b.unit.index, elementAddress(i, i0, i1));
      row.lastRead = std::max(row.lastRead, t + elementCycle(i, i0, i1));
    });
    program.noteAccess(i.tensor, t, t + lastElementCycle(i));
    break;
  case Opcode::Gather: { // any row of its tensor, at any of its cycles
    const Cycle last = t + lastElementCycle(i);
    for (unsigned address = i.address; address <= program.lastRowOf(i); ++address) {
      RowState &row = state.row(b.unit.hemisphere, b.unit.index, address);
      row.lastRead = std::max(row.lastRead, last);
    }
    program.noteAccess(i.tensor, t, last);
    break;
  }
  case Opcode::Write: {
    const Cycle slot = t + program.timing.writeSlot();
    forEachElement(i, [&](unsigned i0, unsigned i1) {
      RowState &row = state.row(b.unit.hemisphere, b.unit.index, elementAddress(i, i0, i1));
      row.writeSlot = slot + elementCycle(i, i0, i1);
      row.origin = {b.id, element++, 0};
    });
    program.noteAccess(i.tensor, slot, slot + lastElementCycle(i));
    program.noteWrite(slot + lastElementCycle(i));
    break;
  }
  case Opcode::Install: {
    BufferState &buffer = state.buffer(b.unit.hemisphere, b.unit.index, i.buffer);
    forEachElement(i, [&](unsigned i0, unsigned i1) {
      unsigned group = elementAddress(i, i0, i1);
      buffer.installed[group] = t + elementCycle(i, i0, i1);
    });
    break;
  }
  case Opcode::Activate:
    for (unsigned plane = 0; plane < program.machine.mxm.format(i.format)->planes; ++plane) {
      BufferState &buffer = state.buffer(b.unit.hemisphere, b.unit.index + plane, i.buffer);
      for (unsigned group = i.g0; group < i.g1; ++group)
        buffer.lastActivate[group] = std::max(buffer.lastActivate[group], t + lastElementCycle(i));
    }
    break;
  case Opcode::Accumulate:
    forEachElement(i, [&](unsigned i0, unsigned i1) {
      state.accumulator(b.unit.hemisphere, b.unit.index, elementAddress(i, i0, i1)) =
          t + elementCycle(i, i0, i1);
    });
    break;
  default:
    break;
  }
}

} // namespace millrace::schedule
