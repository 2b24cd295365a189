// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Grid/Sharding.h"

#include "compiler/Codegen/Grid/Shares.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

namespace millrace::grid {

std::vector<std::vector<Share>> cutWork(const Work &w, size_t count, Cut cut) {
  const auto pes = int64_t(count);
  const bool running = !w.roles.running.empty();
  std::vector<std::vector<Share>> shares(count);
  if (cut == Cut::Strips) {
    for (int64_t p = 0; p < pes; ++p) {
      const int64_t from = w.strips * p / pes, to = w.strips * (p + 1) / pes;
      for (size_t i = 0; i < w.instances.size(); ++i)
        for (size_t t = 0; t < w.tiles.size(); ++t)
          shares[size_t(p)].push_back({i, t, from, to - from});
    }
    return shares;
  }
  const int64_t whole = running ? w.strips : 1, longest = std::max<int64_t>(w.strips, 1);
  if (cut == Cut::Units) {
    const int64_t units = w.units() / whole;
    for (int64_t p = 0; p < pes; ++p)
      shares[size_t(p)] =
          sharesOf(w, units * p / pes * whole, units * (p + 1) / pes * whole, longest);
    return shares;
  }
  const auto tiles = int64_t(w.tiles.size()), instances = int64_t(w.instances.size());
  for (int64_t p = 0; p < pes; ++p) {
    const int64_t first = pes < tiles ? tiles * p / pes : p * tiles / pes,
                  last = pes < tiles ? tiles * (p + 1) / pes : first + 1;
    // Of a tile that several PEs have, the units of all instances, one after the other.
    const int64_t begin = (pes * first + tiles - 1) / tiles, end = (pes * last + tiles - 1) / tiles;
    const int64_t parts = pes < tiles ? 1 : end - begin, part = pes < tiles ? 0 : p - begin;
    const int64_t units = instances * w.strips / whole;
    for (int64_t t = first; t < last; ++t)
      for (int64_t at = units * part / parts * whole; at < units * (part + 1) / parts * whole;) {
        const int64_t strip = at % w.strips,
                      run = std::min(w.strips - strip, units * (part + 1) / parts * whole - at);
        shares[size_t(p)].push_back({size_t(at / w.strips), size_t(t), strip, run});
        at += run;
      }
  }
  return shares;
}

/// Chooses a way for each kernel: by steps along the lower hull of rows and cycles of each kernel's
/// ways, those that lose the fewest cycles a row first, as few as are enough (by bisection: more
/// steps leave fewer rows). Then kernels that need not be on all PEs go where most rows are left.
class Sharding {
public:
  Sharding(const WeightRows &weights, const Partition &start, const std::vector<unsigned> &order,
           const std::vector<uint64_t> &most)
      : weights(weights), c(weights.c), works(weights.works), start(start), order(order),
        most(most) {
    one.splitK.assign(works.size(), false);
    one.turned.assign(works.size(), false);
    one.shares.resize(works.size());
    one.hemispheres.resize(works.size());
  }

  void solve(Partition &partition) {
    findSteps();
    Partition its = start;
    int64_t least = place(steps.size(), its);
    if (least > 0) { // else kernels on all PEs stay where what they read is
      rotates = true;
      least = place(steps.size(), its);
    }
    // Where the last rows are not enough, hardly any of them are worth that all kernels are slow.
    const int64_t enough =
        least <= 0 ? 0 : least + int64_t(*std::max_element(most.begin(), most.end()) / 64);
    size_t low = 0, high = steps.size(); // steps that are too few, and those that are enough
    while (low + 1 < high) {
      const size_t middle = (low + high) / 2;
      (place(middle, its) > enough ? low : high) = middle;
    }
    place(high, partition);
  }

private:
  /// Where a kernel's weights lie: where the workers of its shares are, with shares of one
  /// hemisphere only, or with half of K in each.
  enum class Sides { AsDealt, Whole, SplitK };
  struct Way {
    size_t pes = 0; ///< 0: as the partition was
    Cut cut = Cut::Units;
    Sides sides = Sides::AsDealt;
    double rows = 0;   ///< of all hemispheres; of what several kernels take, the kernel's part
    double cycles = 0; ///< of the busiest worker
    std::vector<double> rowsAt = {}; ///< of each PE
  };
  struct Step {
    size_t kernel = 0, way = 0;
    double cyclesPerRow = 0;
  };

