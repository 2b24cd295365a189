// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the image's producer annotations. They never drive execution.
#pragma once

#include "simulator/base/Burst.h"

#include <optional>
#include <string>

namespace millrace::sim {

/// What the annotation says about one operand element.
struct Meant {
  Tag tag;
  uint16_t pe;
};

inline Tag producerTag(const Producer &p, int64_t element) {
  if (p.instruction == kInitialContents)
    return Tag::initial(p.block, uint32_t(element));
  return {p.instruction, uint32_t(element)};
}

/// Producer of byte `byte` of operand `of` for the burst's current element, or nothing when no
/// entry covers it. Inline, because every sampled vector asks: a result in memory, written in parts
/// and read as a whole, costs more than the search.
inline std::optional<Meant> meant(Burst &burst, ProducerOf of, unsigned cursorSlot, unsigned byte) {
  const uint32_t i0 = burst.i0, i1 = burst.outer();
  uint16_t &cursor = burst.cursor[cursorSlot];
  const Producer *const producers = burst.producers.data();
  const size_t count = burst.producers.size();
  size_t entry = cursor;
  // Elements come in order: the entry wanted is the last one or near it.
  for (size_t left = count; left > 0; --left, entry = entry + 1 < count ? entry + 1 : 0) {
    const Producer &p = producers[entry];
    if (p.of != of || (p.byte != byte && p.byte != kAllBytes) || i0 - p.from0 >= p.count0 ||
        i1 - p.from1 >= p.count1)
      continue;
    cursor = uint16_t(entry);
    return Meant{producerTag(p, int64_t(p.first) + int64_t(i0 - p.from0) * p.step0 +
                                    int64_t(i1 - p.from1) * p.step1),
                 p.pe};
  }
  return std::nullopt;
}

/// Producer of the weights of column group `group` (counted from the instruction's g0), byte 0 or 1
/// of the format.
std::optional<Meant> meantWeights(std::span<const Producer> producers, unsigned group,
                                  unsigned byte);

/// Entries that speak of operands or elements that the instruction does not have, that overlap, or
/// that leave an element out: the reason, or nothing when the annotation is whole. `machine` gives
/// the number of streams of wide operands.
std::optional<std::string> damage(const Burst &burst, const Machine &machine);

} // namespace millrace::sim
