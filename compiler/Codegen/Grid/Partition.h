// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which PE computes which rows of a kernel, which rows of every tensor a PE therefore holds, and
// how many rows of weights that takes. A problem, exchangeable solvers, and a check of what they
// answer.
#pragma once

#include "compiler/Codegen/Grid/Work.h"
#include "compiler/Codegen/Memory/Copies.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace millrace::grid {

/// `count` rows of a tensor, at least one, `step` apart.
struct SteppedRows {
  int64_t first = 0, count = 1, step = 1;
  int64_t last() const { return first + (count - 1) * step; }
  bool isWithin(int64_t rows) const {
    return std::min(first, last()) >= 0 && std::max(first, last()) < rows;
  }
  template <class F> void forEach(F f) const {
    for (int64_t i = 0; i < count; ++i)
      f(first + i * step);
  }
};

/// Rows of a tensor on one PE, per lane tile; empty where the PE has none.
struct RowSet {
  std::vector<std::vector<bool>> tiles;
  bool any() const;
  bool has(unsigned tile, int64_t row) const;
  void mark(const TensorLayout &layout, unsigned tile, const SteppedRows &rows);
};

struct TensorRows {
  std::vector<RowSet> owned;  ///< per PE: written there by a kernel
  std::vector<RowSet> needed; ///< per PE: read there
  /// Per PE: read by each hemisphere, from copies of rows that lie there. What a kernel may read in
  /// either is in both.
  std::vector<std::array<RowSet, kHemispheres>> read;
};

/// Who does what: per kernel and PE, shares of its work.
using Dealing = std::vector<std::vector<std::vector<Share>>>;

struct PartitionProblem {
  Context &c;
  const std::vector<Work> &works;     ///< per kernel
  const std::vector<unsigned> &order; ///< of PEs: neighbours in it are near each other
  /// Rows of weights (of as many slices as an install reads) that each hemisphere should store at
  /// most, to leave room for values: by (PE, hemisphere); empty: an eighth of each is left.
  std::vector<uint64_t> mostWeightRows = {};
  unsigned mostPes = 0; ///< that compute, the first of the order; 0: all
  /// Of each tensor; none: fewer in each hemisphere than one piece reads, where it reads several.
  std::vector<Copies> copies = {};

  /// PEs that compute.
  size_t pes() const { return mostPes ? std::min<size_t>(mostPes, order.size()) : order.size(); }
};

struct Partition {
  std::string solver; ///< whose dealing this is
  Dealing shares;
  std::vector<TensorRows> tensors;
  /// Per kernel, PE and share: the hemisphere whose workers do it. None for a PE: each hemisphere
  /// does one half of the PE's shares, one after the other, and both store what a share in the
  /// middle needs.
  std::vector<std::vector<std::vector<Hemisphere>>> hemispheres;
  /// Per kernel: does every share take two workers, one in either hemisphere, each of which adds up
  /// half of the passes? Then its hemispheres say nothing.
  std::vector<bool> splitK;
  /// Per kernel whose K is split: the hemispheres change halves, so that weights lie evenly.
  std::vector<bool> turned;
  /// Rows (of as many slices as an install reads) that weights take, per (PE, hemisphere); counted
  /// no further once they are twice as large as all memory.
  std::vector<uint64_t> weightRows;
};

/// A solver deals every kernel's work over the PEs.
struct PartitionSolver {
  std::string name, text; ///< for --help
  Dealing (*solve)(const PartitionProblem &problem);
  bool shards = false; ///< where weights have no room, some kernels may be dealt to fewer PEs
};
/// `spread`: every kernel over all PEs, whole rows of an image while all weights are small enough
/// to be everywhere, else lane tiles first, so that weights are sharded; over fewer PEs where
/// weights have no room (Sharding.h). `pipeline`: consecutive kernels on one PE, cut where the
/// longest stage is shortest.
const std::vector<PartitionSolver> &partitionSolvers();

/// The dealing of the named solver; with `auto`, of the first one whose weights are no more than
/// they should (or else of the one that needs least). Errors name what a kernel cannot be
/// cut into, or an unknown solver.
Expected<Partition> solve(const PartitionProblem &problem, const std::string &solver);

/// Every strip of every kernel is dealt exactly once, and every row that a PE reads is written
/// somewhere or comes from the host or the image.
Status verify(const PartitionProblem &problem, const Partition &partition);

} // namespace millrace::grid
