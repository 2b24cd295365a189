// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the elements of a tensor lie: a map from its index to a row and a lane. Each dimension is
// split in two digits, one of which counts rows and the other slots, which lie side by side along
// the lanes:
//
//   index = row * rowStep + slot * slotStep - start
//
// Blocks of neighbouring pixels (slotStep 1, rowStep the block), bands of an image (rowStep 1),
// heads beside each other, copies in every slot (slotStep 0), rows that overlap (rowStep below the
// slots): all are values of these five numbers. The lane dimension may have gaps: runs of whole
// groups, so that none lies in two parts of a vector. Which tensor has which layout is a decision
// (LayoutProblem.h); materialize() turns it into a kernel graph whose tensors are rows of lanes.
#pragma once

#include "compiler/Forms/Kernel.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace::layouts {

using forms::Access;
using forms::AffineIndex;
using forms::Kernel;
using forms::KernelGraph;
using forms::LoopKind;
using forms::Tensor;
using forms::TensorRole;
using forms::Term;

struct DimLayout {
  int64_t rows = 1, rowStep = 1;
  int64_t slots = 1, slotStep = 1;
  int64_t start = 0; ///< indices before 0 that row 0 begins with
  int64_t pitch = 0; ///< lanes from one slot to the next; 0 with a single slot

  int64_t indexAt(int64_t row, int64_t slot) const {
    return row * rowStep + slot * slotStep - start;
  }
  bool operator==(const DimLayout &) const = default;
};

/// Neighbours along the lanes: `length` of them, then a gap, so that the next begin `pitch` lanes
/// further. A length of 0: without gaps.
struct LaneRuns {
  int64_t length = 0, pitch = 0;

  int64_t laneOf(int64_t index) const {
    return length ? index / length * pitch + index % length : index;
  }
  /// The index in a lane; nothing in a gap.
  std::optional<int64_t> indexAt(int64_t lane) const {
    if (length && lane % pitch >= length)
      return std::nullopt;
    return length ? lane / pitch * length + lane % pitch : lane;
  }
  bool operator==(const LaneRuns &) const = default;
};

/// A place of one dimension's index.
struct Place {
  int64_t row = 0, slot = 0;
  bool operator==(const Place &) const = default;
};

struct Layout {
  std::vector<DimLayout> dims; ///< of the tensor's dimensions; lanes are the sum of slot * pitch
  unsigned laneDim = 0;        ///< the dimension whose slots are neighbouring lanes
  LaneRuns runs;               ///< of those
  int64_t lanes = 0;           ///< of a row, gaps between slots and runs included

  bool operator==(const Layout &) const = default;

  /// Lanes along the tensor's lane dimension alone, every other index a row of its own.
  static Layout plain(const Tensor &tensor);
  bool isPlain(const Tensor &tensor) const { return *this == plain(tensor); }

  /// The slot of every dimension in a lane, or nothing in a gap between slots or runs.
  std::optional<std::vector<int64_t>> slotsAt(int64_t lane) const;
  int64_t laneOf(const std::vector<int64_t> &slots) const;
  /// Places that hold an index of a dimension, by row: one, none outside, several where rows
  /// overlap. Rows may lie outside the tensor's, as windows do.
  std::vector<Place> placesOf(unsigned dim, int64_t index) const;
  /// The same in a list that is kept, for the many that a choice of layouts asks for.
  void findPlaces(unsigned dim, int64_t index, std::vector<Place> &places) const;
  /// The tensor's rows, one dimension each but for the lane dimension, then its lanes.
  std::vector<int64_t> rowShape() const;
  /// Is there a place that holds no element, beside gaps?
  bool hasOutside(const Tensor &tensor) const;
  /// How many places an element has, on average.
  double repetition(const Tensor &tensor) const;
  /// No two slots have one lane and, if it is `whole`, every index has a place. Empty, or what is
  /// wrong.
  std::string verify(const Tensor &tensor, bool whole = true) const;
  /// For people: "2 x 2 of dims 2, 3 in 256 lanes, from -1".
  std::string text() const;
};

/// The dimension cut in blocks of `block` neighbours, a row beginning `start` before index 0.
DimLayout blocksOf(int64_t extent, int64_t block, int64_t start, int64_t pitch);

} // namespace millrace::layouts
