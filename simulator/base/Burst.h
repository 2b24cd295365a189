// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One instruction under way in a unit's port.
#pragma once

#include "arch/isa/Instruction.h"
#include "simulator/base/Tag.h"

#include <array>
#include <span>

namespace millrace::sim {

/// Operand slots for annotation look-ups: byte streams of a (a group may have 16), then the others.
namespace slot {
constexpr unsigned A = 0, B = 16, C = 20, Memory = 24, Link = 25, Product = 26, Sum = 27,
                   Count = 28;
}

/// What the entry that an operand slot found last says: the producer of element (from0 + k, round)
/// is element first + (from0 + k) step of an instruction, for k below the slot's count.
struct FoundEntry {
  uint32_t round;
  uint16_t pe;
  uint32_t instruction;
  uint32_t first, step; ///< modulo 2^32
  uint8_t byte;         ///< of the operand
};

/// By slot. A copy has to search again: what was found is not worth copying.
struct FoundEntries {
  std::array<uint16_t, slot::Count> from0{};
  std::array<uint16_t, slot::Count> counts{}; ///< elements of the round; 0: nothing found yet
  std::array<uint16_t, slot::Count> cursor{}; ///< where in the list
  std::array<FoundEntry, slot::Count> entries;

  FoundEntries() {} // entries stay as they are: counts say which have been filled
  FoundEntries(const FoundEntries &) : FoundEntries() {}
  FoundEntries &operator=(const FoundEntries &) {
    from0.fill(0);
    counts.fill(0);
    cursor.fill(0);
    return *this;
  }
};

struct Burst {
  const Instruction *instruction = nullptr; ///< what to do
  uint32_t index =
      0; ///< whom to call its producer: the instruction's own index, or that of the Repeat
  Cycle start = 0; ///< cycle of the first element
  uint32_t repeats = 1, interval = 1;
  uint16_t n0 = 1, n1 = 1; ///< loops; 1 x 1 for instructions without loops
  uint32_t repeat = 0;
  uint16_t i0 = 0, i1 = 0; ///< the next element
  uint32_t number = 0;     ///< of the next element in the burst; a Repeat counts on
  uint32_t round = 0;      ///< i1 of annotations: a Repeat's copies follow each other
  std::span<const Producer> producers;
  FoundEntries found;

  uint32_t elements() const { return repeats * n1 * n0; }
  bool finished() const { return repeat == repeats; }
  bool lastOuter() const { return i1 + 1 == n1; }
  Tag tag() const { return {index, number}; }
  Cycle at() const {
    return start + Cycle(repeat) * interval + Cycle(i1) * instruction->c1 +
           Cycle(i0) * instruction->c0;
  }
  Cycle lastCycle() const {
    return start + Cycle(repeats - 1) * interval + Cycle(n1 - 1) * instruction->c1 +
           Cycle(n0 - 1) * instruction->c0;
  }
  int64_t row() const {
    return int64_t(instruction->address) + int64_t(i1) * instruction->s1 +
           int64_t(i0) * instruction->s0;
  }
  /// Goes on to the next element, and `cycle` from the cycle of this one to that of the next; false
  /// when there is none.
  bool next(Cycle &cycle) {
    if (i0 + 1u < n0) {
      ++i0;
      ++number;
      cycle += Cycle(instruction->c0);
      return true;
    }
    next();
    cycle = at();
    return !finished();
  }
  void next() {
    ++number;
    if (++i0 < n0)
      return;
    i0 = 0;
    ++round;
    if (++i1 < n1)
      return;
    i1 = 0;
    ++repeat;
  }
};

} // namespace millrace::sim
