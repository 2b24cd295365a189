// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/WeightRows.h"

#include "compiler/Codegen/Grid/Contraction.h"
#include "compiler/Codegen/Grid/Shares.h"
#include "compiler/Forms/Rewritings/UnrollRunning.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

namespace millrace::grid {

namespace {

/// Shares that take the same weights, which a hemisphere stores once for all of them.
struct ShareGroup {
  int64_t units = 0;
  WeightRows::PerHemisphere added{}; ///< what the weights add to what either hemisphere stores
};

/// The hemisphere of each group: alternately, so that both have as much to do as can be. The odd
/// one goes to the hemisphere that has less to do in all, `busy`, or else then stores less.
std::vector<Hemisphere> dealWhole(const std::vector<ShareGroup> &groups,
                                  const WeightRows::PerHemisphere &stored,
                                  const WeightRows::PerHemisphere &busy) {
  std::vector<size_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return groups[i].units; });
  std::array<int64_t, kHemispheres> units{};
  WeightRows::PerHemisphere sum = stored;
  std::vector<Hemisphere> dealt(groups.size());
  for (size_t i : order) {
    const WeightRows::PerHemisphere &added = groups[i].added;
    const size_t h = units[0] != units[1]                     ? (units[0] < units[1] ? 0 : 1)
                     : busy[0] != busy[1]                     ? (busy[0] < busy[1] ? 0 : 1)
                     : sum[0] + added[0] <= sum[1] + added[1] ? 0
                                                              : 1;
    units[h] += groups[i].units;
    sum[h] += added[h];
    dealt[i] = Hemisphere(h);
  }
  return dealt;
}

bool streamsConstants(const Context &c, const Kernel &kernel) {
  return std::any_of(kernel.terms.begin(), kernel.terms.end(), [&](const forms::Term &t) {
    return c.tensor(t.a.tensor).role == forms::TensorRole::Constant;
  });
}

/// The part of the kernel's passes that the longer half of a split K takes; none if it cannot be
/// split.
Expected<std::optional<double>> longerHalfOf(Context &c, const Kernel &kernel, size_t k,
                                             const Work &work) {
  Expected<bool> can = canSplitK(c, kernel, k, work);
  if (!can)
    return can.takeError();
  if (!*can)
    return std::optional<double>();
  Expected<std::vector<forms::Pass>> passes = passesOf(c, kernel, k, work, /*splitK=*/true);
  if (!passes)
    return passes.takeError();
  const auto second = double(std::count_if(passes->begin(), passes->end(),
                                           [](const forms::Pass &pass) { return pass.half == 1; }));
  const auto all = double(passes->size());
  return std::optional(std::max(second, all - second) / all);
}

} // namespace

Expected<WeightRows> WeightRows::of(Context &c, const std::vector<Work> &works) {
  WeightRows all(c, works);
  const Machine &m = c.machine;
  // A model that will be refused may have a million tiles: by how much it is too large matters
  // no longer once it is twice as large as all memory.
  const uint64_t enough =
      2 * uint64_t(m.pes()) * kHemispheres * c.rowsOfHemisphere() / m.mxm.columnsPerInstall;
  std::unordered_map<std::string, uint32_t> known;
  uint64_t sum = 0;
  all.tiles.resize(works.size());
  all.longerHalf.resize(works.size());
  for (size_t k = 0; k < works.size(); ++k) {
    const Kernel &kernel = c.graph.kernels[k];
    const Work &work = works[k];
    all.tiles[k].resize(work.instances.size() * work.tiles.size());
    if (kernel.terms.empty())
      continue;
    const Worker worker = workersOf(c, 0, contractedType(c, kernel)).front();
    Expected<std::optional<double>> longer = longerHalfOf(c, kernel, k, work);
    if (!longer)
      return longer.takeError();
    all.longerHalf[k] = *longer;
    for (size_t at = 0; at < all.tiles[k].size() && sum <= enough; ++at) {
      std::vector<uint32_t> &list = all.tiles[k][at].tiles;
      const Share share{at / work.tiles.size(), at % work.tiles.size(), 0, work.strips};
      auto note = [&](const std::string &key, unsigned rows) {
        const auto [it, isNew] = known.emplace(key, uint32_t(all.rows.size()));
        if (isNew) {
          all.rows.push_back(rows);
          sum += rows;
        }
        if (list.size() == all.tiles[k][at].middle || list.back() != it->second)
          list.push_back(it->second);
      };
      const std::optional<unsigned> first = all.longerHalf[k] ? std::optional(0) : std::nullopt;
      if (Status s = forEachWeightTile(c, kernel, k, work, share, worker, first, note); !s)
        return s.takeError();
      all.tiles[k][at].middle = list.size();
      if (!first)
        continue;
      if (Status s = forEachWeightTile(c, kernel, k, work, share, worker, 1, note); !s)
        return s.takeError();
      TileList &its = all.tiles[k][at];
      for (const auto &[half, passes] : {std::pair{std::optional<unsigned>(), &its.passes},
                                         {0u, &its.halves[0]},
                                         {1u, &its.halves[1]}})
        if (Status s = forEachWeightTile(c, kernel, k, work, share, worker, half,
                                         [p = passes](const std::string &, unsigned) { ++*p; });
            !s)
          return s.takeError();
    }
    std::set<uint32_t> its;
    for (const TileList &list : all.tiles[k])
      its.insert(list.tiles.begin(), list.tiles.end());
    all.kernels.resize(all.rows.size(), 0);
    for (uint32_t tile : its)
      ++all.kernels[tile];
  }
  return all;
}

