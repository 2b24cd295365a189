// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/truth/Alus.h"

#include "arch/isa/semantics/Alu.h"
#include "arch/isa/semantics/Losses.h"

namespace millrace::sim::truth {

unsigned Alus::latency(const Work &work) const {
  return core.machine.latency.aluLatency(
      std::string(aluOpInfo(AluOp(work.what->function)).mnemonic));
}

/// R8: the same stream numbers may not enter one ALU from both hemispheres in one direction.
void Alus::dispatch(const Work &work) {
  const Machine &m = core.machine;
  const Operand *operands[] = {&work.what->a, &work.what->b, &work.what->c};
  for (const Operand *west : operands)
    for (const Operand *east : operands)
      for (unsigned w = 0; west->kind == OperandKind::Stream && w < west->width; ++w)
        for (unsigned e = 0; east->kind == OperandKind::Stream && e < east->width; ++e) {
          const StreamId x = StreamId(west->index + w), y = StreamId(east->index + e);
          if (m.hemisphereOf(x) == Hemisphere::West && m.hemisphereOf(y) == Hemisphere::East &&
              m.directionOf(x) == m.directionOf(y) && m.indexOf(x) == m.indexOf(y))
            core.report(Invariant::S2, work.start, work, "a stream enters from both hemispheres");
        }
}

Alus::Words Alus::fromStreams(const Work &work, const Operand &o, ProducerOf of, Cycle now) {
  Words joined = words();
  for (unsigned b = 0; b < o.width; ++b) {
    const Bytes byte = core.sample(work, of, b, StreamId(o.index + b), 0, now);
    for (size_t l = 0; l < joined.size(); ++l)
      joined[l] |= uint32_t((*byte)[l]) << 8 * b;
  }
  return joined;
}

/// T8.
Alus::Words Alus::fromAlu(const Work &work, const Operand &o, ProducerOf of, Cycle now) {
  const auto there = alus[o.index].leaving.find(now);
  const bool found = there != alus[o.index].leaving.end();
  bool right = found;
  if (found && core.checks(work)) {
    const std::optional<Meant> expected = meant(work, of, 0);
    right = expected && expected->pe == core.pe && expected->tag == there->second.tag;
  }
  if (!right)
    core.report(Invariant::S4, now, work, "a chained operand is not what is meant");
  return found ? there->second.words : words();
}

/// R8: the ALU's own latch, as the last Latch left it.
Alus::Words Alus::fromLatch(const Work &work, ProducerOf of, Cycle now) {
  const std::optional<Result> &latch = aluOf(work).latch;
  if (!latch) {
    core.report(Invariant::S4, now, work, "the latch was never loaded");
    return words();
  }
  if (core.checks(work)) {
    const std::optional<Meant> expected = meant(work, of, 0);
    if (!expected || expected->pe != core.pe || expected->tag != latch->tag)
      core.report(Invariant::S4, now, work, "the latch does not hold what is meant");
  }
  return latch->words;
}

Alus::Words Alus::operand(const Work &work, const Operand &o, ProducerOf of, Cycle now) {
  switch (o.kind) {
  case OperandKind::None:
    break;
  case OperandKind::Stream:
    return fromStreams(work, o, of, now);
  case OperandKind::Alu:
    return fromAlu(work, o, of, now);
  case OperandKind::Latch:
    return fromLatch(work, of, now);
  case OperandKind::Immediate:
    return Words(words().size(), work.what->immediate);
  }
  return words();
}

/// R9: the accumulator's new value.
Alus::Words Alus::run(const Work &work, const Words &a, Cycle now) {
  Running &running = aluOf(work).running[work.i0];
  if (work.i1 == 0) {
    running = {now, a};
    return a;
  }
  if (now < running.at + latency(work))
    core.report(Invariant::S8, now, work, "a running accumulator is not yet ready");
  running.at = now;
  for (size_t l = 0; l < a.size(); ++l)
    running.words[l] = semantics::applyAlu(AluOp(work.what->function), running.words[l], a[l]);
  return running.words;
}

/// T7, T8.
void Alus::leave(const Work &work, const Words &words, Cycle now) {
  const LatencySpec &l = core.machine.latency;
  Alu &alu = aluOf(work);
  alu.leaving.erase(alu.leaving.begin(), alu.leaving.lower_bound(now));
  const Cycle chained = now + latency(work) + l.aluChain;
  if (alu.leaving.contains(chained))
    core.report(Invariant::S8, now, work, "two results leave the ALU in one cycle");
  alu.leaving[chained] = {work.tag(), words};
  const Cycle at = now + l.aluEntry + latency(work) + l.aluExit;
  for (StreamId out : work.what->out)
    for (unsigned b = 0; out != kNoStream && b < work.what->outWidth; ++b) {
      Bytes value = core.vector();
      for (size_t k = 0; k < words.size(); ++k)
        (*value)[k] = uint8_t(words[k] >> 8 * b);
      core.inject(work, at, StreamId(out + b), 0, value);
    }
}

void Alus::element(const Work &work, Cycle now) {
  const Instruction &i = *work.what;
  if (i.opcode == Opcode::Latch) {
    aluOf(work).latch = {work.tag(), operand(work, i.a, ProducerOf::A, now)};
    return;
  }
  const Words a = operand(work, i.a, ProducerOf::A, now),
              b = operand(work, i.b, ProducerOf::B, now),
              c = operand(work, i.c, ProducerOf::C, now);
  core.counters.aluLanes += core.machine.lanes();
  if (i.flags & AluFlag::Running) {
    const Words sum = run(work, a, now);
    if (work.i1 + 1 == work.n1)
      leave(work, sum, now);
    return;
  }
  Words result = words();
  for (size_t l = 0; l < result.size(); ++l)
    result[l] = semantics::applyAlu(AluOp(i.function), a[l], b[l], c[l]);
  if (const auto end = semantics::rangeEndOf(AluOp(i.function)))
    if (const size_t beyond = semantics::countBeyond(*end, a.data(), a.size()))
      core.counters.lost[{i.provenance, i.function}] += beyond;
  leave(work, result, now);
}

void Alus::clear() { alus.assign(alus.size(), Alu()); }

} // namespace millrace::sim::truth
