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

/// Producer of byte `byte` of operand `of` for the burst's current element, or nothing when no
/// entry covers it.
std::optional<Meant> meant(Burst &burst, ProducerOf of, unsigned cursorSlot, unsigned byte);
/// Producer of the weights of column group `group` (counted from the instruction's g0), byte 0 or 1
/// of the format.
std::optional<Meant> meantWeights(std::span<const Producer> producers, unsigned group,
                                  unsigned byte);

/// Entries that speak of operands or elements that the instruction does not have, that overlap, or
/// that leave an element out: the reason, or nothing when the annotation is whole. `machine` gives
/// the number of streams of wide operands.
std::optional<std::string> damage(const Burst &burst, const Machine &machine);

} // namespace millrace::sim
