// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/WeightRows.h"

#include "compiler/Codegen/Grid/Contraction.h"
#include "compiler/Codegen/Grid/Shares.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <unordered_map>

namespace millrace::grid {

namespace {

int64_t unitsOf(const Work &work, const Share &share) {
  return work.roles.running.empty() ? share.strips : 1;
}

/// Whole shares for either hemisphere, alternately: so that both have as much to do as can be. The
/// odd one goes to the hemisphere that stores less.
std::vector<Hemisphere> dealWhole(const Work &work, const std::vector<Share> &shares,
                                  const std::vector<uint64_t> &rows,
                                  const WeightRows::PerHemisphere &stored) {
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    return unitsOf(work, shares[x]) > unitsOf(work, shares[y]);
  });
  std::array<int64_t, kHemispheres> units{};
  WeightRows::PerHemisphere sum = stored;
  std::vector<Hemisphere> dealt(shares.size());
  for (size_t i : order) {
    const size_t h = units[0] != units[1] ? (units[0] < units[1] ? 0 : 1)
                     : sum[0] <= sum[1]   ? 0
                                          : 1;
    units[h] += unitsOf(work, shares[i]);
    sum[h] += rows[i];
    dealt[i] = Hemisphere(h);
  }
  return dealt;
}

} // namespace

Expected<WeightRows> WeightRows::of(Context &c, const std::vector<Work> &works) {
  WeightRows all(c, works);
  const Machine &m = c.machine;
  // A model that will be refused may have a million tiles: by how much it is too large matters
  // no longer once it is twice as large as all memory.
  const uint64_t enough = 2 * uint64_t(m.pes()) * kHemispheres * m.memory.slices *
                          m.rowsPerSlice() / m.mxm.columnsPerInstall;
  std::unordered_map<std::string, uint32_t> known;
  uint64_t sum = 0;
  all.tiles.resize(works.size());
  all.columns.assign(works.size(), 0);
  for (size_t k = 0; k < works.size(); ++k) {
    const Kernel &kernel = c.graph.kernels[k];
    const Work &work = works[k];
    all.tiles[k].resize(work.instances.size() * work.tiles.size());
    if (kernel.terms.empty())
      continue;
    std::set<unsigned> counted;
    for (const forms::Term &t : kernel.terms)
      if (c.tensor(t.w.tensor).role != forms::TensorRole::Constant &&
          counted.insert(t.w.tensor).second)
        all.columns[k] += uint64_t(c.layouts[t.w.tensor].rows / m.mxm.columnsPerInstall + 2) *
                          byteWidth(c.tensor(t.w.tensor).type) * c.layouts[t.w.tensor].tiles.size();
    const Worker worker = workersOf(m, 0, contractedType(c, kernel)).front();
    for (size_t at = 0; at < all.tiles[k].size() && sum <= enough; ++at) {
      std::vector<uint32_t> &list = all.tiles[k][at];
      const Share share{at / work.tiles.size(), at % work.tiles.size(), 0, work.strips};
      auto note = [&](const std::string &key, unsigned rows) {
        const auto [it, isNew] = known.emplace(key, uint32_t(all.rows.size()));
        if (isNew) {
          all.rows.push_back(rows);
          sum += rows;
        }
        if (list.empty() || list.back() != it->second)
          list.push_back(it->second);
      };
      if (Status s = forEachWeightTile(c, kernel, k, work, share, worker, note); !s)
        return s.takeError();
    }
  }
  return all;
}

uint64_t WeightRows::rowsOf(size_t kernel, const Share &share) const {
  uint64_t sum = 0;
  for (uint32_t tile : tilesOf(kernel, share))
    sum += rows[tile];
  return sum;
}

std::vector<std::vector<bool>> WeightRows::placesOf(const Partition &p, size_t kernel,
                                                    unsigned pe) const {
  const std::vector<Share> &shares = p.shares[kernel][pe];
  std::vector<std::vector<bool>> places(shares.size(), std::vector<bool>(kHemispheres, false));
  if (!p.hemispheres[kernel][pe].empty()) {
    for (size_t i = 0; i < shares.size(); ++i)
      places[i][size_t(p.hemispheres[kernel][pe][i])] = true;
    return places;
  }
  const int64_t team = int64_t(teamOf(c, c.graph.kernels[kernel]));
  int64_t units = 0, at = 0;
  for (const Share &share : shares)
    units += unitsOf(works[kernel], share);
  for (size_t i = 0; i < shares.size(); ++i) { // as sharesOf deals them
    const int64_t end = at + unitsOf(works[kernel], shares[i]);
    for (int64_t member = 0; member < team; ++member)
      if (std::max(at, units * member / team) < std::min(end, units * (member + 1) / team))
        places[i][size_t(member) % kHemispheres] = true;
    at = end;
  }
  return places;
}