  const WeightRows &weights;
  const Context &c;
  const std::vector<Work> &works;
  const Partition &start;
  const std::vector<unsigned> &order;
  const std::vector<uint64_t> &most;
  Partition one;                      ///< of a kernel on one PE
  std::vector<std::vector<Way>> ways; ///< per kernel, along the hull
  std::vector<Step> steps;
  bool rotates = false; ///< does it matter which PEs store most of a kernel that is on all?

  std::vector<std::vector<Share>> sharesOf(size_t kernel, const Way &way) const {
    if (way.pes)
      return cutWork(works[kernel], way.pes, way.cut);
    std::vector<std::vector<Share>> shares;
    for (unsigned pe : order)
      shares.push_back(start.shares[kernel][pe]);
    return shares;
  }

  std::vector<Way> waysOf(size_t kernel);
  void weigh(size_t kernel, Way &way, const std::vector<std::vector<Share>> &shares);
  void findSteps();
  std::vector<unsigned> emptiest(const std::vector<WeightRows::Stored> &stored, size_t pes,
                                 bool neighbours) const;
  std::vector<unsigned> rotated(const std::vector<WeightRows::Stored> &stored,
                                const Way &way) const;
  void assign(Partition &p, size_t kernel, const Way &way,
              const std::vector<unsigned> &where) const;
  int64_t roomLeft(const WeightRows::Stored &stored, unsigned pe, unsigned hemisphere) const {
    return int64_t(most[size_t(pe) * kHemispheres + hemisphere]) - int64_t(stored.rows[hemisphere]);
  }
  int64_t roomLeft(const WeightRows::Stored &stored, unsigned pe) const {
    return roomLeft(stored, pe, 0) + roomLeft(stored, pe, 1);
  }
  int64_t excessOf(const std::vector<WeightRows::Stored> &stored) const;
  void even(Partition &p, std::vector<WeightRows::Stored> &stored) const;
  int64_t place(size_t count, Partition &p) const;
};

/// Rows and cycles of a way.
void Sharding::weigh(size_t k, Way &way, const std::vector<std::vector<Share>> &shares) {
  const Work &work = works[k];
  const auto team = double(teamOf(c, c.graph.kernels[k]));
  const double perUnit =
      double(vectorsOf(c, c.graph.kernels[k], work)) / double(std::max<int64_t>(1, unitsOf(work)));
  const double passes = double(vectorsOf(c, c.graph.kernels[k], work)) /
                        double(std::max<int64_t>(1, work.units() * work.stripRows));
  const double interval = passes * double(c.machine.latency.accumulateInterval);
  one.splitK[k] = way.sides == Sides::SplitK;
  for (const std::vector<Share> &its : shares) {
    way.rowsAt.push_back(0);
    if (its.empty())
      continue;
    int64_t units = 0;
    for (const Share &share : its)
      units += unitsOf(work, share);
    one.shares[k] = {its};
    one.hemispheres[k] = {{}};
    double part = 1 / team, longest = 1;
    if (way.sides == Sides::SplitK) {
      longest = *weights.longerHalf[k];
      part = longest * kHemispheres / team;
    } else if (way.sides == Sides::Whole) {
      one.hemispheres[k] = {weights.dealtWhole(k, its)};
      int64_t west = 0;
      for (size_t i = 0; i < its.size(); ++i)
        if (one.hemispheres[k].front()[i] == Hemisphere::West)
          west += unitsOf(work, its[i]);
      part = double(std::max(west, units - west)) / double(units) * kHemispheres / team;
    }
    way.cycles = std::max({way.cycles, double(units) * perUnit * part, interval * longest});
    way.rowsAt.back() = weights.rowsOn(one, k, 0);
    way.rows += way.rowsAt.back();
  }
}

std::vector<Sharding::Way> Sharding::waysOf(size_t k) {
  const Work &work = works[k];
  const bool canSplit = weights.longerHalf[k].has_value();
  std::vector<Way> all;
  const auto add = [&](size_t pes, Cut cut) {
    const std::vector<std::vector<Share>> shares = sharesOf(k, {pes, cut, Sides::AsDealt, 0, 0});
    for (Sides sides : {Sides::AsDealt, Sides::Whole, Sides::SplitK}) {
      if ((sides == Sides::SplitK && !canSplit) ||
          (sides == Sides::Whole && weights.streamsConstants(k)))
        continue;
      Way way{pes, cut, sides, 0, 0};
      weigh(k, way, shares);
      all.push_back(way);
    }
  };
  Way asItWas{0, Cut::Units, start.splitK[k] ? Sides::SplitK : Sides::AsDealt, 0, 0};
  weigh(k, asItWas, sharesOf(k, asItWas));
  all.push_back(asItWas);
  for (size_t pes = order.size(); pes > 0; pes -= std::max<size_t>(1, pes / 8)) {
    if (work.roles.running.empty() && work.strips >= int64_t(pes))
      add(pes, Cut::Strips);
    add(pes, Cut::Units);
    add(pes, Cut::Tiles);
  }
  return all;
}

void Sharding::findSteps() {
  ways.resize(works.size());
  for (size_t k = 0; k < works.size(); ++k) {
    if (!weights.storesWeights(k))
      continue;
    const std::vector<Way> all = waysOf(k);
    ways[k] = {all.front()};
    for (;;) {
      const Way &last = ways[k].back();
      const Way *next = nullptr;
      double least = std::numeric_limits<double>::infinity();
      for (const Way &way : all) {
        if (way.rows >= last.rows)
          continue;
        const double lost = std::max(0.0, way.cycles - last.cycles) / (last.rows - way.rows);
        if (lost < least || (lost == least && next && way.rows < next->rows)) {
          least = lost;
          next = &way;
        }
      }
      if (!next)
        break;
      steps.push_back({k, ways[k].size(), least});
      ways[k].push_back(*next);
    }
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step &x, const Step &y) { return x.cyclesPerRow < y.cyclesPerRow; });
}

