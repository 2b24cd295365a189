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

struct Burst {
  const Instruction *instruction = nullptr; ///< what to do
  uint32_t index =
      0; ///< whom to call its producer: the instruction's own index, or that of the Repeat
  Cycle start = 0; ///< cycle of the first element
  uint32_t repeats = 1, interval = 1;
  uint16_t n0 = 1, n1 = 1; ///< loops; 1 x 1 for instructions without loops
  uint32_t repeat = 0;
  uint16_t i0 = 0, i1 = 0; ///< the next element
  std::span<const Producer> producers;
  std::array<uint16_t, slot::Count> cursor{};

  /// Number of the element in the burst; a Repeat counts on.
  uint32_t element() const { return (repeat * n1 + i1) * n0 + i0; }
  uint32_t elements() const { return repeats * n1 * n0; }
  /// i1 of annotations: a Repeat's copies follow each other.
  uint32_t outer() const { return repeat * n1 + i1; }
  bool finished() const { return repeat == repeats; }
  bool lastOuter() const { return i1 + 1 == n1; }
  Tag tag() const { return {index, element()}; }
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
      cycle += Cycle(instruction->c0);
      return true;
    }
    next();
    cycle = at();
    return !finished();
  }
  void next() {
    if (++i0 < n0)
      return;
    i0 = 0;
    if (++i1 < n1)
      return;
    i1 = 0;
    ++repeat;
  }
};

} // namespace millrace::sim
