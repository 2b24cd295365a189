// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many rows of weights a dealing of work stores where, and which kernels had better keep each
// weight in one hemisphere only.
#pragma once

#include "compiler/Codegen/Grid/Partition.h"

#include <array>

namespace millrace::grid {

/// The constant weight tiles that each lane tile of each kernel needs, found once for all dealings.
/// Rows are of as many slices as an install reads at once.
class WeightRows {
public:
  using PerHemisphere = std::array<uint64_t, kHemispheres>;

  /// Errors: what a kernel cannot be cut into.
  static Expected<WeightRows> of(Context &c, const std::vector<Work> &works);

  /// Per (PE, hemisphere), if the partition's shares are done there.
  std::vector<uint64_t> stored(const Partition &partition) const;
  /// Splits K where one hemisphere would else wait for the other (of a row by a matrix, say).
  void splitIdle(Partition &partition) const;
  /// Kernel by kernel, splits K or gives whole shares to one hemisphere, whichever idles less, so
  /// that each weight is stored once, until no hemisphere stores more rows than `most` has for it,
  /// by (PE, hemisphere): those first that free the most rows for each cycle that they lose. Where
  /// that is not enough, as many kernels as have rows to save.
  void spare(Partition &partition, const std::vector<uint64_t> &most) const;

private:
  friend class Sharding; // deals kernels to fewer PEs
  WeightRows(Context &c, const std::vector<Work> &works) : c(c), works(works) {}

  Context &c;
  const std::vector<Work> &works;
  std::vector<unsigned> rows; ///< per different tile
  /// Different tiles of a lane tile, in the order of passes; those from `middle` on are of the
  /// second half of a split K.
  struct TileList {
    std::vector<uint32_t> tiles;
    size_t middle = 0;
    /// Where K can be split: passes that are not of zeros alone, of all K, and of each half.
    int64_t passes = 0;
    std::array<int64_t, 2> halves{};
  };
  std::vector<std::vector<TileList>> tiles; ///< [kernel][instance * lane tiles + lane tile]
  /// Per kernel whose K can be split: the part of the longer half.
  std::vector<std::optional<double>> longerHalf;
  std::vector<unsigned> kernels; ///< per different tile: how many take it

  double cyclesOfStep(size_t kernel) const;

  /// What one PE stores.
  struct Stored {
    std::array<std::vector<int>, kHemispheres> users; ///< per different tile: shares that take it
    PerHemisphere rows{};
    PerHemisphere busy{}; ///< vectors of the kernels that were given whole shares
  };
  Stored nothing() const;
  Stored storedOn(const Partition &p, unsigned pe) const;
  /// Adds a kernel's shares as they are dealt to what is stored, or takes them away.
  void use(Stored &stored, const Partition &p, size_t kernel, unsigned pe, int change) const;
  /// Gives each of a kernel's shares to one hemisphere, or splits K.
  void storeOnce(Stored &stored, Partition &p, size_t kernel, unsigned pe, bool splitK) const;
  /// The part of a kernel's work that one hemisphere does while the other idles, if each of its
  /// shares is dealt whole; the largest of all PEs.
  double idleIfWhole(const Partition &p, size_t kernel) const;
  std::vector<Hemisphere> wholeIn(const Partition &p, size_t kernel, unsigned pe) const;
  void even(Partition &p, unsigned pe, Stored &stored) const;
  const TileList &tilesOf(size_t kernel, const Share &share) const {
    return tiles[kernel][share.instance * works[kernel].tiles.size() + share.tile];
  }
  bool storesWeights(size_t kernel) const;
  /// Does the kernel send constants into the MXM? Each hemisphere has the rows that its workers
  /// read.
  bool streamsConstants(size_t kernel) const;
  /// Calls f(tile) for the tiles of a share that a hemisphere stores if its workers do the share.
  template <class F>
  void forEachTile(const Partition &p, size_t kernel, const Share &share, Hemisphere h, F f) const;
  /// Rows that a kernel takes on a PE, both hemispheres summed; of what several kernels take, its
  /// part.
  double rowsOn(const Partition &p, size_t kernel, unsigned pe) const;
  /// The same if one hemisphere had all of its shares on a PE.
  double rowsOnce(size_t kernel, const std::vector<Share> &shares) const;
  double rowsOfEach(std::vector<uint32_t> its) const; ///< of tiles, each once
  /// A hemisphere for each share, one for those of the same weights, so that both have as much to
  /// do as can be. `stored`: beside what a PE has been dealt; none: whatever that is.
  std::vector<Hemisphere> dealtWhole(size_t kernel, const std::vector<Share> &shares,
                                     const Stored *stored = nullptr) const;
  /// Which hemispheres store a share's weights.
  std::vector<std::vector<bool>> placesOf(const Partition &p, size_t kernel, unsigned pe) const;
};

} // namespace millrace::grid
