// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which rows of a tensor each hemisphere holds, and how those that both hold are written.
#include "compiler/Codegen/Grid/Storage.h"

#include <algorithm>

namespace millrace::grid {

using forms::TensorRole;

namespace {

/// Did the other hemisphere's workers write these rows? Members of a team are by turns of west and
/// east (workersOf).
bool isForeign(const RowRun &run, Hemisphere h) { return run.owner % kHemispheres != unsigned(h); }

} // namespace

/// What the host touches lies whole in one place.
bool Storage::isDealt(unsigned tensor) const {
  const TensorRole role = c.tensor(tensor).role;
  return !c.whole.contains(tensor) &&
         (role == TensorRole::Intermediate || role == TensorRole::Constant) && !c.ofHost[tensor] &&
         needs[tensor].rows[0] && needs[tensor].rows[1];
}

/// What travels, and what nobody reads here, is in the west.
bool Storage::holds(unsigned tensor, unsigned pe, Hemisphere h, unsigned tile, int64_t row) const {
  const TensorRows &rows = partition.tensors[tensor];
  if (rows.read[pe][size_t(h)].has(tile, row))
    return true;
  if (h == Hemisphere::East)
    return false;
  if (!rows.read[pe][size_t(Hemisphere::East)].has(tile, row))
    return true;
  for (unsigned other = 0; other < c.machine.pes(); ++other)
    if (other != pe && rows.owned[pe].has(tile, row) && rows.needed[other].has(tile, row))
      return true;
  return false;
}

/// The parts of runs whose rows a hemisphere holds.
RowRuns Storage::heldOf(const RowRuns &runs, unsigned tensor, unsigned pe, Hemisphere h) const {
  RowRuns held(runs.size());
  for (unsigned tile = 0; tile < runs.size(); ++tile)
    for (const RowRun &run : runs[tile])
      for (int64_t row = run.first, from = row; row <= run.first + run.rows; ++row) {
        if (row < run.first + run.rows && holds(tensor, pe, h, tile, row))
          continue;
        if (row > from)
          held[tile].push_back({from, row - from, run.owner});
        from = row + 1;
      }
  return held;
}

/// So are tensors whose copies would take more than half of the slices with the rows of either
/// hemisphere's workers apart, if those of the other one are a few runs and the smaller part.
bool Storage::isGathered(unsigned tensor) const {
  if (gathers.size() <= tensor)
    gathers.resize(c.graph.tensors.size());
  std::optional<bool> &known = gathers[tensor];
  if (!known)
    known = findGathered(tensor);
  return *known;
}

bool Storage::findGathered(unsigned tensor) const {
  constexpr int64_t kMostRuns = 4; // of a lane tile: each is written by a piece of its own
  const unsigned copies = std::min(needs[tensor].rows[0], needs[tensor].rows[1]);
  if (!isDealt(tensor) || copies < 2 ||
      kHemispheres * copies * byteWidth(c.tensor(tensor).type) <= c.slices() / 2)
    return false;
  for (const unsigned k : uses.writers[tensor])
    if (!works[k].roles.running.empty() ||
        (partition.splitK[k] && teamOf(c, c.graph.kernels[k]) > kHemispheres))
      return false; // no cut parts what both write
  for (unsigned pe = 0; pe < c.machine.pes(); ++pe) {
    if (!isOn(tensor, pe))
      continue;
    const RowRuns runs = runsOf(tensor, pe);
    for (const Hemisphere h : {Hemisphere::West, Hemisphere::East}) {
      int64_t own = 0, foreign = 0;
      for (const std::vector<RowRun> &list : heldOf(runs, tensor, pe, h)) {
        for (const RowRun &run : list)
          (isForeign(run, h) ? foreign : own) += run.rows;
        if (std::count_if(list.begin(), list.end(),
                          [h](const RowRun &run) { return isForeign(run, h); }) > kMostRuns)
          return false;
      }
      if (foreign > own && own > 0)
        return false;
    }
  }
  return true;
}

/// What a hemisphere holds with foreign rows as if the owner of rows before, or else behind, had
/// written them.
RowRuns Storage::gathered(RowRuns held, Hemisphere h) {
  for (std::vector<RowRun> &list : held) {
    const auto first = std::find_if(list.begin(), list.end(),
                                    [h](const RowRun &run) { return !isForeign(run, h); });
    if (first == list.end())
      continue;
    unsigned owner = first->owner;
    std::vector<RowRun> joined;
    for (RowRun run : list) {
      owner = run.owner = isForeign(run, h) ? owner : run.owner;
      if (!joined.empty() && joined.back().owner == owner &&
          joined.back().first + joined.back().rows == run.first)
        joined.back().rows += run.rows;
      else
        joined.push_back(run);
    }
    list = std::move(joined);
  }
  return held;
}

std::vector<Share> Storage::cutForOthers(size_t k, unsigned pe, Hemisphere h,
                                         const std::vector<Share> &shares) const {
  const Kernel &kernel = c.graph.kernels[k];
  if (partition.splitK[k] ||
      std::none_of(kernel.results.begin(), kernel.results.end(),
                   [&](const forms::Result &r) { return isGathered(r.access.tensor); }))
    return shares;
  const Hemisphere other = h == Hemisphere::West ? Hemisphere::East : Hemisphere::West;
  const auto goesThere = [&](const Share &share) {
    bool goes = false;
    forEachWritten(c, kernel, works[k], share,
                   [&](unsigned t, unsigned tile, const SteppedRows &rows) {
                     if (isGathered(t))
                       rows.forEach([&](int64_t row) { goes |= holds(t, pe, other, tile, row); });
                   });
    return goes;
  };
  std::vector<Share> there, here;
  for (const Share &share : shares) {
    std::vector<Share> *before = nullptr;
    for (int64_t strip = share.strip; strip < share.strip + share.strips; ++strip) {
      std::vector<Share> *its = goesThere({share.instance, share.tile, strip, 1}) ? &there : &here;
      if (its != before)
        its->push_back({share.instance, share.tile, strip, 0});
      ++its->back().strips;
      before = its;
    }
  }
  there.insert(there.end(), here.begin(), here.end());
  return there;
}

} // namespace millrace::grid
