// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who comes before whom, and by how much.
#include "compiler/Schedule/Problem/Extractor.h"

#include <algorithm>
#include <tuple>

namespace millrace::schedule {

void Extractor::precede(uint32_t before, uint32_t after, Cycle distance, PrecedenceKind kind) {
  if (before == after && distance <= 0)
    return; // within a bundle it holds or it does not
  const auto [found, isNew] = least.emplace(std::tuple(before, after), std::pair(distance, kind));
  if (!isNew && found->second.first < distance)
    found->second = {distance, kind};
}

/// S6, S7, S8 and T9 for what an instruction takes from where it was kept in this step.
void Extractor::precedeData(unsigned pe, uint32_t k, const Producer &from) {
  const Instruction &to = at(pe, k), &made = at(from.pe, from.instruction);
  const uint32_t before = places[from.pe][from.instruction].bundle, after = places[pe][k].bundle;
  const Cycle offset = places[pe][k].at;
  Cycle distance = INT64_MIN;
  PrecedenceKind kind = PrecedenceKind::Latch;
  forEachProduced(from, [&](unsigned i0, unsigned i1, uint32_t e) {
    const Cycle put = made.opcode == Opcode::Clear ? places[from.pe][from.instruction].at
                                                   : cycleIn(from.pe, from.instruction, e);
    Cycle taken = offset + elementCycle(to, i0, i1), wait = 1;
    if (from.of == ProducerOf::Memory) {
      kind = PrecedenceKind::Data;
      wait = timing.writeSlot() + timing.readAfterWrite();
    } else if (from.of == ProducerOf::Weights) {
      kind = PrecedenceKind::Install;
      taken = offset + Cycle(to.g0) + i0; // the first activation, when it passes the group
      wait = timing.installToActivate();
    } else if (from.of == ProducerOf::Sum) {
      kind = PrecedenceKind::PartialSum;
      wait = timing.accumulateInterval();
    }
    distance = std::max(distance, put + wait - taken);
  });
  if (distance != INT64_MIN)
    precede(before, after, distance, kind);
}

/// Which rows a Gather takes is data: all of its table are written before it, or behind it.
void Extractor::precedeGathers() {
  std::map<uint32_t, std::vector<std::pair<unsigned, uint32_t>>> writers; // by region
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k)
      if (at(pe, k).opcode == Opcode::Write)
        writers[at(pe, k).tensor].push_back({pe, k});
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k) {
      const Instruction &gather = at(pe, k);
      if (gather.opcode != Opcode::Gather)
        continue;
      const Place &its = places[pe][k];
      for (const auto &[pe0, w] : writers[gather.tensor]) {
        const Instruction &write = at(pe0, w);
        const Place &other = places[pe0][w];
        const Cycle slot = other.at + timing.writeSlot(), last = slot + lastElementCycle(write);
        if (other.step != its.step)
          continue;
        if (write.cycle < gather.cycle)
          precede(other.bundle, its.bundle, last + timing.readAfterWrite() - its.at,
                  PrecedenceKind::Data);
        else
          precede(its.bundle, other.bundle, its.at + lastElementCycle(gather) + 1 - slot,
                  PrecedenceKind::Reuse);
      }
    }
}

/// Leaves out what two others imply: that ends where distances add up to less, so it ends with some
/// that stay.
void Extractor::reduce() {
  std::vector<std::vector<std::pair<uint32_t, Cycle>>> before(problem.bundles.size());
  for (const auto &[pair, what] : least)
    before[std::get<1>(pair)].push_back({std::get<0>(pair), what.first});
  // Only along the order of the bundles, so that no circle implies itself.
  const auto implied = [&](uint32_t a, uint32_t c, Cycle distance) {
    for (const auto &[b, second] : before[c]) {
      if (b <= a || b >= c)
        continue;
      const auto first = least.find({a, b});
      if (first != least.end() && first->second.first + second >= distance)
        return true;
    }
    return false;
  };
  for (const auto &[pair, what] : least)
    if (const auto [a, c] = pair; !implied(a, c, what.first))
      problem.precedence.push_back({a, c, what.first, what.second});
}

void Extractor::addPrecedence() {
  for (unsigned pe = 0; pe < image.instructions.size(); ++pe)
    for (uint32_t k = 0; k < image.instructions[pe].size(); ++k)
      for (const Producer &p : image.producersOf(pe, at(pe, k)))
        if (p.instruction != kInitialContents && isKept(at(pe, k), p) &&
            places[p.pe][p.instruction].step == places[pe][k].step)
          precedeData(pe, k, p);
  precedeGathers();
  reduce();
}

} // namespace millrace::schedule
