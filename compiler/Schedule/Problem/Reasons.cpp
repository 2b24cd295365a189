// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Why each bundle of a schedule that was solved starts when it does, as the scheduler notes it of
// those that it places itself.
#include "compiler/Schedule/Problem/Board.h"
#include "compiler/Schedule/Problem/Extract.h"
#include "compiler/Schedule/Problem/Succession.h"

#include <algorithm>
#include <numeric>

namespace millrace::schedule {
namespace {

Cause causeOf(PrecedenceKind kind) {
  switch (kind) {
  case PrecedenceKind::Install:
    return Cause::Install;
  case PrecedenceKind::PartialSum:
    return Cause::AccumulateInterval;
  case PrecedenceKind::Reuse:
    return Cause::MemoryReuse;
  default:
    return Cause::Dependence;
  }
}

Cause causeOf(ResourceKind kind) {
  switch (kind) {
  case ResourceKind::Queue:
    return Cause::Dispatch;
  case ResourceKind::ReadPort:
    return Cause::ReadPort;
  case ResourceKind::WritePort:
    return Cause::WritePort;
  case ResourceKind::Banks:
    return Cause::Bank;
  case ResourceKind::MxmPort:
    return Cause::MxmPort;
  case ResourceKind::SxmPort:
    return Cause::SxmPort;
  case ResourceKind::LinkPort:
  case ResourceKind::Link:
    return Cause::LinkPort;
  case ResourceKind::Alu:
  case ResourceKind::AluResult:
  case ResourceKind::Latch:
    return Cause::Alu;
  case ResourceKind::Stream:
    return Cause::Stream;
  case ResourceKind::Weights:
    return Cause::BufferReuse;
  case ResourceKind::Accumulators:
    return Cause::AccumulatorRow;
  default:
    return Cause::MemoryReuse;
  }
}

class Reasons {
public:
  Reasons(const Machine &machine, const ScheduleProblem &problem, const Starts &starts,
          const std::vector<std::vector<uint32_t>> &numbers)
      : machine(machine), problem(problem), starts(starts), program(machine),
        last(problem.bundles.size()) {
    for (size_t pe = 0; pe < numbers.size(); ++pe) {
      now.emplace_back(numbers[pe].size());
      for (uint32_t k = 0; k < numbers[pe].size(); ++k)
        now[pe][numbers[pe][k]] = k;
      program.pes[pe].instructions.resize(numbers[pe].size());
      program.pes[pe].placements.assign(numbers[pe].size(), kNobody);
    }
  }

  /// A program whose pieces are the bundles, by their starts.
  const Program &run(const std::vector<std::vector<uint32_t>> &kernelOf) {
    findLastBefore();
    for (uint32_t step = 0; step < problem.steps.size(); ++step)
      addStep(step, kernelOf);
    return program;
  }

private:
  /// What a bundle waits for last.
  struct Bound {
    Cycle until = 0;
    Cause cause = Cause::StepBegin;
    uint32_t holder = kNobody; ///< a bundle
  };
  const Machine &machine;
  const ScheduleProblem &problem;
  const Starts &starts;
  Program program;
  std::vector<Bound> last;                ///< by bundle
  std::vector<std::vector<uint32_t>> now; ///< [pe][number in the image before]

  void raise(uint32_t bundle, Bound bound) {
    if (bound.until > last[bundle].until)
      last[bundle] = bound;
  }
  void findLastBefore() {
    for (Bound &bound : last)
      bound = {0, Cause::StepBegin, kNobody};
    for (uint32_t b = 0; b < last.size(); ++b)
      if (problem.steps[problem.bundles[b].step].step > 0)
        last[b].cause = Cause::HostBarrier;
    for (const Precedence &p : problem.precedence)
      raise(p.after, {starts[p.before] + p.distance, causeOf(p.kind), p.before});
    for (const auto &[before, after] : successionsOf(problem, starts)) {
      const Span &s = problem.spans[before];
      const auto end =
          std::max_element(s.ends.begin(), s.ends.end(), [&](const Moment &x, const Moment &y) {
            return starts[x.bundle] + x.at < starts[y.bundle] + y.at;
          });
      for (const Moment &m : problem.spans[after].begins)
        if (end != s.ends.end() && end->bundle != m.bundle)
          raise(m.bundle, {starts[end->bundle] + end->at - m.at,
                           causeOf(problem.resources[s.resource].kind), end->bundle});
    }
  }

