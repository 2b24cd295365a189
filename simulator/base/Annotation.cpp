// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "simulator/base/Annotation.h"

#include <algorithm>
#include <vector>

namespace millrace::sim {

/// Element `element` (modulo 2^32) of who an entry names.
static Tag producerTag(const Producer &p, uint32_t element) {
  if (p.instruction == kInitialContents)
    return Tag::initial(p.block, element);
  return {p.instruction, element};
}

bool findEntry(Burst &burst, ProducerOf of, unsigned slot, unsigned byte) {
  const size_t count = burst.producers.size();
  size_t at = burst.found.cursor[slot];
  // Elements come in order: the entry wanted is the last one or near it.
  for (size_t left = count; left > 0; --left, at = at + 1 < count ? at + 1 : 0) {
    const Producer &p = burst.producers[at];
    if (p.of != of || (p.byte != byte && p.byte != kAllBytes) ||
        uint32_t(burst.i0) - p.from0 >= p.count0 || burst.round - p.from1 >= p.count1)
      continue;
    const uint32_t step = uint32_t(p.step0);
    const Tag first =
        producerTag(p, p.first + (burst.round - p.from1) * uint32_t(p.step1) - p.from0 * step);
    burst.found.entries[slot] = {burst.round,   p.pe, first.instruction,
                                 first.element, step, uint8_t(byte)};
    burst.found.from0[slot] = p.from0;
    burst.found.counts[slot] = p.count0;
    burst.found.cursor[slot] = uint16_t(at);
    return true;
  }
  return false;
}

std::optional<Meant> meantWeights(std::span<const Producer> producers, unsigned group,
                                  unsigned byte) {
  for (const Producer &p : producers)
    if (p.of == ProducerOf::Weights && (p.byte == byte || p.byte == kAllBytes) &&
        group - p.from0 < p.count0)
      return Meant{producerTag(p, p.first + (group - p.from0) * uint32_t(p.step0)), p.pe};
  return std::nullopt;
}

namespace {
/// How many byte streams each operand has, and how many elements each of them: zero when there is
/// no such operand.
struct Extent {
  unsigned bytes = 0;
  uint64_t elements = 0;
};
} // namespace

static Extent extentOf(const Burst &burst, ProducerOf of, const Machine &machine) {
  const Instruction &i = *burst.instruction;
  const FieldSet fields = info(i.opcode).fields;
  const uint64_t all = burst.elements();
  auto operand = [&](const Operand &o, std::optional<Field> stream, Field general) -> Extent {
    if (stream && fields.has(*stream)) {
      if (i.opcode == Opcode::Install)
        return {machine.mxm.columnsPerInstall, all};
      if (i.opcode == Opcode::Transpose)
        return {16, all};
      return {i.opcode == Opcode::Activate ? byteWidth(i.format) : 1, all};
    }
    if (!fields.has(general) || o.kind == OperandKind::None)
      return {};
    if (o.kind == OperandKind::Stream)
      return {o.width, all};
    return {o.kind == OperandKind::Alu || o.kind == OperandKind::Latch ? 1u : 0u, all};
  };
  switch (of) {
  case ProducerOf::A:
    return operand(i.a, Field::StreamA, Field::OperandA);
  case ProducerOf::B:
    return operand(i.b, Field::StreamB, Field::OperandB);
  case ProducerOf::C:
    return operand(i.c, std::nullopt, Field::OperandC);
  case ProducerOf::Memory:
    return i.opcode == Opcode::Read ? Extent{1, all} : Extent{};
  case ProducerOf::Weights:
    return i.opcode == Opcode::Activate ? Extent{byteWidth(i.format), uint64_t(i.g1 - i.g0)}
                                        : Extent{};
  case ProducerOf::Link:
    return i.opcode == Opcode::Receive ? Extent{1, all} : Extent{};
  case ProducerOf::Product:
    return i.opcode == Opcode::Accumulate ? Extent{1, all} : Extent{};
  case ProducerOf::Sum:
    return i.opcode == Opcode::Accumulate && (i.function & AccumulateMode::Add) ? Extent{1, all}
                                                                                : Extent{};
  }
  return {};
}

/// Whether two entries speak of one element of one byte of one operand.
static bool overlap(const Producer &x, const Producer &y) {
  const bool bytes = x.byte == y.byte || x.byte == kAllBytes || y.byte == kAllBytes;
  const bool height = x.of == ProducerOf::Weights || (x.from1 < uint32_t(y.from1) + y.count1 &&
                                                      y.from1 < uint32_t(x.from1) + x.count1);
  return x.of == y.of && bytes && height && x.from0 < uint32_t(y.from0) + y.count0 &&
         y.from0 < uint32_t(x.from0) + x.count0;
}

/// Whether the entries of each byte of each operand stand together and lie like bricks, in rows:
/// each entry behind the one before it in the same row, or beginning a new row after that one's.
/// Then no two overlap, which one pass sees; compilers write entries so.
static bool areBricks(std::span<const Producer> producers) {
  for (size_t k = 1; k < producers.size(); ++k) {
    const Producer &last = producers[k - 1], &p = producers[k];
    if (p.of < last.of)
      return false;
    if (p.of != last.of)
      continue;
    const bool oneRow = p.of == ProducerOf::Weights; // which have no outer loop
    if (p.byte != last.byte) {
      if (p.byte < last.byte || p.byte == kAllBytes)
        return false;
    } else if (oneRow || (p.from1 == last.from1 && p.count1 == last.count1)) {
      if (p.from0 < uint32_t(last.from0) + last.count0)
        return false;
    } else if (p.from1 < uint32_t(last.from1) + last.count1) {
      return false;
    }
  }
  return true;
}

/// Whether any two entries overlap.
static bool anyOverlap(std::span<const Producer> producers) {
  if (areBricks(producers))
    return false;
  if (producers.size() <= 32) {
    for (size_t k = 1; k < producers.size(); ++k)
      for (size_t o = 0; o < k; ++o)
        if (overlap(producers[o], producers[k]))
          return true;
    return false;
  }
  // Long lists are swept along the outer loop.
  std::vector<const Producer *> sorted, open;
  for (const Producer &p : producers)
    sorted.push_back(&p);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Producer *x, const Producer *y) { return x->from1 < y->from1; });
  for (const Producer *p : sorted) {
    std::erase_if(open, [&](const Producer *o) {
      return o->of != ProducerOf::Weights && uint32_t(o->from1) + o->count1 <= p->from1;
    });
    for (const Producer *o : open)
      if (overlap(*o, *p))
        return true;
    open.push_back(p);
  }
  return false;
}

