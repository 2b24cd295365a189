// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/MemoryPlan/Allocator.h"

#include <algorithm>
#include <functional>

namespace millrace::memory {

HemisphereAllocator::HemisphereAllocator(const Machine &machine, unsigned slicesPerRegister,
                                         unsigned banks)
    : spec(machine.memory), banks(banks ? banks : spec.banks) {
  free.resize(size_t(spec.slices) * spec.banks);
  for (unsigned s = 0; s < spec.slices; ++s)
    for (unsigned b = 0; b < this->banks; ++b)
      if (!slicesPerRegister || s % spec.slicesPerRegister < slicesPerRegister)
        runs(s, b).push_back({b * spec.rowsPerBank, spec.rowsPerBank, INT64_MIN / 4, true});
}

HemisphereAllocator::Run HemisphereAllocator::common(const std::vector<unsigned> &slices,
                                                     unsigned bank, unsigned rows, bool fresh) {
  constexpr Cycle kAnyTime = INT64_MIN / 4;
  Run best{0, 0, 0, true};
  // Candidates begin where a free run of some slice begins.
  for (unsigned s : slices)
    for (const Run &candidate : runs(s, bank)) {
      if (fresh && !candidate.fresh)
        continue;
      unsigned length = rows;
      Cycle notBefore = kAnyTime;
      for (unsigned o : slices) {
        const std::vector<Run> &list = runs(o, bank);
        auto run = std::upper_bound(
            list.begin(), list.end(), candidate.address,
            [](unsigned address, const Run &r) { return address < r.address + r.rows; });
        unsigned reach = 0; // how far from candidate.address slice o is free
        for (; run != list.end() && reach < rows && (!fresh || run->fresh) &&
               run->address <= candidate.address + reach;
             ++run) {
          notBefore = std::max(notBefore, run->notBefore);
          reach = run->address + run->rows - candidate.address;
        }
        length = std::min(length, reach);
        if (length == 0 || length < best.rows)
          break;
      }
      if (length > best.rows || (length == best.rows && length && notBefore < best.notBefore))
        best = {candidate.address, length, notBefore, true};
      if (best.rows == rows && best.notBefore == kAnyTime)
        return best;
    }
  return best;
}

std::vector<HemisphereAllocator::Range> HemisphereAllocator::rangesOf(unsigned slice, unsigned bank,
                                                                      bool fresh) const {
  std::vector<Range> ranges;
  for (const Run &run : free[slice * spec.banks + bank]) {
    if (fresh && !run.fresh)
      continue;
    if (!ranges.empty() && ranges.back().end == run.address)
      ranges.back().end += run.rows;
    else
      ranges.push_back({run.address, run.address + run.rows});
  }
  return ranges;
}

std::vector<HemisphereAllocator::Range>
HemisphereAllocator::intersection(const std::vector<Range> &x, const std::vector<Range> &y) {
  std::vector<Range> both;
  for (auto a = x.begin(), b = y.begin(); a != x.end() && b != y.end();) {
    const unsigned from = std::max(a->begin, b->begin), to = std::min(a->end, b->end);
    if (from < to)
      both.push_back({from, to});
    ++(a->end < b->end ? a : b);
  }
  return both;
}

Span HemisphereAllocator::take(unsigned width, unsigned rows, unsigned first, unsigned last,
                               const std::vector<unsigned> &avoid, unsigned most, bool fresh) {
  Span span;
  Run best{0, 0, 0, true};
  unsigned bestCost = UINT32_MAX;
  for (unsigned bank = 0; bank < spec.banks; ++bank) {
    // The cheapest slices of this bank that have room of their own; ties go to the emptiest.
    struct Candidate {
      unsigned cost;
      unsigned room;
      unsigned slice;
    };
    std::vector<Candidate> candidates;
    for (unsigned s = first; s < last; ++s) {
      unsigned longest = 0, room = 0;
      for (const Run &r : runs(s, bank)) {
        if (fresh && !r.fresh)
          continue;
        longest = std::max(longest, r.rows);
        room += r.rows;
      }
      unsigned cost = avoid.empty() ? 0 : avoid[s * spec.banks + bank];
      if (longest == 0 || cost >= most)
        continue;
      candidates.push_back({cost + (longest < rows ? 1000 : 0), room, s});
    }
    if (candidates.size() < width)
      continue;
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate &x, const Candidate &y) {
                       return x.cost != y.cost ? x.cost < y.cost : x.room > y.room;
                     });
    std::vector<unsigned> slices;
    unsigned cost = 0;
    for (unsigned k = 0; k < width; ++k) {
      slices.push_back(candidates[k].slice);
      cost += candidates[k].cost;
    }
    Run run = common(slices, bank, rows, fresh);
    // The cheapest slices are free at different addresses: each with the next ones that it meets.
    for (size_t seed = 0; seed < candidates.size() && run.rows == 0; ++seed) {
      slices = {candidates[seed].slice};
      cost = candidates[seed].cost;
      std::vector<Range> shared = rangesOf(slices.front(), bank, fresh);
      for (size_t k = 0; k < candidates.size() && slices.size() < width; ++k) {
        if (k == seed)
          continue;
        std::vector<Range> meeting =
            intersection(shared, rangesOf(candidates[k].slice, bank, fresh));
        if (meeting.empty())
          continue;
        shared = std::move(meeting);
        slices.push_back(candidates[k].slice);
        cost += candidates[k].cost;
      }
      if (slices.size() == width)
        run = common(slices, bank, rows, fresh);
    }
    if (run.rows == 0)
      continue;
    if (run.rows > best.rows || (run.rows == best.rows && cost < bestCost)) {
      best = run;
      bestCost = cost;
      span.slices = slices;
    }
  }
  if (best.rows == 0)
    return {};
  span.address = best.address;
  span.rows = best.rows;
  span.notBefore = best.notBefore;
  for (unsigned s : span.slices)
    remove(s, best.address / spec.rowsPerBank, best.address, best.rows);
  return span;
}