bool WeightRows::storesWeights(size_t kernel) const {
  return std::any_of(tiles[kernel].begin(), tiles[kernel].end(),
                     [](const TileList &list) { return !list.tiles.empty(); });
}

bool WeightRows::streamsConstants(size_t kernel) const {
  return grid::streamsConstants(c, c.graph.kernels[kernel]);
}

std::vector<Hemisphere> WeightRows::dealtWhole(size_t kernel, const std::vector<Share> &shares,
                                               const Stored *stored) const {
  std::vector<ShareGroup> groups;
  std::vector<size_t> groupOf(shares.size());
  std::map<std::vector<uint32_t>, size_t> known;
  for (size_t i = 0; i < shares.size(); ++i) {
    const std::vector<uint32_t> &its = tilesOf(kernel, shares[i]).tiles;
    groupOf[i] = groups.size();
    if (!its.empty())
      groupOf[i] = known.emplace(its, groups.size()).first->second;
    if (groupOf[i] == groups.size()) {
      ShareGroup &fresh = groups.emplace_back();
      for (unsigned h = 0; stored && h < kHemispheres; ++h)
        for (uint32_t tile : its)
          fresh.added[h] += stored->users[h][tile] ? 0 : rows[tile];
    }
    groups[groupOf[i]].units += unitsOf(works[kernel], shares[i]);
  }
  const std::vector<Hemisphere> dealt =
      stored ? dealWhole(groups, stored->rows, stored->busy) : dealWhole(groups, {}, {});
  std::vector<Hemisphere> hemispheres;
  for (size_t group : groupOf)
    hemispheres.push_back(dealt[group]);
  return hemispheres;
}