std::optional<std::string> damage(const Burst &burst, const Machine &machine) {
  constexpr const char *names[] = {"operand a", "operand b", "operand c", "memory",
                                   "weights",   "link",      "product",   "sum"};
  static_assert(std::size(names) == kProducerOfs);
  uint64_t covered[kProducerOfs] = {};
  Extent extents[kProducerOfs];
  for (unsigned of = 0; of < kProducerOfs; ++of)
    extents[of] = extentOf(burst, ProducerOf(of), machine);
  for (const Producer &p : burst.producers) {
    if (unsigned(p.of) >= kProducerOfs)
      return "an annotation entry names operand " + std::to_string(unsigned(p.of)) +
             ", which does not exist";
    if (burst.instruction->opcode == Opcode::Gather && p.of == ProducerOf::Memory)
      continue; // which rows it reads depends on data
    const Extent extent = extents[unsigned(p.of)];
    const char *name = names[unsigned(p.of)];
    if (!extent.bytes)
      return std::string("an annotation entry speaks of ") + name + ", which is not sampled";
    if (p.byte != kAllBytes && p.byte >= extent.bytes)
      return std::string("an annotation entry speaks of byte ") + std::to_string(p.byte) + " of " +
             name + ", which has " + std::to_string(extent.bytes);
    bool weights = p.of == ProducerOf::Weights;
    uint32_t width = weights ? uint32_t(extent.elements) : burst.n0;
    uint32_t height = weights ? 0xffffffff : burst.repeats * burst.n1;
    if (!p.count0 || !p.count1 || uint32_t(p.from0) + p.count0 > width ||
        uint32_t(p.from1) + p.count1 > height)
      return std::string("an annotation entry for ") + name + " covers elements that are not there";
    covered[unsigned(p.of)] +=
        uint64_t(p.count0) * (weights ? 1 : p.count1) * (p.byte == kAllBytes ? extent.bytes : 1);
  }
  for (unsigned of = 0; of < kProducerOfs; ++of) {
    const Extent extent = extents[of];
    if (covered[of] != extent.bytes * extent.elements)
      return std::string("the annotation of ") + names[of] + " covers " +
             std::to_string(covered[of]) + " of " + std::to_string(extent.bytes * extent.elements) +
             " sampled vectors";
  }
  if (burst.instruction->opcode != Opcode::Gather && anyOverlap(burst.producers))
    return "two annotation entries speak of the same element";
  return std::nullopt;
}

} // namespace millrace::sim
