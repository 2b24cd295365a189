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
/// odd one goes to the hemisphere that has less to do in all, `busy`, or else then stores less.
/// `rows`: what a share adds to what either stores.
std::vector<Hemisphere> dealWhole(const Work &work, const std::vector<Share> &shares,
                                  const std::vector<WeightRows::PerHemisphere> &rows,
                                  const WeightRows::PerHemisphere &stored,
                                  const WeightRows::PerHemisphere &busy) {
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) {
    return unitsOf(work, shares[x]) > unitsOf(work, shares[y]);
  });
  std::array<int64_t, kHemispheres> units{};
  WeightRows::PerHemisphere sum = stored;
  std::vector<Hemisphere> dealt(shares.size());
  for (size_t i : order) {
    const size_t h = units[0] != units[1]                         ? (units[0] < units[1] ? 0 : 1)
                     : busy[0] != busy[1]                         ? (busy[0] < busy[1] ? 0 : 1)
                     : sum[0] + rows[i][0] <= sum[1] + rows[i][1] ? 0
                                                                  : 1;
    units[h] += unitsOf(work, shares[i]);
    sum[h] += rows[i][h];
    dealt[i] = Hemisphere(h);
  }
  return dealt;
}

bool streamsConstants(const Context &c, const Kernel &kernel) {
  return std::any_of(kernel.terms.begin(), kernel.terms.end(), [&](const forms::Term &t) {
    return c.tensor(t.a.tensor).role == forms::TensorRole::Constant;
  });
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
  for (size_t k = 0; k < works.size(); ++k) {
    const Kernel &kernel = c.graph.kernels[k];
    const Work &work = works[k];
    all.tiles[k].resize(work.instances.size() * work.tiles.size());
    if (kernel.terms.empty())
      continue;
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
    std::set<uint32_t> its;
    for (const std::vector<uint32_t> &list : all.tiles[k])
      its.insert(list.begin(), list.end());
    all.kernels.resize(all.rows.size(), 0);
    for (uint32_t tile : its)
      ++all.kernels[tile];
  }
  return all;
}

