// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Flight.h"

#include <algorithm>

namespace millrace::grid {

namespace {

/// Parts of one kernel that are looked at, the first that wait: as many as work at once, and some.
constexpr size_t kMostCandidates = 16;

void addOnce(std::vector<uint32_t> &to, uint32_t number) {
  if (to.empty() || to.back() != number)
    to.push_back(number);
}

} // namespace

void Flight::add(size_t place, size_t kernel, const Work &work, std::vector<Part> its) {
  const Kernel &k = c.graph.kernels[kernel];
  Seen &seen = open[place];
  for (const forms::Node &node : k.nodes)
    seen.ops += node.kind == forms::Node::Kind::Op || node.kind == forms::Node::Kind::Reduce;
  seen.ops = std::min(seen.ops, alus);
  const auto touched = [&](unsigned tensor, unsigned tile) -> std::vector<Touched> & {
    std::vector<Touched> &list = rows[{tensor, tile}];
    if (list.empty())
      list.resize(size_t(c.layouts[tensor].rows));
    return list;
  };
  for (Part &part : its) {
    const Number number = Number(parts.size());
    std::vector<Number> before;
    const auto waitFor = [&](const std::vector<Number> &others) {
      for (const Number other : others)
        if (other != number && parts[other].place != place)
          before.push_back(other);
    };
    for (const Share &share : part.shares) {
      forEachRead(c, k, work, share, [&](unsigned tensor, unsigned tile, const SteppedRows &read) {
        std::vector<Touched> &list = touched(tensor, tile);
        read.forEach([&](int64_t row) {
          waitFor(list[size_t(row)].writers);
          addOnce(list[size_t(row)].readers, number);
        });
      });
      forEachWritten(c, k, work, share,
                     [&](unsigned tensor, unsigned tile, const SteppedRows &made) {
                       std::vector<Touched> &list = touched(tensor, tile);
                       made.forEach([&](int64_t row) {
                         Touched &its = list[size_t(row)];
                         waitFor(its.writers);
                         waitFor(its.readers);
                         addOnce(its.writers, number);
                       });
                     });
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    parts.push_back({place, std::move(part), std::move(before)});
    done.push_back(-1);
    seen.parts.push_back(number);
  }
  if (seen.parts.empty())
    open.erase(place);
}

/// The first cycle, `from` or one at which ALUs are freed, from which so many are free for so long.
Cycle Flight::whenFree(Cycle from, Cycle lasts, unsigned ops) const {
  unsigned inTheWay = 0; // ALUs that are taken before from + lasts and freed behind from
  for (auto next = taken.begin(), end = freed.begin();; from = end->to) {
    for (; next != taken.end() && next->from < from + lasts; ++next)
      inTheWay += next->ops;
    for (; end != freed.end() && end->to <= from; ++end)
      inTheWay -= end->ops;
    if (inTheWay + ops <= alus || !inTheWay)
      return from;
  }
}

/// Nothing while it waits for a part that is not scheduled.
std::optional<Cycle> Flight::beginOf(Number number) const {
  Cycle begin = 0;
  for (const Number before : parts[number].before) {
    if (done[before] < 0)
      return std::nullopt;
    begin = std::max(begin, done[before]);
  }
  for (const unsigned queue : parts[number].part.queues)
    if (const auto at = freeFrom.find(queue); at != freeFrom.end())
      begin = std::max(begin, at->second);
  const Seen &seen = open.at(parts[number].place);
  const Cycle epilogue = begin + seen.untilEpilogue;
  return begin + whenFree(epilogue, std::max<Cycle>(seen.lasts, 1), seen.ops) - epilogue;
}

/// What the part's bursts occupy, those from `first` on.
void Flight::note(Number number, size_t first) {
  const std::vector<Instruction> &bursts = c.program.pes[pe].instructions;
  Cycle begin = INT64_MAX, end = 0;
  Busy alu{INT64_MAX, 0, 0};
  for (size_t i = first; i < bursts.size(); ++i) {
    const Instruction &burst = bursts[i];
    const Cycle from = burst.cycle, to = Cycle(burst.lastCycle()) + 1;
    end = std::max(end, to);
    const Unit unit = c.machine.unit(burst.queue);
    if (unit.kind == UnitKind::Alu) {
      alu.from = std::min(alu.from, from);
      alu.to = std::max(alu.to, to);
      ++alu.ops;
    } else if (unit.kind == UnitKind::MxmActivate) {
      Cycle &free = freeFrom[burst.queue];
      free = std::max(free, to);
      begin = std::min(begin, from);
    }
  }
  Seen &seen = open.at(parts[number].place);
  if (alu.ops) {
    alu.ops = std::min(alu.ops, seen.ops);
    seen.untilEpilogue = begin == INT64_MAX ? 0 : alu.from - begin;
    seen.lasts = alu.to - alu.from;
    taken.insert(std::ranges::upper_bound(taken, alu.from, {}, &Busy::from), alu);
    freed.insert(std::ranges::upper_bound(freed, alu.to, {}, &Busy::to), alu);
  }
  done[number] = end + c.machine.latency.readAfterWrite;
}

Expected<size_t> Flight::scheduleNext() {
  std::optional<Number> next;
  Cycle first = 0;
  for (const auto &[place, seen] : open)
    for (size_t i = 0; i < std::min(kMostCandidates, seen.parts.size()); ++i)
      if (const std::optional<Cycle> begin = beginOf(seen.parts[i]);
          begin && (!next || *begin < first)) {
        next = seen.parts[i];
        first = *begin;
      }
  if (!next) // each waits for parts of kernels before its own: the first kernel's wait for none
    return Error{"parts of kernels wait for each other"};
  const size_t place = parts[*next].place;
  const size_t bursts = c.program.pes[pe].instructions.size();
  if (Status s = parts[*next].part.schedule(); !s)
    return s.takeError();
  note(*next, bursts);
  parts[*next].part = {};
  std::vector<Number> &waiting = open.at(place).parts;
  waiting.erase(std::find(waiting.begin(), waiting.end(), *next));
  if (waiting.empty())
    open.erase(place);
  for (std::vector<Busy> *alusOf : {&taken, &freed})
    std::erase_if(*alusOf, [&](const Busy &b) { return b.to <= first; });
  return place;
}

void Flight::forget() {
  parts.clear();
  done.clear();
  freeFrom.clear();
  taken.clear();
  freed.clear();
  rows.clear();
}

} // namespace millrace::grid