  void note(const Bound &bound) {
    Wait wait{bound.until, 0, 0, kNobody, kNobody, kNobody, bound.cause};
    if (bound.holder != kNobody) {
      const Member &m = problem.bundles[bound.holder].members.front();
      wait.pe = m.pe;
      wait.holder = now[m.pe][m.instruction];
    }
    program.waits.waits.push_back(wait);
  }

  void addStep(uint32_t step, const std::vector<std::vector<uint32_t>> &kernelOf) {
    std::vector<uint32_t> bundles;
    Board board(problem);
    for (uint32_t b = 0; b < starts.size(); ++b)
      if (problem.bundles[b].step == step) {
        bundles.push_back(b);
        board.put(b, starts[b]);
      }
    std::stable_sort(bundles.begin(), bundles.end(),
                     [&](uint32_t x, uint32_t y) { return starts[x] < starts[y]; });
    for (const uint32_t b : bundles) {
      board.take(b, starts[b]);
      addReasons(b, board);
      board.put(b, starts[b]);
      const Member &first = problem.bundles[b].members.front();
      program.waits.placements.back().kernel = kernelOf[first.pe][first.instruction];
    }
  }

  void addReasons(uint32_t b, const Board &board) {
    const auto placement = uint32_t(program.waits.placements.size());
    program.waits.placements.push_back({starts[b], kNobody, uint32_t(program.waits.waits.size())});
    for (const Member &m : problem.bundles[b].members)
      program.pes[m.pe].placements[now[m.pe][m.instruction]] = placement;
    Bound bound = last[b];
    if (bound.cause == Cause::AccumulateInterval) { // first the pass before is not there
      const Cycle interval = program.timing.accumulateInterval();
      if (bound.until >= interval)
        note({bound.until - interval + 1, Cause::PartialSum, bound.holder});
    }
    note(bound);
    while (bound.until < starts[b]) {
      const auto obstacle = board.obstacle(b, bound.until);
      if (obstacle)
        bound = {std::min(obstacle->until, starts[b]),
                 causeOf(problem.resources[obstacle->resource].kind), obstacle->holder};
      else
        bound = {starts[b], Cause::GivenStart, kNobody};
      note(bound);
    }
  }
};

} // namespace

Expected<CycleAccount> accountOf(const Image &image, const Machine &machine,
                                 const ScheduleProblem &problem, const Starts &starts,
                                 const std::vector<std::vector<uint32_t>> &numbers,
                                 const std::vector<std::vector<uint32_t>> &kernelOf, bool withGaps,
                                 const std::vector<Relief> &reliefs) {
  Reasons reasons(machine, problem, starts, numbers);
  const Program &program = reasons.run(kernelOf);
  std::vector<std::vector<uint32_t>> own; // an instruction's number in the program is its own
  for (const auto &list : numbers) {
    own.emplace_back(list.size());
    std::iota(own.back().begin(), own.back().end(), 0u);
  }
  Expected<Ledger> ledger = account(image, program, own, withGaps);
  if (!ledger)
    return ledger.takeError();
  CycleAccount all{std::move(*ledger), boundsOf(image, program, own), {}};
  if (!reliefs.empty()) {
    Expected<std::vector<int64_t>> relieved = relievedCycles(image, program, own, reliefs);
    if (!relieved)
      return relieved.takeError();
    all.relieved = std::move(*relieved);
  }
  return all;
}

} // namespace millrace::schedule