void Sharding::assign(Partition &p, size_t k, const Way &way,
                      const std::vector<unsigned> &where) const {
  std::vector<std::vector<Share>> shares = sharesOf(k, way);
  p.shares[k].assign(order.size(), {});
  p.hemispheres[k].assign(order.size(), {});
  p.splitK[k] = way.sides == Sides::SplitK;
  for (size_t at = 0; at < shares.size(); ++at)
    p.shares[k][where[at]] = std::move(shares[at]);
}

/// The PEs that have most room left, in the order of the line; neighbours, if they are to be.
std::vector<unsigned> Sharding::emptiest(const std::vector<WeightRows::Stored> &stored, size_t pes,
                                         bool neighbours) const {
  const auto roomOf = [&](unsigned pe) { return roomLeft(stored[pe], pe); };
  std::vector<size_t> places(order.size());
  std::iota(places.begin(), places.end(), 0);
  if (neighbours) {
    const auto leastRoom = [&](size_t first) {
      int64_t least = INT64_MAX;
      for (size_t at = first; at < first + pes; ++at)
        least = std::min(least, roomOf(order[at]));
      return least;
    };
    size_t best = 0;
    for (size_t first = 1; first + pes <= order.size(); ++first)
      if (leastRoom(first) > leastRoom(best))
        best = first;
    std::rotate(places.begin(), places.begin() + ptrdiff_t(best), places.end());
  } else {
    std::stable_sort(places.begin(), places.end(),
                     [&](size_t x, size_t y) { return roomOf(order[x]) > roomOf(order[y]); });
    std::sort(places.begin(), places.begin() + ptrdiff_t(pes));
  }
  std::vector<unsigned> where;
  for (size_t at = 0; at < pes; ++at)
    where.push_back(order[places[at]]);
  return where;
}

/// All PEs in the order of the line, from the one on that leaves the fullest of them most room: of
/// 18 lane tiles on 16 PEs it would else always be the same two that store two.
std::vector<unsigned> Sharding::rotated(const std::vector<WeightRows::Stored> &stored,
                                        const Way &way) const {
  const size_t pes = order.size();
  const auto leastRoom = [&](size_t first) {
    double least = std::numeric_limits<double>::infinity();
    for (size_t at = 0; at < pes; ++at) {
      const unsigned pe = order[(first + at) % pes];
      least = std::min(least, double(roomLeft(stored[pe], pe)) - way.rowsAt[at]);
    }
    return least;
  };
  size_t best = 0;
  for (size_t first = 1; first < pes; ++first)
    if (leastRoom(first) > leastRoom(best))
      best = first;
  std::vector<unsigned> where = order;
  std::rotate(where.begin(), where.begin() + ptrdiff_t(best), where.end());
  return where;
}

