// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Relief.h"

#include "compiler/Schedule/Dependences.h"
#include "compiler/Schedule/Holders.h"

#include <algorithm>
#include <map>
#include <string>

namespace millrace::schedule {
namespace {

class Replay {
public:
  Replay(const Image &image, const Program &program,
         const std::vector<std::vector<uint32_t>> &numbers)
      : image(image), program(program), placements(program.waits.placements),
        placed(image, program, numbers) {
    findSteps();
    findLinks();
    findWork();
  }

  int64_t cycles(const Relief &relief) const;

private:
  /// A wait, once it is known for which piece.
  struct Link {
    Cycle distance = 0;        ///< from the start of `from`, or from the begin of the step
    uint32_t from = kNobody;   ///< a placement before this one
    Cause cause = Cause::Pace; ///< of the wait
  };
  const Image &image;
  const Program &program;
  const std::vector<PlacedPiece> &placements;
  const PlacedImage placed;
  std::vector<uint32_t> stepOf;         ///< by placement
  std::vector<std::vector<Link>> links; ///< by placement
  std::vector<bool> sweeps;             ///< by placement: the MXM works in it
  std::vector<Cycle> first;             ///< by placement: earliest start, as no cycle is before 0

  void findSteps();
  void findLinks();
  void findWork();
  uint32_t before(uint32_t placement, Cycle start) const;
};

void Replay::findSteps() {
  stepOf.assign(placements.size(), 0);
  for (uint32_t step = 0; step < program.waits.held.size(); ++step)
    for (unsigned pe = 0; pe < program.waits.held[step].size(); ++pe)
      for (const Held &h : program.waits.held[step][pe])
        stepOf[program.pes[pe].placements[h.burst]] = step;
}

/// The nearest piece before, of the same kernel, that starts in a cycle: passes of a share follow
/// each other.
uint32_t Replay::before(uint32_t placement, Cycle start) const {
  for (uint32_t p = placement; p-- > 0 && placements[p].kernel == placements[placement].kernel;)
    if (placements[p].start == start)
      return p;
  return kNobody;
}

void Replay::findLinks() {
  const Resources resources(program.machine);
  std::map<std::pair<uint32_t, unsigned>, Holders> holders; ///< by step and PE
  links.resize(placements.size());
  const std::vector<Wait> &waits = program.waits.waits;
  for (uint32_t p = 0; p < placements.size(); ++p) {
    const size_t end = p + 1 < placements.size() ? placements[p + 1].firstWait : waits.size();
    for (size_t w = placements[p].firstWait; w < end; ++w) {
      const Wait &wait = waits[w];
      uint32_t from = kNobody, burst = wait.holder;
      if (wait.cause == Cause::Order)
        from = before(p, wait.until);
      if (burst == kNobody && wait.resource != kNobody && !program.waits.held.empty()) {
        auto at = holders.find({stepOf[p], wait.pe});
        if (at == holders.end())
          at = holders
                   .try_emplace({stepOf[p], wait.pe}, program.waits.held[stepOf[p]][wait.pe],
                                resources.count())
                   .first;
        burst = at->second.at(wait.resource, wait.heldAt).value_or(kNobody);
      }
      if (burst != kNobody)
        from = program.pes[wait.pe].placements[burst];
      if (from == kNobody || from >= p) // it does not move
        links[p].push_back({wait.until, kNobody, wait.cause});
      else
        links[p].push_back({wait.until - placements[from].start, from, wait.cause});
    }
  }
}

void Replay::findWork() {
  sweeps.assign(placements.size(), false);
  first.assign(placements.size(), kNever);
  for (unsigned step = 0; step < image.steps.size(); ++step)
    if (image.steps[step].kind == Step::Kind::Grid)
      placed.forEachBurst(step, [&](unsigned pe, uint32_t k, const Instruction &i) {
        const uint32_t p = placed.placementOf(pe, k);
        first[p] = std::max(first[p], -placed.at(pe, k));
        if (i.opcode == Opcode::Activate)
          sweeps[p] = true;
      });
}

/// Does the wait follow from what pieces pass on, as dependences do?
bool isPassedOn(Cause cause) {
  return cause == Cause::Dependence || cause == Cause::Install || cause == Cause::PartialSum ||
         cause == Cause::AccumulateInterval;
}

int64_t Replay::cycles(const Relief &relief) const {
  std::vector<double> shares;
  if (relief.sweeps || relief.maps)
    for (const bool its : sweeps)
      shares.push_back(its || relief.maps ? relief.share : 1);
  std::vector<Cycle> start(placements.size(), kNever); // dependences first
  int64_t sum = 0;
  uint32_t done = 0; // pieces
  for (unsigned step = 0; step < image.steps.size(); ++step) {
    if (image.steps[step].kind != Step::Kind::Grid)
      continue;
    std::vector<Dependence> all = placed.dependences(step, shares);
    std::sort(all.begin(), all.end(),
              [](const Dependence &x, const Dependence &y) { return x.to < y.to; });
    uint32_t last = done; // pieces of the step end there; some have no burst that was kept
    placed.forEachBurst(step, [&](unsigned pe, uint32_t k, const Instruction &) {
      last = std::max(last, placed.placementOf(pe, k) + 1);
    });
    size_t next = 0;
    for (uint32_t p = done; p < last; ++p) {
      start[p] = std::max<Cycle>(first[p], 0);
      for (; next < all.size() && all[next].to <= p; ++next)
        if (all[next].to == p)
          start[p] = std::max(start[p], start[all[next].from] + all[next].distance);
      for (const Link &link : links[p]) {
        if (link.from != kNobody && isPassedOn(link.cause) && !shares.empty() &&
            shares[link.from] < 1) // as long as it was; the dependence is as long as it becomes
          continue;
        Cycle distance = link.distance;
        if (relief.causes[unsigned(link.cause)]) {
          if (relief.share == 0)
            continue;
          if (link.from != kNobody && distance > 0)
            distance = Cycle(relief.share * double(distance));
        }
        start[p] = std::max(start[p], distance + (link.from == kNobody ? 0 : start[link.from]));
      }
    }
    done = last;
    Cycle end = 0;
    placed.forEachBurst(step, [&](unsigned pe, uint32_t k, const Instruction &i) {
      const uint32_t p = placed.placementOf(pe, k);
      const double share = shares.empty() ? 1 : shares[p];
      if (i.opcode == Opcode::Write)
        end = std::max(end, start[p] + placed.at(pe, k) + program.timing.writeSlot() +
                                Cycle(share * double(lastElementCycle(i))));
    });
    sum += program.timing.countFrom(end);
  }
  return sum;
}

} // namespace

Expected<std::vector<int64_t>> relievedCycles(const Image &image, const Program &program,
                                              const std::vector<std::vector<uint32_t>> &numbers,
                                              const std::vector<Relief> &reliefs) {
  const Replay replay(image, program, numbers);
  int64_t predicted = 0;
  for (const Step &step : image.steps)
    predicted += int64_t(step.predictedCycles);
  if (const int64_t same = replay.cycles({.causes = {}, .share = 1}); same != predicted)
    return Error{"the compiler's record of what pieces wait for is wrong: played again it takes " +
                 std::to_string(same) + " cycles, and the program " + std::to_string(predicted) +
                 "; please report it with the model and the machine"};
  std::vector<int64_t> all;
  for (const Relief &relief : reliefs)
    all.push_back(replay.cycles(relief));
  return all;
}

} // namespace millrace::schedule
