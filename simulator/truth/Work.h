// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An instruction at work in a port, element by element, and what its annotation means.
#pragma once

#include "arch/program/Image.h"
#include "simulator/base/Tag.h"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace millrace::sim::truth {

using Lanes = std::vector<uint8_t>; ///< a vector: one byte per lane
/// A vector under way; null in runs without values. Nobody changes it once it can be sampled.
using Bytes = std::shared_ptr<Lanes>;

/// A burst, or the Repeat of one.
struct Work {
  const Instruction *what = nullptr; ///< what each element does
  uint32_t index = 0;                ///< of the instruction dispatched: of a Repeat, its own
  Cycle start = 0;
  uint32_t repeats = 1;
  Cycle interval = 1;
  uint32_t n0 = 1, n1 = 1;
  std::span<const Producer> producers;
  uint32_t repeat = 0, i1 = 0, i0 = 0; ///< the element to come

  bool over() const { return repeat == repeats; }
  /// The copies of a Repeat are further rounds of one burst.
  uint32_t round() const { return repeat * n1 + i1; }
  Tag tag() const { return {index, round() * n0 + i0}; }
  Cycle cycle() const { return cycleOf(repeat, i1, i0); }
  Cycle lastCycle() const { return cycleOf(repeats - 1, n1 - 1, n0 - 1); }
  int64_t row() const {
    return int64_t(what->address) + int64_t(i1) * what->s1 + int64_t(i0) * what->s0;
  }
  void next();

private:
  Cycle cycleOf(uint32_t r, uint32_t j1, uint32_t j0) const {
    return start + Cycle(r) * interval + Cycle(j1) * what->c1 + Cycle(j0) * what->c0;
  }
};

/// Who should have produced something, by the annotation.
struct Meant {
  unsigned pe = 0;
  Tag tag;
};
/// Byte `byte` of operand `of` of the element to come; nothing when the annotation is silent.
std::optional<Meant> meant(const Work &work, ProducerOf of, unsigned byte);
/// Byte `byte` of the weights of column group `group`, counted from the Activate's g0.
std::optional<Meant> meantWeights(const Work &work, unsigned group, unsigned byte);

/// Whether the annotation names a producer of every vector that the burst takes, once each, and of
/// nothing else.
bool isWhole(const Work &work, const Machine &machine);

} // namespace millrace::sim::truth
