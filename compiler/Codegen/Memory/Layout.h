// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How tensors lie in rows: which lanes belong to which lane tile, which rows to which index, and
// where the copies are.
#pragma once

#include "compiler/Forms/Kernel.h"

#include "arch/spec/Machine.h"

#include <optional>
#include <vector>

namespace millrace::grid {

using forms::Access;
using forms::Kernel;
using forms::KernelGraph;
using forms::Tensor;

/// Lanes [start, start + count) of a tensor's lane dimension; they fill lanes 0 .. count - 1 of a
/// vector.
struct LaneTile {
  int64_t start = 0, count = 0;
};

/// Rows [firstRow, firstRow + rows) of one lane tile: byte b from row addresses[b] of slices[b] on.
/// What the host reads or writes lies at one address in all of them.
struct Segment {
  int64_t firstRow = 0, rows = 0;
  std::vector<unsigned> slices, addresses;
  std::vector<uint32_t> regions; ///< per byte
};

/// One lane tile of a tensor laid out for Install: column n (TensorLayout::columnOf a row), byte b
/// lies in place s = (n + 8 b) mod 16, that is row addresses[16 b + s] + n / 16 of slices[16 b + s]
/// (for 16 columns an install cycle). All bytes of a place are in one slice, of one region where
/// they follow each other, or no two bytes of any places are.
struct Columns {
  int64_t rows = 0;
  /// Behind the last column lie those again that are `repeatDistance` before.
  bool repeats = false;
  std::vector<unsigned> slices, addresses; ///< per byte and place
  std::vector<uint32_t> regions;           ///< per byte and place
};

/// A column more than a group: other slices take a column again in the same cycle, whichever hold
/// its other bytes.
inline int64_t repeatDistance(int64_t columnsPerInstall) { return columnsPerInstall + 1; }

/// One copy of (a row range of) a tensor on one hemisphere.
struct Copy {
  unsigned pe = 0;
  Hemisphere hemisphere = Hemisphere::West;
  bool columns = false;
  /// A row copy without the rows that its hemisphere does not read: those are not written to it.
  bool isPart = false;
  std::vector<std::vector<Segment>> tiles; ///< per lane tile, by firstRow
  std::vector<Columns> columnTiles;        ///< per lane tile
};

struct TensorLayout {
  /// Of each dimension, how many rows lie between neighbours of one phase, x and x + phases, and
  /// between x and x + 1 where that is the next phase; 0 for the lane dimension.
  std::vector<int64_t> pitch, phasePitch;
  std::vector<int64_t> phases; ///< per dimension (Phases.h); 1: neighbours lie `pitch` apart
  std::vector<int64_t>
      columnPitch; ///< the same in the order of column copies, whose columns are neighbours
  int64_t rows = 1;
  std::vector<LaneTile> tiles;
  std::vector<Copy> copies;
  /// Place of a row in the order of column copies.
  int64_t columnOf(int64_t row) const;
  /// The lane tile that begins at lane `start`, if one does.
  std::optional<unsigned> tileAt(int64_t start) const;
  /// The lane tile that holds `lane`.
  unsigned tileOf(int64_t lane) const;
};

/// An access reduced to rows and lanes for given values of all loops but the two innermost row
/// loops: rows are row + i0 * step0 + i1 * step1.
struct RowPattern {
  int64_t row = 0, step0 = 0, step1 = 0;
};

/// Loops of a kernel by what they do on the grid.
struct LoopRoles {
  std::optional<unsigned> lane; ///< parallel loop along the result's lanes
  std::optional<unsigned>
      group; ///< merged into the lanes: groups of a contraction with constant weights, or heads
  /// The groups are heads: weights made at run time, whose columns lie side by side, and rows of
  /// the other operand per head. Each head is swept through its own column groups.
  bool heads = false;
  std::vector<unsigned> batch; ///< one kernel after another
  std::vector<unsigned> rows;  ///< outer to inner in the result's rows
  std::vector<unsigned> running;
  std::vector<unsigned> contracted;
};
LoopRoles rolesOf(const KernelGraph &graph, const Kernel &kernel, const Machine &machine);

/// x / by, rounded down; by > 0.
inline int64_t floorDivide(int64_t x, int64_t by) { return x / by - (x % by < 0); }
/// Value of an affine form.
int64_t evaluate(const forms::AffineIndex &index, const std::vector<int64_t> &loops);
/// Row of an access, without its bounds.
int64_t rowOf(const TensorLayout &layout, const Access &access, const std::vector<int64_t> &loops);
int64_t rowCoefficient(const TensorLayout &layout, const Access &access, unsigned loop);

/// Row order and lane tiles of every tensor: tiles break where a writer begins or ends, agree
/// between tensors whose lanes meet in one vector and between the parts that one kernel writes, and
/// are at most a vector long.
/// Constants that one vector holds for all rows meet nothing.
std::vector<TensorLayout> inferLayouts(const KernelGraph &graph, const Machine &machine);

/// The graph with a constant in as many copies as kernels read it row by row in different lane
/// tiles, so that the tiles of one are not those of all others (a diagonal of 256 lanes in parts of
/// 16, as another kernel writes images of 16 columns); nothing where that is none.
std::optional<KernelGraph> withOwnConstants(const KernelGraph &graph, const Machine &machine);

} // namespace millrace::grid