/// Of what several kernels take, the kernel's part.
double WeightRows::rowsOf(size_t kernel, const Share &share) const {
  double sum = 0;
  for (uint32_t tile : tilesOf(kernel, share))
    sum += double(rows[tile]) / kernels[tile];
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

void WeightRows::use(Stored &stored, const Partition &p, size_t kernel, unsigned pe,
                     int change) const {
  const auto places = placesOf(p, kernel, pe);
  for (size_t i = 0; i < places.size(); ++i)
    for (unsigned h = 0; h < kHemispheres; ++h)
      for (uint32_t tile :
           places[i][h] ? tilesOf(kernel, p.shares[kernel][pe][i]) : std::vector<uint32_t>()) {
        int &users = stored.users[h][tile];
        if (users == 0)
          stored.rows[h] += rows[tile];
        users += change;
        if (users == 0)
          stored.rows[h] -= rows[tile];
      }
}

WeightRows::Stored WeightRows::storedOn(const Partition &p, unsigned pe) const {
  Stored stored;
  for (std::vector<int> &users : stored.users)
    users.assign(rows.size(), 0);
  for (size_t k = 0; k < works.size(); ++k)
    use(stored, p, k, pe, 1);
  return stored;
}

std::vector<uint64_t> WeightRows::stored(const Partition &p) const {
  std::vector<uint64_t> sums;
  for (unsigned pe = 0; pe < c.machine.pes(); ++pe) {
    const PerHemisphere its = storedOn(p, pe).rows;
    sums.insert(sums.end(), its.begin(), its.end());
  }
  return sums;
}

void WeightRows::dealWholeTo(Stored &stored, Partition &p, size_t kernel, unsigned pe) const {
  const std::vector<Share> &shares = p.shares[kernel][pe];
  use(stored, p, kernel, pe, -1);
  std::vector<PerHemisphere> added(shares.size(), PerHemisphere{});
  for (size_t i = 0; i < shares.size(); ++i)
    for (unsigned h = 0; h < kHemispheres; ++h)
      for (uint32_t tile : tilesOf(kernel, shares[i]))
        added[i][h] += stored.users[h][tile] ? 0 : rows[tile];
  const std::vector<Hemisphere> dealt =
      dealWhole(works[kernel], shares, added, stored.rows, stored.busy);
  p.hemispheres[kernel][pe] = dealt;
  int64_t units = 0;
  for (const Share &share : shares)
    units += unitsOf(works[kernel], share);
  const int64_t vectors = vectorsOf(c, c.graph.kernels[kernel], works[kernel]);
  for (size_t i = 0; i < shares.size(); ++i)
    stored.busy[size_t(dealt[i])] +=
        uint64_t(vectors * unitsOf(works[kernel], shares[i]) / std::max<int64_t>(1, units));
  use(stored, p, kernel, pe, 1);
}

void WeightRows::spare(Partition &p, uint64_t most) const {
  for (unsigned pe = 0; pe < c.machine.pes(); ++pe) {
    Stored stored = storedOn(p, pe);
    auto isFull = [&] { return std::max(stored.rows[0], stored.rows[1]) > most; };
    struct Saving {
      size_t kernel;
      double cyclesPerRow;
    };
    std::vector<Saving> savings;
    // What is one share on one hemisphere anyway costs nothing on the other.
    for (size_t k = 0; k < works.size() && isFull(); ++k) {
      const std::vector<Share> &shares = p.shares[k][pe];
      if (shares.size() == 1 && unitsOf(works[k], shares.front()) == 1)
        dealWholeTo(stored, p, k, pe);
    }
    for (size_t k = 0; k < works.size(); ++k) {
      const std::vector<Share> &shares = p.shares[k][pe];
      const auto places = placesOf(p, k, pe);
      double twice = 0;
      for (size_t i = 0; i < shares.size(); ++i)
        twice += places[i][0] && places[i][1] ? rowsOf(k, shares[i]) : 0;
      // What streams lies in parts on either side, once as it is.
      if (twice == 0 || streamsConstants(c, c.graph.kernels[k]))
        continue;
      int64_t units = 0;
      std::array<int64_t, kHemispheres> side{};
      const std::vector<Hemisphere> dealt = dealWhole(
          works[k], shares, std::vector<PerHemisphere>(shares.size(), PerHemisphere{}), {}, {});
      for (size_t i = 0; i < shares.size(); ++i) {
        units += unitsOf(works[k], shares[i]);
        side[size_t(dealt[i])] += unitsOf(works[k], shares[i]);
      }
      const double idle = double(std::max(side[0], side[1])) / double(units) - 0.5;
      savings.push_back({k, idle * double(vectorsOf(c, c.graph.kernels[k], works[k])) / twice});
    }
    std::stable_sort(savings.begin(), savings.end(), [](const Saving &x, const Saving &y) {
      return x.cyclesPerRow < y.cyclesPerRow;
    });
    for (size_t i = 0; i < savings.size() && isFull(); ++i)
      dealWholeTo(stored, p, savings[i].kernel, pe);
    if (isFull())
      even(p, pe, stored);
  }
}

/// Turns kernels round whose hemispheres change places for the better.
void WeightRows::even(Partition &p, unsigned pe, Stored &stored) const {
  for (bool better = true; better;) {
    better = false;
    for (size_t k = 0; k < works.size(); ++k) {
      std::vector<Hemisphere> &dealt = p.hemispheres[k][pe];
      auto turn = [&] {
        use(stored, p, k, pe, -1);
        for (Hemisphere &h : dealt)
          h = h == Hemisphere::West ? Hemisphere::East : Hemisphere::West;
        use(stored, p, k, pe, 1);
        return std::max(stored.rows[0], stored.rows[1]);
      };
      const uint64_t before = std::max(stored.rows[0], stored.rows[1]);
      if (dealt.empty())
        continue;
      if (turn() < before)
        better = true;
      else
        turn();
    }
  }
}

} // namespace millrace::grid
