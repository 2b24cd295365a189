// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "arch/program/PlacementWalk.h"

#include <algorithm>
#include <string>

namespace millrace {

namespace {
constexpr int64_t kFar = int64_t(1) << 48; ///< beyond any index; sums of a few stay in 64 bits
constexpr uint64_t kMostElements = uint64_t(1) << 32;
constexpr int64_t kMostLanes = 1 << 16; ///< lane numbers are 16 bits wide
constexpr size_t kMostLoops = 64;

/// A loop that moves along the lanes of one row.
bool alongLanes(const BindingLoop &loop) { return loop.rowStep == 0 && loop.laneStep != 0; }

/// Adds what a loop can add, at its far end, to an interval. False when that leaves +-2^48.
bool widen(int64_t &low, int64_t &high, uint32_t count, int64_t step) {
  // |step| < 2^31 and count < 2^32: the product fits in 63 bits.
  const int64_t reach = int64_t(count - 1) * step;
  if (reach > kFar || reach < -kFar)
    return false;
  (reach < 0 ? low : high) += reach;
  return low >= -kFar && high <= kFar;
}
} // namespace

Expected<uint64_t> elementCount(const Binding &binding) {
  uint64_t count = 1;
  for (int64_t extent : binding.shape) {
    if (extent < 0)
      return Error{"its shape has a negative dimension, " + std::to_string(extent)};
    if (uint64_t(extent) > kMostElements || (count *= uint64_t(extent)) > kMostElements)
      return Error{"its shape has more than 2^32 elements"};
  }
  return count;
}

unsigned bytesPlaced(const Binding &binding, const Placement &placement) {
  return placement.bytesInLanes ? byteWidth(binding.gridType) - placement.firstByte
                                : unsigned(placement.slices.size());
}

Expected<PlacementExtent> extentOf(const Binding &binding, const Placement &p) {
  const size_t rank = binding.shape.size();
  const unsigned width = byteWidth(binding.gridType);
  if (p.start.size() != rank)
    return Error{"start has " + std::to_string(p.start.size()) + " indices; the tensor has rank " +
                 std::to_string(rank)};
  if (p.slices.empty() || (p.bytesInLanes && p.slices.size() != 1) || p.firstByte >= width ||
      (!p.bytesInLanes && p.firstByte + p.slices.size() > width))
    return Error{std::to_string(p.slices.size()) + " slices from byte " +
                 std::to_string(p.firstByte) + " do not hold elements of " + std::to_string(width) +
                 " bytes"};
  if (p.loops.size() > kMostLoops)
    return Error{std::to_string(p.loops.size()) + " loops; the limit is " +
                 std::to_string(kMostLoops)};
  std::vector<std::pair<int64_t, int64_t>> indices;
  for (int64_t start : p.start) {
    if (start < -kFar || start > kFar)
      return Error{"start " + std::to_string(start) + " is beyond 2^48"};
    indices.push_back({start, start});
  }
  PlacementExtent e{p.row, p.row, p.lane, p.lane, 1};
  uint64_t pattern = 1;
  for (size_t l = 0; l < p.loops.size(); ++l) {
    const BindingLoop &loop = p.loops[l];
    const std::string name = "loop " + std::to_string(l);
    if (!loop.count)
      return Error{name + " has count 0"};
    if (loop.dim != kNoDim && loop.dim >= rank)
      return Error{name + " names dimension " + std::to_string(loop.dim) +
                   "; the tensor has rank " + std::to_string(rank)};
    bool good = widen(e.firstRow, e.lastRow, loop.count, loop.rowStep) &&
                widen(e.firstLane, e.lastLane, loop.count, loop.laneStep);
    if (good && loop.dim != kNoDim)
      good = widen(indices[loop.dim].first, indices[loop.dim].second, loop.count, loop.step);
    // Both factors are below 2^49.
    if (!good || e.elements > uint64_t(kFar) / loop.count)
      return Error{name + " reaches beyond 2^48"};
    e.elements *= loop.count;
    if (alongLanes(loop) && (pattern *= loop.count) > uint64_t(kMostLanes))
      return Error{name + " puts more than " + std::to_string(kMostLanes) + " elements into a row"};
  }
  if (p.bytesInLanes)
    e.lastLane += bytesPlaced(binding, p) - 1;
  if (e.firstRow < 0 || e.lastRow > int64_t(UINT32_MAX))
    return Error{"rows [" + std::to_string(e.firstRow) + ", " + std::to_string(e.lastRow) +
                 "] lie outside [0, 2^32)"};
  if (e.firstLane < 0 || e.lastLane >= kMostLanes)
    return Error{"lanes [" + std::to_string(e.firstLane) + ", " + std::to_string(e.lastLane) +
                 "] lie outside [0, " + std::to_string(kMostLanes) + ")"};
  return e;
}

PlacementWalk::PlacementWalk(const Binding &binding, const Placement &p)
    : binding(binding), stride(binding.shape.size(), 1), places(1), reach(binding.shape.size()),
      index(p.start), row(p.row), lane(p.lane) {
  for (size_t d = binding.shape.size(); d-- > 1;)
    stride[d - 1] = stride[d] * uint64_t(std::max<int64_t>(binding.shape[d], 1));
  for (size_t d = 0; d < index.size(); ++d)
    element += uint64_t(index[d]) * stride[d];
  for (const BindingLoop &loop : p.loops)
    if (alongLanes(loop))
      addLanes(loop);
    else
      outer.push_back(loop);
  if (!outer.empty()) {
    inner = outer.back();
    outer.pop_back();
  } else {
    inner.dim = kNoDim;
  }
  counter.assign(outer.size(), 0);
  for (const LaneDim &d : laneDims) {
    auto [low, high] = std::minmax_element(d.offsets.begin(), d.offsets.end());
    reach[d.dim] = {*low, *high};
  }
  all = runsOf(places);
}

void PlacementWalk::addLanes(const BindingLoop &loop) {
  const size_t before = places.size();
  const bool known = std::any_of(laneDims.begin(), laneDims.end(),
                                 [&](const LaneDim &d) { return d.dim == loop.dim; });
  if (loop.dim != kNoDim && !known)
    laneDims.push_back({loop.dim, std::vector<int64_t>(before, 0)});
  const uint64_t elementStep =
      loop.dim == kNoDim ? 0 : uint64_t(int64_t(loop.step)) * stride[loop.dim];
  std::vector<Place> more;
  more.reserve(before * loop.count);
  // Later loops are inner loops.
  for (const Place &p : places)
    for (uint32_t k = 0; k < loop.count; ++k)
      more.push_back({p.element + k * elementStep, p.lane + int32_t(k) * loop.laneStep});
  places = std::move(more);
  for (LaneDim &d : laneDims) {
    const int64_t step = d.dim == loop.dim ? loop.step : 0;
    std::vector<int64_t> offsets;
    offsets.reserve(before * loop.count);
    for (int64_t offset : d.offsets)
      for (uint32_t k = 0; k < loop.count; ++k)
        offsets.push_back(offset + int64_t(k) * step);
    d.offsets = std::move(offsets);
  }
}

void PlacementWalk::advance(const BindingLoop &loop, int64_t times) {
  row += times * loop.rowStep;
  lane += times * loop.laneStep;
  if (loop.dim == kNoDim)
    return;
  index[loop.dim] += times * loop.step;
  element += uint64_t(times * loop.step) * stride[loop.dim];
}

std::vector<LaneRun> PlacementWalk::runsOf(const std::vector<Place> &of) const {
  std::vector<LaneRun> runs;
  for (size_t k = 0; k < of.size();) {
    LaneRun run{of[k].element, 1, of[k].lane, 1, 1};
    if (k + 1 < of.size()) {
      run.elementStep = of[k + 1].element - of[k].element;
      run.laneStep = of[k + 1].lane - of[k].lane;
      while (k + run.count < of.size() &&
             of[k + run.count].element == run.element + run.count * run.elementStep &&
             of[k + run.count].lane == run.lane + int32_t(run.count) * run.laneStep)
        ++run.count;
    }
    k += run.count;
    runs.push_back(run);
  }
  return runs;
}

bool PlacementWalk::nextInner() {
  for (size_t l = outer.size(); l-- > 0;) {
    if (++counter[l] < outer[l].count) {
      advance(outer[l], 1);
      return true;
    }
    advance(outer[l], -int64_t(counter[l] - 1));
    counter[l] = 0;
  }
  return false;
}

PlacementWalk::Side PlacementWalk::sideIn(size_t dim, int64_t at) const {
  const int64_t low = at + reach[dim].first, high = at + reach[dim].second,
                extent = binding.shape[dim];
  if (high < 0 || low >= extent)
    return Side::Outside;
  return low >= 0 && high < extent ? Side::Inside : Side::Border;
}

/// Of all dimensions: outside in one is outside, and the border in one is the border.
PlacementWalk::Side PlacementWalk::sideAt(uint32_t innerStep) const {
  Side side = Side::Inside;
  for (size_t d = 0; d < index.size(); ++d)
    side = std::max(side,
                    sideIn(d, index[d] + (d == inner.dim ? int64_t(innerStep) * inner.step : 0)));
  return side;
}

RowWork PlacementWalk::rowsFrom(uint32_t from) {
  const uint64_t elementStep =
      inner.dim == kNoDim ? 0 : uint64_t(int64_t(inner.step)) * stride[inner.dim];
  RowWork work{uint32_t(row + int64_t(from) * inner.rowStep),
               1,
               inner.rowStep,
               inner.laneStep,
               lane + int64_t(from) * inner.laneStep,
               element + from * elementStep,
               elementStep,
               &some,
               &others};
  const Side side = sideAt(from);
  if (side == Side::Border) {
    splitBorder(from);
    return work;
  }
  work.inside = side == Side::Inside ? &all : &none;
  work.outside = side == Side::Inside ? &none : &all;
  if (inner.dim == kNoDim) {
    work.count = inner.count - from;
    return work;
  }
  // Only the inner loop's own dimension moves; the others lie as they do at `from`.
  const Side here = sideIn(inner.dim, index[inner.dim] + int64_t(from) * inner.step);
  while (from + work.count < inner.count &&
         sideIn(inner.dim, index[inner.dim] + int64_t(from + work.count) * inner.step) == here)
    ++work.count;
  return work;
}

/// A dimension in which the pattern does not move is never at the border: here it is inside.
void PlacementWalk::splitBorder(uint32_t innerStep) {
  std::vector<Place> in, out;
  for (size_t k = 0; k < places.size(); ++k) {
    bool inside = true;
    for (const LaneDim &d : laneDims) {
      const int64_t at =
          index[d.dim] + d.offsets[k] + (d.dim == inner.dim ? int64_t(innerStep) * inner.step : 0);
      inside &= at >= 0 && at < binding.shape[d.dim];
    }
    (inside ? in : out).push_back(places[k]);
  }
  some = runsOf(in);
  others = runsOf(out);
}

} // namespace millrace