HemisphereAllocator::Run HemisphereAllocator::joined(unsigned slice, unsigned bank,
                                                     unsigned rows) const {
  const std::vector<Run> &list = free[slice * spec.banks + bank];
  Run best{0, 0, 0, false};
  for (size_t i = 0; i < list.size(); ++i) {
    Run run{list[i].address, 0, list[i].notBefore, false};
    for (size_t k = i;
         k < list.size() && run.rows < rows && list[k].address == run.address + run.rows; ++k) {
      run.rows += list[k].rows;
      run.notBefore = std::max(run.notBefore, list[k].notBefore);
    }
    if (run.rows >= rows && (!best.rows || run.notBefore < best.notBefore))
      best = {run.address, rows, run.notBefore, false};
  }
  return best;
}

std::vector<Span> HemisphereAllocator::takeApart(unsigned width, unsigned rows, unsigned first,
                                                 unsigned last, const std::vector<unsigned> &avoid,
                                                 bool fresh) {
  struct Candidate {
    unsigned cost, room, slice, address;
    Cycle notBefore;
  };
  std::vector<Candidate> candidates;
  // Runs that became free at different times are joined only where too few are long enough.
  for (const bool joins : {false, true}) {
    if (candidates.size() >= width || (joins && fresh))
      break;
    candidates.clear();
    for (unsigned s = first; s < last; ++s) {
      Candidate best{UINT32_MAX, 0, s, 0, 0};
      for (unsigned bank = 0; bank < spec.banks; ++bank) {
        const unsigned cost = avoid.empty() ? 0 : avoid[s * spec.banks + bank];
        unsigned room = 0;
        Run fit = joins ? joined(s, bank, rows) : Run{0, 0, 0};
        for (const Run &r : runs(s, bank)) {
          if (fresh && !r.fresh)
            continue;
          room += r.rows;
          if (!joins && r.rows >= rows && (!fit.rows || r.notBefore < fit.notBefore))
            fit = r;
        }
        if (fit.rows && cost < kForbidden &&
            (cost < best.cost || (cost == best.cost && room > best.room)))
          best = {cost, room, s, fit.address, fit.notBefore};
      }
      if (best.cost != UINT32_MAX)
        candidates.push_back(best);
    }
  }
  if (candidates.size() < width)
    return {};
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate &x, const Candidate &y) {
                     return x.cost != y.cost ? x.cost < y.cost : x.room > y.room;
                   });
  candidates.resize(width);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate &x, const Candidate &y) { return x.slice < y.slice; });
  std::vector<Span> spans;
  for (const Candidate &c : candidates) {
    remove(c.slice, c.address / spec.rowsPerBank, c.address, rows);
    spans.push_back({{c.slice}, c.address, rows, c.notBefore});
  }
  return spans;
}

