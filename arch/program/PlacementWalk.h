// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops of a placement, in the order that is fast: rows outside, and within a row a pattern of
// lanes that is worked out once and used for every row.
#pragma once

#include "arch/program/Image.h"
#include "arch/spec/Expected.h"

#include <cstdint>
#include <vector>

namespace millrace {

/// Where a placement may reach, inclusive.
struct PlacementExtent {
  int64_t firstRow = 0, lastRow = 0, firstLane = 0, lastLane = 0;
  uint64_t elements = 0; ///< product of the loop counts: places, at most 2^48
};

/// Elements of the binding's host tensor; an error if the shape is negative or beyond 2^32
/// elements.
Expected<uint64_t> elementCount(const Binding &binding);

/// Bytes of an element that the placement puts: firstByte up to this many.
unsigned bytesPlaced(const Binding &binding, const Placement &placement);

/// Checks a placement against its binding (dimensions, counts, bytes, no sum that overflows) and
/// gives its reach. Errors name the field and the number.
Expected<PlacementExtent> extentOf(const Binding &binding, const Placement &placement);

/// A straight line of places within a row: `count` elements, from `element` (relative to the row's
/// first) in steps of `elementStep`, to lanes from `lane` (relative to the row's) in steps of
/// `laneStep`. Numbers of elements are modulo 2^64: those of elements inside the tensor are right,
/// and no index far outside can overflow.
struct LaneRun {
  uint64_t element = 0, elementStep = 1;
  int32_t lane = 0, laneStep = 1;
  uint32_t count = 0;
};

/// Rows alike, `count` of them. Row r stands at row + r * rowStep; its runs are relative to element
/// + r * elementStep and lane + r * laneStep. `inside` are elements of the tensor, `outside` places
/// beyond its shape (to be filled).
struct RowWork {
  uint32_t row = 0, count = 0;
  int32_t rowStep = 0, laneStep = 0;
  int64_t lane = 0;
  uint64_t element = 0, elementStep = 0;
  const std::vector<LaneRun> *inside = nullptr, *outside = nullptr;

  uint32_t rowAt(uint32_t r) const { return uint32_t(row + int64_t(r) * rowStep); }
  int64_t laneAt(uint32_t r) const { return lane + int64_t(r) * laneStep; }
  /// First element of a run of `inside`.
  int64_t elementAt(uint32_t r, const LaneRun &run) const {
    return int64_t(element + r * elementStep + run.element);
  }
};

/// A placement whose extent is known to be good. No two elements may share a place.
class PlacementWalk {
public:
  PlacementWalk(const Binding &binding, const Placement &placement);

  /// Calls f(const RowWork &) until every combination of the loops that move from row to row has
  /// been served.
  template <class F> void forEachRows(F f) {
    for (bool more = true; more; more = nextInner())
      for (uint32_t from = 0; from < inner.count;) {
        const RowWork work = rowsFrom(from);
        f(work);
        from += work.count;
      }
  }

private:
  /// A place of the lane pattern: offsets from the row's first place.
  struct Place {
    uint64_t element = 0;
    int32_t lane = 0;
  };
  /// A dimension that the lane pattern moves in, and the offsets of its places in it.
  struct LaneDim {
    uint32_t dim = 0;
    std::vector<int64_t> offsets; ///< one per place
  };

  /// How the pattern of a row lies to the shape.
  enum class Side : uint8_t { Inside, Border, Outside };

  void advance(const BindingLoop &loop, int64_t times);
  void addLanes(const BindingLoop &loop);
  bool nextInner();
  Side sideIn(size_t dim, int64_t at) const;
  Side sideAt(uint32_t innerStep) const;
  RowWork rowsFrom(uint32_t from);
  void splitBorder(uint32_t innerStep);
  std::vector<LaneRun> runsOf(const std::vector<Place> &places) const;

  const Binding &binding;
  std::vector<uint64_t> stride;   ///< per dimension, in elements
  std::vector<BindingLoop> outer; ///< loops from row to row, but the innermost
  BindingLoop inner;              ///< that one
  std::vector<uint32_t> counter;  ///< of `outer`
  std::vector<Place> places;
  std::vector<LaneDim> laneDims;
  std::vector<std::pair<int64_t, int64_t>> reach; ///< per dimension: low and high of the pattern
  std::vector<LaneRun> all, some, others; ///< runs of: every place; of a row at the tensor's border
  const std::vector<LaneRun> none;
  // At step 0 of the inner loop.
  std::vector<int64_t> index;
  int64_t row = 0, lane = 0;
  uint64_t element = 0;
};

} // namespace millrace