std::vector<std::vector<bool>> WeightRows::placesOf(const Partition &p, size_t kernel,
                                                    unsigned pe) const {
  const std::vector<Share> &shares = p.shares[kernel][pe];
  std::vector<std::vector<bool>> places(shares.size(),
                                        std::vector<bool>(kHemispheres, p.splitK[kernel]));
  if (p.splitK[kernel])
    return places;
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

template <class F>
void WeightRows::forEachTile(const Partition &p, size_t kernel, const Share &share, Hemisphere h,
                             F f) const {
  const TileList &list = tilesOf(kernel, share);
  const bool second = p.splitK[kernel] && halfOf(p, kernel, h) == 1,
             first = p.splitK[kernel] && !second;
  for (size_t t = second ? list.middle : 0; t < (first ? list.middle : list.tiles.size()); ++t)
    f(list.tiles[t]);
}

double WeightRows::rowsOfEach(std::vector<uint32_t> its) const {
  std::sort(its.begin(), its.end());
  its.erase(std::unique(its.begin(), its.end()), its.end());
  double sum = 0;
  for (uint32_t tile : its)
    sum += double(rows[tile]) / kernels[tile];
  return sum;
}

double WeightRows::rowsOn(const Partition &p, size_t kernel, unsigned pe) const {
  const auto places = placesOf(p, kernel, pe);
  double sum = 0;
  for (unsigned h = 0; h < kHemispheres; ++h) {
    std::vector<uint32_t> its;
    for (size_t i = 0; i < places.size(); ++i)
      if (places[i][h])
        forEachTile(p, kernel, p.shares[kernel][pe][i], Hemisphere(h),
                    [&](uint32_t tile) { its.push_back(tile); });
    sum += rowsOfEach(std::move(its));
  }
  return sum;
}

double WeightRows::rowsOnce(size_t kernel, const std::vector<Share> &shares) const {
  std::vector<uint32_t> its;
  for (const Share &share : shares)
    its.insert(its.end(), tilesOf(kernel, share).tiles.begin(), tilesOf(kernel, share).tiles.end());
  return rowsOfEach(std::move(its));
}

void WeightRows::use(Stored &stored, const Partition &p, size_t kernel, unsigned pe,
                     int change) const {
  const auto places = placesOf(p, kernel, pe);
  for (size_t i = 0; i < places.size(); ++i)
    for (unsigned h = 0; h < kHemispheres; ++h) {
      if (!places[i][h])
        continue;
      forEachTile(p, kernel, p.shares[kernel][pe][i], Hemisphere(h), [&](uint32_t tile) {
        int &users = stored.users[h][tile];
        if (users == 0)
          stored.rows[h] += rows[tile];
        users += change;
        if (users == 0)
          stored.rows[h] -= rows[tile];
      });
    }
}

WeightRows::Stored WeightRows::nothing() const {
  Stored stored;
  for (std::vector<int> &users : stored.users)
    users.assign(rows.size(), 0);
  return stored;
}

WeightRows::Stored WeightRows::storedOn(const Partition &p, unsigned pe) const {
  Stored stored = nothing();
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

void WeightRows::storeOnce(Stored &stored, Partition &p, size_t kernel, unsigned pe,
                           bool splitK) const {
  const std::vector<Share> &shares = p.shares[kernel][pe];
  use(stored, p, kernel, pe, -1);
  if (splitK) {
    p.splitK[kernel] = true;
    use(stored, p, kernel, pe, 1);
    return;
  }
  const std::vector<Hemisphere> dealt = dealtWhole(kernel, shares, &stored);
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

double WeightRows::idleIfWhole(const Partition &p, size_t kernel) const {
  double most = 0;
  for (const std::vector<Share> &shares : p.shares[kernel]) {
    int64_t units = 0;
    std::array<int64_t, kHemispheres> side{};
    const std::vector<Hemisphere> dealt = dealtWhole(kernel, shares);
    for (size_t i = 0; i < shares.size(); ++i) {
      units += unitsOf(works[kernel], shares[i]);
      side[size_t(dealt[i])] += unitsOf(works[kernel], shares[i]);
    }
    if (units)
      most = std::max(most, double(std::max(side[0], side[1])) / double(units) - 0.5);
  }
  return most;
}

/// Cycles from one row of a running reduction to the next, for the VXM; 0 for other kernels.
double WeightRows::cyclesOfStep(size_t k) const {
  const Kernel &kernel = c.graph.kernels[k];
  const auto node = std::ranges::find(kernel.nodes, forms::Node::Kind::Reduce, &forms::Node::kind);
  if (works[k].roles.running.empty() || node == kernel.nodes.end())
    return 0;
  int64_t steps = 1;
  for (const forms::Loop &loop : kernel.loops)
    steps *= loop.kind == forms::LoopKind::Running ? loop.extent : 1;
  const int64_t interval = forms::stepInterval(c.machine, node->op),
                rows = std::max<int64_t>(1, works[k].strips * works[k].stripRows / steps);
  return double(interval) /
         double(std::min({interval, int64_t(c.machine.vxm.runningAccumulators), rows}));
}

void WeightRows::splitIdle(Partition &p) const {
  // Cycles of a worker that sweeps `vectors`, of shares of at most `passes` passes: an accumulator
  // row waits between two of them.
  const auto cyclesOf = [&](double vectors, int64_t passes) {
    return std::max(std::ceil(vectors),
                    double(passes * int64_t(c.machine.latency.accumulateInterval)));
  };
  for (size_t k = 0; k < works.size(); ++k) {
    if (!longerHalf[k])
      continue;
    const auto team = double(teamOf(c, c.graph.kernels[k])), pairs = team / kHemispheres;
    // A running reduction stays in one piece, and the VXM takes its rows.
    const bool running = !works[k].roles.running.empty();
    const double step = cyclesOfStep(k);
    double whole = 0, split = 0; // of the busiest worker, all PEs summed
    for (const std::vector<Share> &shares : p.shares[k]) {
      double vectors = 0, steps = 0, longest = 0, halfVectors[2] = {0, 0};
      int64_t passes = 0, halfPasses[2] = {0, 0};
      for (const Share &share : shares) {
        const TileList &its = tilesOf(k, share);
        const auto rows = double(share.strips * works[k].stripRows);
        vectors += rows * double(its.passes);
        steps += rows * step;
        passes = std::max(passes, its.passes);
        longest = std::max(longest, running ? rows * std::max(step, double(its.passes)) : 0);
        for (unsigned h = 0; h < 2; ++h) {
          halfVectors[h] += rows * double(its.halves[h]);
          halfPasses[h] = std::max(halfPasses[h], its.halves[h]);
        }
      }
      whole += std::max({cyclesOf(vectors / team, passes), steps / team, longest});
      split += std::max({cyclesOf(halfVectors[0] / pairs, halfPasses[0]),
                         cyclesOf(halfVectors[1] / pairs, halfPasses[1]), steps / pairs});
    }
    p.splitK[k] = split < 0.9 * whole; // else more reads and operations for little
  }
}

void WeightRows::spare(Partition &p, const std::vector<uint64_t> &most) const {
  std::vector<bool> splits(works.size());
  for (size_t k = 0; k < works.size(); ++k)
    splits[k] = longerHalf[k] && *longerHalf[k] - 0.5 < idleIfWhole(p, k);
  for (unsigned pe = 0; pe < c.machine.pes(); ++pe) {
    Stored stored = storedOn(p, pe);
    auto isFull = [&] {
      const uint64_t *its = &most[size_t(pe) * kHemispheres];
      return stored.rows[0] > its[0] || stored.rows[1] > its[1];
    };
    struct Saving {
      size_t kernel;
      double cyclesPerRow;
    };
    std::vector<Saving> savings;
    // What is one share on one hemisphere anyway costs nothing on the other.
    for (size_t k = 0; k < works.size() && isFull(); ++k) {
      const std::vector<Share> &shares = p.shares[k][pe];
      if (!p.splitK[k] && shares.size() == 1 && unitsOf(works[k], shares.front()) == 1)
        storeOnce(stored, p, k, pe, splits[k]);
    }
    for (size_t k = 0; k < works.size(); ++k) {
      if (p.splitK[k])
        continue;
      const double twice = rowsOn(p, k, pe) - rowsOnce(k, p.shares[k][pe]);
      // What streams lies in parts on either side, once as it is.
      if (twice <= 0 || streamsConstants(k))
        continue;
      const double idle = splits[k] ? *longerHalf[k] - 0.5 : idleIfWhole(p, k);
      savings.push_back({k, idle * double(vectorsOf(c, c.graph.kernels[k], works[k])) / twice});
    }
    std::stable_sort(savings.begin(), savings.end(), [](const Saving &x, const Saving &y) {
      return x.cyclesPerRow < y.cyclesPerRow;
    });
    for (size_t i = 0; i < savings.size() && isFull(); ++i)
      storeOnce(stored, p, savings[i].kernel, pe, splits[savings[i].kernel]);
    if (isFull())
      even(p, pe, stored);
  }
}

/// The hemisphere of each share of a kernel that is not split, if each has one; else none.
std::vector<Hemisphere> WeightRows::wholeIn(const Partition &p, size_t kernel, unsigned pe) const {
  std::vector<Hemisphere> whole;
  for (const std::vector<bool> &place : placesOf(p, kernel, pe)) {
    if (place[0] == place[1])
      return {};
    whole.push_back(place[0] ? Hemisphere::West : Hemisphere::East);
  }
  return whole;
}

/// Turns kernels round whose hemispheres change places for the better; those that never stored a
/// weight twice, too, if memory is as short as where rows are shared (wide_resnet50_2 in fp16 takes
/// 205,743 cycles for 194,656 if they always are).
void WeightRows::even(Partition &p, unsigned pe, Stored &stored) const {
  for (size_t k = 0; c.sharesRows && k < works.size(); ++k)
    if (!p.splitK[k] && p.hemispheres[k][pe].empty() && storesWeights(k))
      p.hemispheres[k][pe] = wholeIn(p, k, pe);
  for (bool better = true; better;) {
    better = false;
    for (size_t k = 0; k < works.size(); ++k) {
      std::vector<Hemisphere> &dealt = p.hemispheres[k][pe];
      auto turn = [&] {
        use(stored, p, k, pe, -1);
        if (p.splitK[k])
          p.turned[k] = !p.turned[k];
        for (Hemisphere &h : dealt)
          h = h == Hemisphere::West ? Hemisphere::East : Hemisphere::West;
        use(stored, p, k, pe, 1);
        return std::max(stored.rows[0], stored.rows[1]);
      };
      const uint64_t before = std::max(stored.rows[0], stored.rows[1]);
      // All PEs split K alike, and others' rows are counted.
      if (p.splitK[k] ? c.pes > 1 : dealt.empty())
        continue;
      if (turn() < before)
        better = true;
      else
        turn();
    }
  }
}

} // namespace millrace::grid
