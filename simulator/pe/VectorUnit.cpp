// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/pe/VectorUnit.h"

#include "arch/isa/semantics/Alu.h"
#include "arch/isa/semantics/Losses.h"

#include <bit>

namespace millrace::sim {

VectorUnit::VectorUnit(const sc_core::sc_module_name &name, PeContext &context)
    : UnitModule(name, context),
      ring(std::bit_ceil(context.timing.longestAluOp + context.timing.aluChain + 1u)),
      alus(context.machine.vxm.alus) {
  const unsigned lanes = context.machine.lanes();
  for (AluState &alu : alus) {
    alu.exits.resize(size_t(ring));
    alu.running.resize(context.machine.vxm.runningAccumulators);
    alu.latch.resize(lanes);
    alu.immediate.resize(lanes);
  }
  for (std::vector<uint32_t> *scratch : {&scratchA, &scratchB, &scratchC})
    scratch->resize(lanes);
}

/// One stream group may not enter one ALU from both sides; a running burst has at most as many
/// accumulators as an ALU.
void VectorUnit::dispatch(Burst &burst) {
  const Instruction &i = *burst.instruction;
  if (i.opcode == Opcode::Latch)
    return;
  const Machine &m = context.machine;
  const Operand *operands[] = {&i.a, &i.b, &i.c};
  for (const Operand *x : operands)
    for (const Operand *y : operands)
      if (x->kind == OperandKind::Stream && y->kind == OperandKind::Stream &&
          m.hemisphereOf(x->index) < m.hemisphereOf(y->index) &&
          m.directionOf(x->index) == m.directionOf(y->index)) {
        unsigned first = m.indexOf(x->index), second = m.indexOf(y->index);
        if (first < second + y->width && second < first + x->width)
          context.report(Invariant::S2, burst.start, burst, [&] {
            return "stream group " + std::to_string(first) +
                   " enters this ALU from both hemispheres";
          });
      }
  if ((i.flags & AluFlag::Running) && burst.n0 > m.vxm.runningAccumulators)
    context.report(Invariant::S8, burst.start, burst, [&] {
      return "needs " + std::to_string(burst.n0) + " running accumulators; the ALU has " +
             std::to_string(m.vxm.runningAccumulators);
    });
}

const uint32_t *VectorUnit::streamOperand(Burst &burst, const Operand &o, ProducerOf of,
                                          unsigned cursorSlot, std::vector<uint32_t> &scratch,
                                          Cycle now) {
  VectorRef group[4] = {};
  for (unsigned b = 0; b < o.width; ++b)
    group[b] = context.sample(burst, of, cursorSlot + b, b, StreamId(o.index + b), 0, now);
  return context.values ? context.pool.lanesOf(group, o.width, scratch.data()) : nullptr;
}

const uint32_t *VectorUnit::chained(Burst &burst, const Operand &o, ProducerOf of,
                                    unsigned cursorSlot, Cycle now) {
  const Exit &exit = alus[o.index].exits[now & (ring - 1)];
  const bool there = exit.taken == now;
  if (context.checks(burst)) {
    if (!there || !isMeant(burst, of, cursorSlot, 0, exit.tag, context.pe))
      context.report(Invariant::S4, now, burst, [&] {
        const auto expected = meant(burst, of, cursorSlot, 0);
        return "the operand chained from alu." + std::to_string(o.index) + " should be " +
               (expected ? context.describe(expected->tag) : std::string("annotated")) + ", but " +
               context.describe(there ? exit.tag : Tag()) + " leaves it";
      });
  } else if (!there) {
    context.report(Invariant::S4, now, burst, [&] {
      return "nothing leaves alu." + std::to_string(o.index) + " for this operand";
    });
  }
  if (!context.values)
    return nullptr;
  if (!there) {
    scratchC.assign(scratchC.size(), 0);
    return scratchC.data();
  }
  return context.pool.wide(exit.value);
}

void VectorUnit::checkLatch(const AluState &alu, Burst &burst, ProducerOf of, unsigned cursorSlot,
                            Cycle now) {
  if (alu.latchedBy.empty()) {
    context.report(Invariant::S4, now, burst, [] { return "the latch was never loaded"; });
  } else if (context.checks(burst)) {
    if (!isMeant(burst, of, cursorSlot, 0, alu.latchedBy, context.pe))
      context.report(Invariant::S4, now, burst, [&] {
        const auto expected = meant(burst, of, cursorSlot, 0);
        return "the latch should hold what " +
               (expected ? context.describe(expected->tag) : std::string("an annotated Latch")) +
               " loaded, but holds what " + context.describe(alu.latchedBy) + " did";
      });
  }
}

const uint32_t *VectorUnit::operand(AluState &alu, Burst &burst, const Operand &o, ProducerOf of,
                                    unsigned cursorSlot, std::vector<uint32_t> &scratch,
                                    Cycle now) {
  switch (o.kind) {
  case OperandKind::None:
    return nullptr;
  case OperandKind::Stream:
    return streamOperand(burst, o, of, cursorSlot, scratch, now);
  case OperandKind::Alu:
    return chained(burst, o, of, cursorSlot, now);
  case OperandKind::Latch:
    checkLatch(alu, burst, of, cursorSlot, now);
    return alu.latch.data();
  case OperandKind::Immediate:
    if (alu.immediateBits != burst.instruction->immediate) {
      alu.immediateBits = burst.instruction->immediate;
      alu.immediate.assign(alu.immediate.size(), alu.immediateBits);
    }
    return alu.immediate.data();
  }
  return nullptr;
}

void VectorUnit::latch(AluState &alu, Burst &burst, Cycle now) {
  const uint32_t *lanes =
      operand(alu, burst, burst.instruction->a, ProducerOf::A, slot::A, scratchA, now);
  if (context.values && lanes)
    alu.latch.assign(lanes, lanes + alu.latch.size());
  alu.latchedBy = burst.tag();
}

/// The running form (R9); true when this element leaves the ALU.
bool VectorUnit::run(AluState &alu, Burst &burst, const uint32_t *a, uint32_t *out, Cycle now) {
  Running &running = alu.running[burst.i0 % alu.running.size()];
  const AluOp op = AluOp(burst.instruction->function);
  const Cycle latency = context.timing.aluOp[unsigned(op)];
  if (burst.i1 > 0 && running.at + latency > now)
    context.report(Invariant::S8, now, burst, [&] {
      return "running accumulator " + std::to_string(burst.i0) + " was used " +
             std::to_string(now - running.at) + " cycles ago and needs " + std::to_string(latency);
    });
  running.at = now;
  if (context.values) {
    if (burst.i1 == 0)
      running.lanes.assign(a, a + context.pool.lanes());
    else
      semantics::applyAlu(op, running.lanes.data(), a, nullptr, running.lanes.data(),
                          context.pool.lanes());
    std::copy(running.lanes.begin(), running.lanes.end(), out);
  }
  return burst.lastOuter();
}

void VectorUnit::compute(const Instruction &i, const uint32_t *a, const uint32_t *b,
                         const uint32_t *c, uint32_t *out) {
  const size_t lanes = context.pool.lanes();
  const auto op = AluOp(i.function);
  semantics::applyAlu(op, a, b, c, out, lanes);
  if (const auto end = semantics::rangeEndOf(op))
    if (const size_t beyond = semantics::countBeyond(*end, a, lanes))
      context.counters.lost[{i.provenance, i.function}] += beyond;
}

void VectorUnit::element(Burst &burst, Cycle now) {
  const Instruction &i = *burst.instruction;
  AluState &alu = alus[context.unitOf(i.queue).index];
  if (i.opcode == Opcode::Latch)
    return latch(alu, burst, now);
  const uint32_t *a = operand(alu, burst, i.a, ProducerOf::A, slot::A, scratchA, now);
  const uint32_t *b = operand(alu, burst, i.b, ProducerOf::B, slot::B, scratchB, now);
  const uint32_t *c = operand(alu, burst, i.c, ProducerOf::C, slot::C, scratchC, now);
  context.counters.aluLanes += context.machine.lanes();
  VectorRef value = context.values ? context.pool.acquireWide() : 0;
  uint32_t *out = context.values ? context.pool.wideStorage(value) : nullptr;
  bool leaves = true;
  if (i.flags & AluFlag::Running)
    leaves = run(alu, burst, a, out, now);
  else if (context.values)
    compute(i, a, b, c, out);
  if (leaves)
    leave(alu, burst, value, now);
  context.pool.release(value);
}

void VectorUnit::leave(AluState &alu, Burst &burst, VectorRef value, Cycle now) {
  const Instruction &i = *burst.instruction;
  const AluOp op = AluOp(i.function);
  const Cycle taken = now + context.timing.aluOp[unsigned(op)] + context.timing.aluChain;
  Exit &exit = alu.exits[taken & (ring - 1)];
  if (exit.taken == taken)
    context.report(Invariant::S8, now, burst, [&] {
      return "its result leaves the ALU in the same cycle as " + context.describe(exit.tag);
    });
  context.pool.release(exit.value);
  context.pool.retain(value);
  exit = {taken, burst.tag(), value};
  for (StreamId out : i.out)
    if (out != kNoStream)
      for (unsigned b = 0; b < i.outWidth; ++b) {
        context.pool.retain(value);
        context.inject(burst, now + context.timing.aluResult(op), StreamId(out + b), 0,
                       context.values ? VectorPool::byteOf(value, b) : 0);
      }
}

void VectorUnit::endStep() {
  for (AluState &alu : alus) {
    for (Exit &exit : alu.exits) {
      context.pool.release(exit.value);
      exit = Exit();
    }
    alu.latchedBy = Tag();
    for (Running &running : alu.running)
      running.at = -1;
  }
}

} // namespace millrace::sim