std::vector<Span> HemisphereAllocator::takeLongest(unsigned width, unsigned rows, unsigned first,
                                                   unsigned last,
                                                   const std::vector<unsigned> &avoid, bool fresh) {
  std::vector<unsigned> longest; // of each slice
  for (unsigned s = first; s < last; ++s) {
    longest.push_back(0);
    for (unsigned bank = 0; bank < spec.banks; ++bank)
      if (avoid.empty() || avoid[s * spec.banks + bank] < kForbidden)
        for (const Run &r : runs(s, bank))
          if (!fresh || r.fresh)
            longest.back() = std::max(longest.back(), r.rows);
  }
  if (longest.size() < width)
    return {};
  std::nth_element(longest.begin(), longest.begin() + (width - 1), longest.end(),
                   std::greater<unsigned>());
  const unsigned most = std::min(rows, longest[width - 1]);
  return most ? takeApart(width, most, first, last, avoid, fresh) : std::vector<Span>();
}

std::vector<Span> HemisphereAllocator::takeAcross(unsigned width, unsigned rows, unsigned first,
                                                  unsigned last,
                                                  const std::vector<unsigned> &avoid) {
  std::vector<std::pair<unsigned, unsigned>> candidates; ///< cost, slice
  for (unsigned s = first; s < last && rows <= banks * spec.rowsPerBank; ++s) {
    unsigned cost = 0;
    bool isFree = true;
    for (unsigned bank = 0; bank < banks && isFree; ++bank) {
      unsigned fresh = 0;
      for (const Run &run : runs(s, bank))
        fresh += run.fresh ? run.rows : 0;
      isFree = fresh == spec.rowsPerBank;
      cost = std::max(cost, avoid.empty() ? 0 : avoid[s * spec.banks + bank]);
    }
    if (isFree && cost < kForbidden)
      candidates.push_back({cost, s});
  }
  if (candidates.size() < width)
    return {};
  std::sort(candidates.begin(), candidates.end());
  std::vector<Span> spans;
  for (unsigned k = 0; k < width; ++k) {
    const unsigned s = candidates[k].second;
    for (unsigned from = 0; from < rows; from += spec.rowsPerBank) {
      const unsigned count = std::min(spec.rowsPerBank, rows - from);
      remove(s, from / spec.rowsPerBank, from, count);
      spans.push_back({{s}, from, count, INT64_MIN / 4});
    }
  }
  return spans;
}

void HemisphereAllocator::remove(unsigned slice, unsigned bank, unsigned address, unsigned rows) {
  // Most of what is taken leaves all other runs of the bank as they are.
  std::vector<Run> &list = runs(slice, bank);
  const unsigned last = address + rows;
  auto at = std::partition_point(list.begin(), list.end(),
                                 [&](const Run &r) { return r.address + r.rows <= address; });
  while (at != list.end() && at->address < last) {
    const Run run = *at;
    const unsigned end = run.address + run.rows;
    const bool before = run.address < address, after = last < end;
    if (!before && !after) {
      at = list.erase(at);
      continue;
    }
    if (before)
      at->rows = address - run.address;
    if (before && after)
      at = list.insert(at + 1, run);
    if (after) {
      at->address = last;
      at->rows = end - last;
    }
    ++at;
  }
}

void HemisphereAllocator::give(const Span &span, bool fresh) {
  unsigned bank = span.address / spec.rowsPerBank;
  for (unsigned s : span.slices) {
    auto &list = runs(s, bank);
    const auto at = std::partition_point(list.begin(), list.end(),
                                         [&](const Run &r) { return r.address < span.address; });
    list.insert(at, {span.address, span.rows, span.notBefore, fresh});
  }
}

void HemisphereAllocator::forgetTimes() {
  for (auto &list : free)
    for (Run &run : list)
      run.notBefore = INT64_MIN / 4;
}

unsigned HemisphereAllocator::longestRun(unsigned slice) const {
  unsigned longest = 0;
  for (unsigned b = 0; b < spec.banks; ++b) {
    unsigned end = 0, rows = 0; // of runs that follow each other
    for (const Run &r : free[slice * spec.banks + b]) {
      rows = r.address == end ? rows + r.rows : r.rows;
      end = r.address + r.rows;
      longest = std::max(longest, rows);
    }
  }
  return longest;
}

uint64_t HemisphereAllocator::freeRows(unsigned first, unsigned last) const {
  uint64_t rows = 0;
  for (unsigned s = first; s < last; ++s)
    for (unsigned b = 0; b < spec.banks; ++b)
      for (const Run &r : free[s * spec.banks + b])
        rows += r.rows;
  return rows;
}

} // namespace millrace::memory