/// Rows beyond `most` in the hemisphere that has the least room left; less than none if all have
/// some.
int64_t Sharding::excessOf(const std::vector<WeightRows::Stored> &stored) const {
  int64_t excess = INT64_MIN;
  for (unsigned pe = 0; pe < order.size(); ++pe)
    for (unsigned h = 0; h < kHemispheres; ++h)
      excess = std::max(excess, -roomLeft(stored[pe], pe, h));
  return excess;
}

/// What lies whole in one hemisphere leaves the other emptier, and kernels whose K is split fill
/// both alike. Where rows are missing, those are stored whole in the emptier one that leave the
/// fewest missing, one after the other.
void Sharding::even(Partition &p, std::vector<WeightRows::Stored> &stored) const {
  const auto use = [&](size_t k, int change) {
    for (unsigned pe = 0; pe < order.size(); ++pe)
      weights.use(stored[pe], p, k, pe, change);
  };
  const auto storeWhole = [&](size_t k) {
    use(k, -1);
    p.splitK[k] = false;
    for (unsigned pe = 0; pe < order.size(); ++pe) {
      const bool isWestEmptier = roomLeft(stored[pe], pe, 0) > roomLeft(stored[pe], pe, 1);
      p.hemispheres[k][pe].assign(p.shares[k][pe].size(),
                                  isWestEmptier ? Hemisphere::West : Hemisphere::East);
    }
    use(k, 1);
  };
  for (int64_t excess = excessOf(stored); excess > 0;) {
    std::optional<size_t> best;
    for (size_t k = 0; k < works.size(); ++k) {
      if (!p.splitK[k] || ways[k].empty() || weights.streamsConstants(k))
        continue;
      std::vector<std::vector<Hemisphere>> before = p.hemispheres[k];
      storeWhole(k);
      if (const int64_t left = excessOf(stored); left < excess) {
        excess = left;
        best = k;
      }
      use(k, -1);
      p.splitK[k] = true;
      p.hemispheres[k] = std::move(before);
      use(k, 1);
    }
    if (!best)
      break;
    storeWhole(*best);
  }
}

/// The partition after so many steps; rows beyond `most` in the hemisphere that has the least room
/// left, less than none if all have some.
int64_t Sharding::place(size_t count, Partition &p) const {
  std::vector<size_t> chosen(works.size(), 0);
  for (size_t i = 0; i < count; ++i)
    chosen[steps[i].kernel] = steps[i].way;
  std::vector<size_t> kernels; // what has no choice first, then the largest first
  for (size_t k = 0; k < works.size(); ++k)
    if (!ways[k].empty())
      kernels.push_back(k);
  const auto wayOf = [&](size_t k) -> const Way & { return ways[k][chosen[k]]; };
  const auto perPe = [&](size_t k) {
    const size_t pes = wayOf(k).pes;
    return pes == 0 || pes == order.size() ? std::numeric_limits<double>::infinity()
                                           : wayOf(k).rows / double(pes);
  };
  std::stable_sort(kernels.begin(), kernels.end(),
                   [&](size_t x, size_t y) { return perPe(x) > perPe(y); });
  std::vector<WeightRows::Stored> stored(order.size(), weights.nothing());
  for (size_t k : kernels) {
    const Way &way = wayOf(k);
    const size_t pes = way.pes ? way.pes : order.size();
    const std::vector<unsigned> where = rotates && pes == order.size()
                                            ? rotated(stored, way)
                                            : emptiest(stored, pes, way.cut == Cut::Strips);
    assign(p, k, way, where);
    for (unsigned pe : where) {
      weights.use(stored[pe], p, k, pe, 1);
      if (way.sides == Sides::Whole)
        weights.storeOnce(stored[pe], p, k, pe, false);
    }
  }
  for (unsigned pe = 0; pe < order.size(); ++pe)
    if (roomLeft(stored[pe], pe, 0) < 0 || roomLeft(stored[pe], pe, 1) < 0)
      weights.even(p, pe, stored[pe]);
  even(p, stored);
  return excessOf(stored);
}

void shard(const WeightRows &weights, Partition &partition, const std::vector<unsigned> &order,
           const std::vector<uint64_t> &most) {
  const Partition start = partition;
  Sharding(weights, start, order, most).solve(partition);
}

} // namespace millrace::grid
