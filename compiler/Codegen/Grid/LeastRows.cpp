// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Contraction.h"
#include "compiler/Codegen/Grid/Storage.h"

#include <algorithm>
#include <unordered_set>

namespace millrace::grid {

using forms::TensorRole;

namespace {

/// Rows that a PE holds of a lane tile.
std::vector<bool> rowsOn(const TensorRows &rows, unsigned pe, unsigned tile) {
  std::vector<bool> held;
  for (const RowSet *set : {&rows.owned[pe], &rows.needed[pe]}) {
    if (tile >= set->tiles.size() || set->tiles[tile].empty())
      continue;
    const std::vector<bool> &its = set->tiles[tile];
    held.resize(its.size(), false);
    for (size_t row = 0; row < its.size(); ++row)
      held[row] = held[row] || its[row];
  }
  return held;
}

} // namespace

uint64_t Storage::rowsHeld(unsigned tensor, unsigned pe, Hemisphere h) const {
  const bool isPart = isDealt(tensor);
  uint64_t held = 0;
  for (unsigned tile = 0; tile < c.layouts[tensor].tiles.size(); ++tile) {
    const std::vector<bool> rows = rowsOn(partition.tensors[tensor], pe, tile);
    for (size_t row = 0; row < rows.size(); ++row)
      held += rows[row] && (!isPart || holds(tensor, pe, h, tile, int64_t(row)));
  }
  return held;
}

std::vector<Storage::LeastRows> Storage::leastRowsOn(unsigned pe) const {
  const unsigned width = c.machine.mxm.columnsPerInstall;
  const std::vector<bool> isReadByRow = findReadByRow();
  std::vector<LeastRows> least;
  for (unsigned t = 0; t < needs.size(); ++t) {
    const bool constant = c.tensor(t).role == TensorRole::Constant;
    if (lives[t].from == SIZE_MAX || !isOn(t, pe) ||
        (constant && (isOfOneKernel(t) || !isReadByRow[t])))
      continue;
    const uint64_t bytes = byteWidth(c.tensor(t).type);
    const uint64_t columns =
        !constant && needs[t].columns
            ? uint64_t(c.layouts[t].rows) / width * width * bytes * c.layouts[t].tiles.size()
            : 0;
    least.push_back({t, constant, {}});
    for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
      least.back().rows[size_t(h)] =
          needs[t].rows[size_t(h)] * rowsHeld(t, pe, h) * bytes + columns;
  }
  for (size_t k = 0; k < c.graph.kernels.size(); ++k)
    for (const forms::Term &term : c.graph.kernels[k].terms)
      if (const unsigned t = term.a.tensor;
          c.tensor(t).role == TensorRole::Constant && isOfOneKernel(t)) {
        least.push_back({t, true, {}});
        for (Hemisphere h : {Hemisphere::West, Hemisphere::East})
          for (const std::vector<RowRun> &list : streamedRuns(t, k, pe, h))
            for (const RowRun &run : list)
              least.back().rows[size_t(h)] +=
                  needs[t].rows[size_t(h)] * uint64_t(run.rows) * byteWidth(c.tensor(t).type);
      }
  return least;
}

Storage::Peak Storage::peakOf(const std::vector<LeastRows> &least, Hemisphere h) const {
  size_t end = 0;
  for (const Life &life : lives)
    end = std::max(end, life.from == SIZE_MAX ? 0 : life.to);
  std::vector<int64_t> change(end + 2);
  Peak peak;
  for (const LeastRows &its : least) {
    const auto rows = int64_t(its.rows[size_t(h)]);
    change[its.isKept ? 0 : lives[its.tensor].from] += rows;
    change[its.isKept ? end + 1 : lives[its.tensor].to + 1] -= rows;
  }
  int64_t sum = 0;
  for (size_t at = 0; at <= end; ++at)
    if (sum += change[at]; uint64_t(sum) > peak.rows)
      peak = {uint64_t(sum), at};
  return peak;
}

std::vector<uint64_t> Storage::leastValueRows() const {
  std::vector<uint64_t> least;
  for (unsigned pe = 0; pe < c.machine.pes(); ++pe) {
    const std::vector<LeastRows> its = leastRowsOn(pe);
    for (const Hemisphere h : {Hemisphere::West, Hemisphere::East})
      least.push_back(peakOf(its, h).rows);
  }
  return least;
}

/// Of what a hemisphere holds at its peak the three tensors of most rows.
std::string Storage::largestAtPeak(unsigned pe, Hemisphere h) const {
  std::vector<LeastRows> least = leastRowsOn(pe);
  const size_t at = peakOf(least, h).place;
  std::erase_if(least, [&](const LeastRows &its) {
    return !its.rows[size_t(h)] ||
           (!its.isKept && (lives[its.tensor].from > at || lives[its.tensor].to < at));
  });
  std::stable_sort(least.begin(), least.end(), [&](const LeastRows &x, const LeastRows &y) {
    return x.rows[size_t(h)] > y.rows[size_t(h)];
  });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(3, least.size()); ++i)
    text += (i ? ", '" : ": '") + c.tensor(least[i].tensor).name + "' " +
            std::to_string(least[i].rows[size_t(h)]) + " rows";
  return text;
}

