// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Dependences.h"

#include <algorithm>

namespace millrace::schedule {

/// From whoever made what the burst takes, of those distances that the machine asks for.
void PlacedImage::add(unsigned step, unsigned pe, uint32_t k, const std::vector<double> &shares,
                      std::vector<Dependence> &all) const {
  const Timing &timing = program.timing;
  const Instruction &i = image.instructions[pe][k];
  const uint32_t to = placementOf(pe, k);
  for (const Producer &p : image.producersOf(pe, i)) {
    const bool counts = p.of == ProducerOf::Memory || p.of == ProducerOf::Weights ||
                        p.of == ProducerOf::Sum; // the rest lies within a piece
    if (!counts || p.instruction == kInitialContents ||
        p.instruction < image.steps[step].pes[p.pe].begin)
      continue;
    const uint32_t from = placementOf(p.pe, p.instruction);
    if (from == to)
      continue;
    const double share = shares.empty() ? 1 : shares[from];
    const Instruction &made = image.instructions[p.pe][p.instruction];
    Cycle distance = kNever;
    for (unsigned n1 = 0; n1 < p.count1; ++n1)
      for (unsigned n0 = 0; n0 < p.count0; ++n0) {
        const auto e = uint32_t(int64_t(p.first) + int64_t(n0) * p.step0 + int64_t(n1) * p.step1);
        const auto made0 = Cycle(share * double(elementCycle(made, e % made.n0, e / made.n0)));
        Cycle least = 0; // from the producer's element to the consumer's
        if (p.of == ProducerOf::Memory)
          least = timing.writeSlot() + timing.readAfterWrite() -
                  elementCycle(i, p.from0 + n0, p.from1 + n1);
        else if (p.of == ProducerOf::Sum)
          least = timing.accumulateInterval() - elementCycle(i, p.from0 + n0, p.from1 + n1);
        else
          least = timing.installToActivate() - Cycle(i.g0 + p.from0 + n0);
        distance = std::max(distance, made0 + least);
      }
    all.push_back({from, to, at(p.pe, p.instruction) + distance - at(pe, k)});
  }
}

std::vector<Dependence> PlacedImage::dependences(unsigned step,
                                                 const std::vector<double> &shares) const {
  std::vector<Dependence> all;
  forEachBurst(
      step, [&](unsigned pe, uint32_t k, const Instruction &) { add(step, pe, k, shares, all); });
  return all;
}

} // namespace millrace::schedule
