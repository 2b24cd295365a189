// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Schedule/Problem/Extract.h"
#include "compiler/Schedule/Problem/Extractor.h"

#include <algorithm>
#include <numeric>

namespace millrace::schedule {
namespace {

/// The old numbers of each PE's instructions in their new order.
std::vector<std::vector<uint32_t>> orderOf(const Image &image,
                                           const std::vector<std::vector<uint64_t>> &cycles) {
  std::vector<std::vector<uint32_t>> order;
  for (size_t pe = 0; pe < image.instructions.size(); ++pe) {
    std::vector<uint32_t> &of = order.emplace_back(image.instructions[pe].size());
    std::iota(of.begin(), of.end(), 0u);
    const auto key = [&](uint32_t k) {
      return std::tuple(cycles[pe][k], image.instructions[pe][k].queue, k);
    };
    for (const Step &step : image.steps)
      if (step.kind == Step::Kind::Grid)
        std::sort(of.begin() + step.pes[pe].begin, of.begin() + step.pes[pe].end,
                  [&](uint32_t x, uint32_t y) { return key(x) < key(y); });
  }
  return order;
}

void reorder(Image &image, const std::vector<std::vector<uint64_t>> &cycles,
             const std::vector<std::vector<uint32_t>> &order) {
  std::vector<std::vector<uint32_t>> now(order.size()); // by old number
  for (size_t pe = 0; pe < order.size(); ++pe) {
    now[pe].resize(order[pe].size());
    for (uint32_t k = 0; k < order[pe].size(); ++k)
      now[pe][order[pe][k]] = k;
  }
  for (size_t pe = 0; pe < order.size(); ++pe) {
    std::vector<Instruction> instructions;
    std::vector<Producer> producers;
    for (const uint32_t old : order[pe]) {
      Instruction i = image.instructions[pe][old];
      const std::span<const Producer> its = image.producersOf(pe, i);
      i.cycle = cycles[pe][old];
      i.producers = uint32_t(producers.size());
      for (Producer p : its) {
        if (p.instruction != kInitialContents)
          p.instruction = now[p.pe][p.instruction];
        producers.push_back(p);
      }
      instructions.push_back(i);
    }
    image.instructions[pe] = std::move(instructions);
    image.producers[pe] = std::move(producers);
  }
}

/// First and last access of a region by instructions, as (step, cycle).
struct Life {
  std::pair<uint32_t, uint64_t> first{UINT32_MAX, 0}, last{0, 0};
  bool isTouched() const { return first.first != UINT32_MAX; }
};

std::vector<Life> livesOf(const Image &image, const Machine &machine) {
  const Timing timing(machine);
  std::vector<Life> lives(image.tensors.size());
  for (uint32_t s = 0; s < image.steps.size(); ++s)
    for (size_t pe = 0; pe < image.steps[s].pes.size(); ++pe)
      for (uint32_t k = image.steps[s].pes[pe].begin; k < image.steps[s].pes[pe].end; ++k) {
        const Instruction &i = image.instructions[pe][k];
        if (machine.unit(i.queue).kind != UnitKind::Mem)
          continue;
        const uint64_t slot =
            i.cycle + (i.opcode == Opcode::Write ? uint64_t(timing.writeSlot()) : 0);
        Life &life = lives[i.tensor];
        life.first = std::min(life.first, std::pair(s, slot));
        life.last = std::max(life.last, std::pair(s, slot + uint64_t(lastElementCycle(i))));
      }
  return lives;
}

/// What instructions decide of a region's life; the rest stays as it was.
void restate(Region &region, const Life &life, bool isLoaded, bool isKept, const Image &image) {
  if (!life.isTouched() && !isLoaded && !isKept) {
    region.rows = 0; // what nobody writes or reads holds nothing
    return;
  }
  if (!isLoaded && life.isTouched()) {
    region.step0 = uint16_t(life.first.first);
    region.from = life.first.second;
  }
  if (!isKept) {
    region.step1 = life.isTouched() ? uint16_t(life.last.first) : region.step0;
    region.to = life.isTouched() ? life.last.second : region.from;
  } else if (region.step1 < image.steps.size() &&
             image.steps[region.step1].kind == Step::Kind::Grid) {
    region.to = image.steps[region.step1].predictedCycles;
    if (life.isTouched() && life.last.first == region.step1)
      region.to = std::max(region.to, life.last.second);
  }
}

} // namespace

std::vector<std::vector<uint32_t>> reschedule(Image &image, const Machine &machine,
                                              const ScheduleProblem &problem,
                                              const Starts &starts) {
  std::vector<std::vector<uint64_t>> cycles;
  for (const auto &list : image.instructions)
    cycles.emplace_back(list.size());
  for (uint32_t b = 0; b < problem.bundles.size(); ++b)
    for (const Member &m : problem.bundles[b].members)
      cycles[m.pe][m.instruction] = uint64_t(starts[b] + m.at);
  const std::vector<std::vector<uint32_t>> order = orderOf(image, cycles);
  reorder(image, cycles, order);
  const std::vector<bool> loaded = regionsLoaded(image);
  std::vector<bool> kept;
  for (const Region &region : image.tensors)
    kept.push_back(isKeptToEnd(image, region));
  std::vector<uint64_t> last(problem.steps.size(), 0);
  for (uint32_t b = 0; b < problem.bundles.size(); ++b)
    if (const Bundle &bundle = problem.bundles[b]; bundle.lastWrite)
      last[bundle.step] = std::max(last[bundle.step], uint64_t(starts[b] + *bundle.lastWrite));
  for (size_t s = 0; s < problem.steps.size(); ++s)
    image.steps[problem.steps[s].step].predictedCycles = uint64_t(problem.steps[s].fixed) + last[s];
  const std::vector<Life> lives = livesOf(image, machine);
  for (size_t r = 0; r < image.tensors.size(); ++r)
    restate(image.tensors[r], lives[r], loaded[r], kept[r], image);
  return order;
}

} // namespace millrace::schedule
