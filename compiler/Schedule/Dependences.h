// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An image beside the pieces that it was placed as: which piece has an instruction, and what pieces
// take from each other.
#pragma once

#include "compiler/Schedule/Program.h"

#include <vector>

namespace millrace::schedule {

/// Piece `to` starts at least `distance` cycles after piece `from`, whatever else is reserved:
/// rows, weights and partial sums pass from one to the other. Numbers of placements.
struct Dependence {
  uint32_t from = 0, to = 0;
  Cycle distance = 0;
};

/// A pruned image; `numbers`: per PE and instruction of the image, its number in the program.
class PlacedImage {
public:
  PlacedImage(const Image &image, const Program &program,
              const std::vector<std::vector<uint32_t>> &numbers)
      : image(image), program(program), numbers(numbers) {}

  uint32_t placementOf(unsigned pe, uint32_t k) const {
    return program.pes[pe].placements[numbers[pe][k]];
  }
  /// Of an instruction, from the start of its piece.
  Cycle at(unsigned pe, uint32_t k) const {
    return Cycle(image.instructions[pe][k].cycle) -
           program.waits.placements[placementOf(pe, k)].start;
  }
  /// Calls f(pe, k, instruction) for those of a step.
  template <class F> void forEachBurst(unsigned step, F f) const {
    const Step &s = image.steps[step];
    for (unsigned pe = 0; pe < s.pes.size(); ++pe)
      for (uint32_t k = s.pes[pe].begin; k < s.pes[pe].end; ++k)
        f(pe, k, image.instructions[pe][k]);
  }
  /// All of a step. Elements of placement p follow each other as if in `shares[p]` of the time, 0
  /// to 1; without any, in all of it.
  std::vector<Dependence> dependences(unsigned step, const std::vector<double> &shares = {}) const;

private:
  const Image &image;
  const Program &program;
  const std::vector<std::vector<uint32_t>> &numbers;

  void add(unsigned step, unsigned pe, uint32_t k, const std::vector<double> &shares,
           std::vector<Dependence> &all) const;
};

} // namespace millrace::schedule