std::vector<uint64_t> WeightRows::stored(const Partition &p) const {
  const size_t pes = c.machine.pes();
  std::vector<uint64_t> sums(pes * kHemispheres, 0);
  std::vector<bool> seen;
  for (unsigned pe = 0; pe < pes; ++pe)
    for (unsigned h = 0; h < kHemispheres; ++h) {
      uint64_t &sum = sums[pe * kHemispheres + h];
      seen.assign(rows.size(), false);
      for (size_t k = 0; k < works.size(); ++k) {
        const auto places = placesOf(p, k, pe);
        if (!places.empty())
          sum += columns[k];
        for (size_t i = 0; i < places.size(); ++i)
          for (uint32_t tile :
               places[i][h] ? tilesOf(k, p.shares[k][pe][i]) : std::vector<uint32_t>())
            if (!seen[tile]) {
              seen[tile] = true;
              sum += rows[tile];
            }
      }
    }
  return sums;
}

void WeightRows::spare(Partition &p, uint64_t most) const {
  std::vector<uint64_t> sums = stored(p);
  for (unsigned pe = 0; pe < c.machine.pes(); ++pe) {
    PerHemisphere sum{sums[pe * kHemispheres], sums[pe * kHemispheres + 1]};
    struct Saving {
      size_t kernel;
      double cyclesPerRow;
    };
    std::vector<Saving> savings;
    std::vector<std::vector<uint64_t>> shareRows(works.size());
    // What is one share on one hemisphere anyway costs nothing on the other.
    for (size_t k = 0; k < works.size() && std::max(sum[0], sum[1]) > most; ++k) {
      const std::vector<Share> &shares = p.shares[k][pe];
      if (shares.size() != 1 || unitsOf(works[k], shares.front()) != 1)
        continue;
      const std::vector<std::vector<bool>> places = placesOf(p, k, pe);
      const uint64_t its = rowsOf(k, shares.front());
      sum[places.front()[0] ? 0 : 1] -= its;
      p.hemispheres[k][pe] = dealWhole(works[k], shares, {its}, sum);
      sum[size_t(p.hemispheres[k][pe].front())] += its;
    }
    for (size_t k = 0; k < works.size(); ++k) {
      const std::vector<Share> &shares = p.shares[k][pe];
      const auto places = placesOf(p, k, pe);
      int64_t twice = 0;
      for (size_t i = 0; i < shares.size(); ++i) {
        shareRows[k].push_back(rowsOf(k, shares[i]));
        if (places[i][0] && places[i][1])
          twice += int64_t(shareRows[k].back());
      }
      if (twice == 0)
        continue;
      int64_t units = 0;
      std::array<int64_t, kHemispheres> side{};
      const std::vector<Hemisphere> dealt = dealWhole(works[k], shares, shareRows[k], sum);
      for (size_t i = 0; i < shares.size(); ++i) {
        units += unitsOf(works[k], shares[i]);
        side[size_t(dealt[i])] += unitsOf(works[k], shares[i]);
      }
      const double idle = double(std::max(side[0], side[1])) / double(units) - 0.5;
      savings.push_back(
          {k, idle * double(vectorsOf(c, c.graph.kernels[k], works[k])) / double(twice)});
    }
    std::stable_sort(savings.begin(), savings.end(), [](const Saving &x, const Saving &y) {
      return x.cyclesPerRow < y.cyclesPerRow;
    });
    for (const Saving &s : savings) {
      if (std::max(sum[0], sum[1]) <= most)
        break;
      const std::vector<Share> &shares = p.shares[s.kernel][pe];
      const auto before = placesOf(p, s.kernel, pe);
      for (size_t i = 0; i < shares.size(); ++i)
        for (unsigned h = 0; h < kHemispheres; ++h)
          sum[h] -= before[i][h] ? shareRows[s.kernel][i] : 0;
      p.hemispheres[s.kernel][pe] = dealWhole(works[s.kernel], shares, shareRows[s.kernel], sum);
      for (size_t i = 0; i < shares.size(); ++i)
        sum[size_t(p.hemispheres[s.kernel][pe][i])] += shareRows[s.kernel][i];
    }
    if (std::max(sum[0], sum[1]) > most)
      even(p, pe, shareRows, sum);
  }
}

/// Turns kernels round whose hemispheres change places for the better.
void WeightRows::even(Partition &p, unsigned pe,
                      const std::vector<std::vector<uint64_t>> &shareRows,
                      PerHemisphere &sum) const {
  for (bool better = true; better;) {
    better = false;
    for (size_t k = 0; k < works.size(); ++k) {
      std::vector<Hemisphere> &dealt = p.hemispheres[k][pe];
      PerHemisphere its{};
      for (size_t i = 0; i < dealt.size(); ++i)
        its[size_t(dealt[i])] += shareRows[k][i];
      const PerHemisphere turned{sum[0] - its[0] + its[1], sum[1] - its[1] + its[0]};
      if (std::max(turned[0], turned[1]) >= std::max(sum[0], sum[1]))
        continue;
      for (Hemisphere &h : dealt)
        h = h == Hemisphere::West ? Hemisphere::East : Hemisphere::West;
      sum = turned;
      better = true;
    }
  }
}

} // namespace millrace::grid
