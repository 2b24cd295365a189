// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which PE computes which rows of a kernel, which rows of every tensor a PE therefore holds, and
// which must travel.
#pragma once

#include "compiler/Codegen/Grid/Work.h"

namespace millrace::grid {

/// Rows of a tensor on one PE, per lane tile; empty where the PE has none.
struct RowSet {
  std::vector<std::vector<bool>> tiles;
  bool any() const;
};

struct TensorRows {
  std::vector<RowSet> owned;  ///< per PE: written there by a kernel
  std::vector<RowSet> needed; ///< per PE: read there
};

/// Rows of one lane tile that travel together: from one PE to several.
struct Transfer {
  unsigned tile = 0;
  int64_t row = 0, rows = 0;
  unsigned from = 0;
  std::vector<unsigned> to;
};

struct Partition {
  std::vector<std::vector<std::vector<Share>>> shares; ///< per kernel, per PE
  std::vector<TensorRows> tensors;
  /// Per kernel, PE and share: the hemisphere whose workers do it. Empty while memory does for weights
  /// in both hemispheres, of which each does a part of every share.
  std::vector<std::vector<std::vector<Hemisphere>>> hemispheres;
  /// Rows (of as many slices as an install reads) that weights take, per (PE, hemisphere).
  std::vector<uint64_t> weightRows;
};

/// How many share a kernel on one PE: the workers of its format, or the two sides of the VXM.
size_t teamOf(const Context &c, const Kernel &kernel);

/// The share of one member of a PE's team, in pieces of at most `most` strips; a running reduction
/// stays in one piece.
std::vector<Share> sharesOf(const Context &c, const Work &work, const Partition &partition,
                            size_t kernel, unsigned pe, size_t member, int64_t most);

/// Deals every kernel's rows over the PEs: whole rows of an image while all weights are small
/// enough to be everywhere, else lane tiles first, so that weights are sharded.
Expected<Partition> partitionOf(Context &c, const std::vector<Work> &works);

/// What has to travel once `kernel` has written its part of a tensor.
std::vector<Transfer> transfersOf(const Partition &partition, const Context &c, size_t kernel,
                                  unsigned tensor, const Work &work);

/// Calls f(tensor, tile, row) for every row that a share writes.
void forEachWritten(const Context &c, const Kernel &kernel, const Work &work, const Share &share,
                    const std::function<void(unsigned, unsigned, int64_t)> &f);

} // namespace millrace::grid
