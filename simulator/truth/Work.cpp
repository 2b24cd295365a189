// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/truth/Work.h"

#include <algorithm>

namespace millrace::sim::truth {

void Work::next() {
  if (++i0 < n0)
    return;
  i0 = 0;
  if (++i1 < n1)
    return;
  i1 = 0;
  ++repeat;
}

static Meant producerOf(const Producer &p, uint32_t i0, uint32_t i1) {
  const int64_t element =
      int64_t(p.first) + (int64_t(i0) - p.from0) * p.step0 + (int64_t(i1) - p.from1) * p.step1;
  if (p.instruction == kInitialContents)
    return {p.pe, Tag::initial(p.block, uint32_t(element))};
  return {p.pe, {p.instruction, uint32_t(element)}};
}

static bool inside(uint32_t i, uint32_t from, uint32_t count) {
  return i >= from && i < from + count;
}

std::optional<Meant> meant(const Work &work, ProducerOf of, unsigned byte) {
  for (const Producer &p : work.producers)
    if (p.of == of && (p.byte == byte || p.byte == kAllBytes) &&
        inside(work.i0, p.from0, p.count0) && inside(work.round(), p.from1, p.count1))
      return producerOf(p, work.i0, work.round());
  return std::nullopt;
}

std::optional<Meant> meantWeights(const Work &work, unsigned group, unsigned byte) {
  for (const Producer &p : work.producers)
    if (p.of == ProducerOf::Weights && (p.byte == byte || p.byte == kAllBytes) &&
        inside(group, p.from0, p.count0))
      return producerOf(p, group, p.from1);
  return std::nullopt;
}

namespace {
/// Vectors that a burst takes as one operand: `bytes` of each of width x height elements.
struct Taken {
  ProducerOf of;
  uint32_t bytes, width, height;
};
} // namespace

static std::vector<Taken> takenBy(const Work &work, const Machine &machine) {
  const Instruction &i = *work.what;
  const uint32_t width = work.n0, height = work.repeats * work.n1;
  std::vector<Taken> list;
  const auto take = [&](ProducerOf of, uint32_t bytes) {
    list.push_back({of, bytes, width, height});
  };
  const auto operand = [&](ProducerOf of, const Operand &o) {
    if (o.kind == OperandKind::Stream)
      take(of, o.width);
    if (o.kind == OperandKind::Alu || o.kind == OperandKind::Latch)
      take(of, 1);
  };
  switch (i.opcode) {
  case Opcode::Nop:
  case Opcode::Repeat:
  case Opcode::Config:
  case Opcode::Clear:
    break;
  case Opcode::Read:
    take(ProducerOf::Memory, 1);
    break;
  case Opcode::Receive:
    take(ProducerOf::Link, 1);
    break;
  case Opcode::Scatter:
  case Opcode::Select:
    take(ProducerOf::A, 1);
    take(ProducerOf::B, 1);
    break;
  case Opcode::Write:
  case Opcode::Gather:
  case Opcode::Permute:
  case Opcode::Distribute:
  case Opcode::Shift:
  case Opcode::Rotate:
  case Opcode::Send:
    take(ProducerOf::A, 1);
    break;
  case Opcode::Transpose:
    take(ProducerOf::A, 16);
    break;
  case Opcode::Install:
    take(ProducerOf::A, machine.mxm.columnsPerInstall);
    break;
  case Opcode::Activate:
    take(ProducerOf::A, byteWidth(i.format));
    list.push_back({ProducerOf::Weights, byteWidth(i.format), uint32_t(i.g1 - i.g0), 1});
    break;
  case Opcode::Accumulate:
    take(ProducerOf::Product, 1);
    if (i.function & AccumulateMode::Add)
      take(ProducerOf::Sum, 1);
    break;
  case Opcode::Alu:
    operand(ProducerOf::A, i.a);
    operand(ProducerOf::B, i.b);
    operand(ProducerOf::C, i.c);
    break;
  case Opcode::Latch:
    operand(ProducerOf::A, i.a);
    break;
  }
  return list;
}

/// Whether the entries for one operand name each of its vectors exactly once.
static bool covers(std::span<const Producer> producers, const Taken &taken) {
  const uint64_t vectors = uint64_t(taken.bytes) * taken.width * taken.height;
  uint64_t most = 0; // a damaged loop may ask for billions: no table is made for those
  for (const Producer &p : producers)
    most += uint64_t(taken.bytes) * p.count0 * p.count1;
  if (vectors > most)
    return false;
  std::vector<uint32_t> named(vectors);
  for (const Producer &p : producers) {
    if (p.of != taken.of)
      continue;
    // Weights are the same in every round: their outer range says nothing.
    const bool weights = p.of == ProducerOf::Weights;
    const uint32_t from1 = weights ? 0 : p.from1, end1 = weights ? 1 : from1 + p.count1;
    const uint32_t byte0 = p.byte == kAllBytes ? 0 : p.byte,
                   byte1 = p.byte == kAllBytes ? taken.bytes : byte0 + 1;
    if (!p.count0 || !p.count1 || byte1 > taken.bytes ||
        uint32_t(p.from0) + p.count0 > taken.width || end1 > taken.height)
      return false;
    for (uint32_t byte = byte0; byte < byte1; ++byte)
      for (uint32_t i1 = from1; i1 < end1; ++i1)
        for (uint32_t i0 = p.from0; i0 < uint32_t(p.from0) + p.count0; ++i0)
          ++named[(size_t(byte) * taken.height + i1) * taken.width + i0];
  }
  return std::all_of(named.begin(), named.end(), [](uint32_t times) { return times == 1; });
}

bool isWhole(const Work &work, const Machine &machine) {
  const std::vector<Taken> taken = takenBy(work, machine);
  for (const Producer &p : work.producers) {
    if (work.what->opcode == Opcode::Gather && p.of == ProducerOf::Memory)
      continue; // which rows it reads is data
    if (std::none_of(taken.begin(), taken.end(), [&](const Taken &t) { return t.of == p.of; }))
      return false;
  }
  return std::all_of(taken.begin(), taken.end(),
                     [&](const Taken &t) { return covers(work.producers, t); });
}

} // namespace millrace::sim::truth