std::vector<uint64_t> Storage::roomBesideValues(unsigned gaps) const {
  const uint64_t width = c.machine.mxm.columnsPerInstall, all = c.rowsOfHemisphere() / width;
  std::vector<uint64_t> room;
  for (const uint64_t values : leastValueRows())
    room.push_back(all - std::min(all, values / width + all / 16 * gaps));
  return room;
}

Expected<std::array<uint64_t, kHemispheres>> Storage::weightRowsOn(unsigned pe) const {
  std::array<std::unordered_set<std::string>, kHemispheres> stored;
  std::array<uint64_t, kHemispheres> sum{};
  for (size_t k = 0; k < c.graph.kernels.size(); ++k) {
    const Kernel &kernel = c.graph.kernels[k];
    if (kernel.terms.empty())
      continue;
    const std::vector<Worker> team = workersOf(c, pe, contractedType(c, kernel));
    for (size_t member = 0; member < team.size(); ++member) {
      const auto h = size_t(team[member].hemisphere);
      for (const Share &share :
           sharesOf(c, works[k], partition, k, pe, member, longestShare(c, works[k])))
        if (Status s = forEachWeightTile(
                c, kernel, k, works[k], share, team[member],
                partition.splitK[k] ? std::optional(halfOf(partition, k, team[member].hemisphere))
                                    : std::nullopt,
                [&](const std::string &key, unsigned rows) {
                  sum[h] += stored[h].insert(key).second ? rows : 0;
                });
            !s)
          return s.takeError();
    }
  }
  return sum;
}

Status Storage::checkRoom() const {
  const uint64_t all = c.rowsOfHemisphere();
  const unsigned width = c.machine.mxm.columnsPerInstall;
  const std::vector<uint64_t> values = leastValueRows();
  for (unsigned pe = 0; pe < c.machine.pes(); ++pe) {
    const auto isOver = [&](unsigned h, uint64_t weights) {
      return values[size_t(pe) * kHemispheres + h] + weights * width > all;
    };
    const uint64_t *counted = &partition.weightRows[size_t(pe) * kHemispheres];
    if (!isOver(0, counted[0]) && !isOver(1, counted[1]))
      continue;
    const Expected<std::array<uint64_t, kHemispheres>> weights = weightRowsOn(pe);
    if (!weights)
      return Error{weights.error()};
    for (unsigned h = 0; h < kHemispheres; ++h) {
      if (!isOver(h, (*weights)[h]))
        continue;
      c.full = true;
      const auto size = [&](uint64_t n) {
        return std::to_string(n) + " rows (" + std::to_string(n * c.machine.lanes() / 1024) +
               " KiB)";
      };
      return Error{"weights that the " + std::string(h == 0 ? "west" : "east") +
                   " hemisphere of PE " + std::to_string(pe) + " installs take " +
                   size((*weights)[h] * width) +
                   ", and what it holds of other tensors at its peak at least " +
                   size(values[size_t(pe) * kHemispheres + h]) + largestAtPeak(pe, Hemisphere(h)) +
                   "; it has " + size(all) + "; use a machine with more memory or more PEs"};
    }
  }
  return Success{};
}

/// Per tensor: does a kernel read its rows one after the other? Constants of others lie in constant
/// rows.
std::vector<bool> Storage::findReadByRow() const {
  std::vector<bool> byRow(c.graph.tensors.size(), false);
  for (const Kernel &kernel : c.graph.kernels) {
    for (const forms::Term &t : kernel.terms)
      byRow[t.a.tensor] = true;
    for (const Access &o : kernel.operands)
      for (unsigned l = 0; l < kernel.loops.size() && !o.lookup; ++l)
        if (rowCoefficient(c.layouts[o.tensor], o, l) != 0)
          byRow[o.tensor] = true;
  }
  return byRow;
}

} // namespace millrace::grid
