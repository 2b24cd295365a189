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

/// Searches the burst's list for the entry of its current element, from the last one found on, and
/// keeps it in `slot`; false when no entry covers it.
bool findEntry(Burst &burst, ProducerOf of, unsigned slot, unsigned byte);

/// What is said of byte `byte` of operand `of` of the burst's current element: mostly the entry
/// found last. Null when no entry covers it.
inline const FoundEntry *entryOf(Burst &burst, ProducerOf of, unsigned slot, unsigned byte) {
  const FoundEntry &e = burst.found.entries[slot];
  const bool known = unsigned(burst.i0 - burst.found.from0[slot]) < burst.found.counts[slot] &&
                     e.round == burst.round && e.byte == byte;
  return known || findEntry(burst, of, slot, byte) ? &e : nullptr;
}

/// Producer of byte `byte` of operand `of` for the burst's current element, or nothing when no
/// entry covers it.
inline std::optional<Meant> meant(Burst &burst, ProducerOf of, unsigned slot, unsigned byte) {
  const FoundEntry *e = entryOf(burst, of, slot, byte);
  return e ? std::optional(Meant{{e->instruction, e->first + burst.i0 * e->step}, e->pe})
           : std::nullopt;
}

/// Whether that is `tag` of PE `pe`. Every sampled vector asks: comparing in place costs less than
/// making a Meant.
inline bool isMeant(Burst &burst, ProducerOf of, unsigned slot, unsigned byte, const Tag &tag,
                    unsigned pe) {
  const FoundEntry *e = entryOf(burst, of, slot, byte);
  return e && e->instruction == tag.instruction && e->first + burst.i0 * e->step == tag.element &&
         e->pe == pe;
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
