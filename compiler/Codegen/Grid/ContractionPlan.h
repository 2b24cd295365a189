// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a share of a contraction sends through a worker: weight tiles, and sweeps through them in an
// order that all shares have in common.
#pragma once

#include "compiler/Codegen/Grid/Contraction.h"

namespace millrace::grid {

/// One weight tile: the lanes of one activation tile (for one tap) times the lanes of the result
/// tile.
struct Tile {
  size_t term = 0;
  std::vector<int64_t> loops; ///< with the tap's values; the contracted lane loop at 0
  unsigned aTile = 0;         ///< lane tile of a
  int64_t firstLane = 0;      ///< absolute lane of a at lane 0 of the vector
  unsigned k0 = 0, k1 = 0;    ///< lanes of the vector that multiply
  unsigned inRow = 1;         ///< as many tiles like it lie beside each other in memory
  int shift = 0;       ///< lanes by which activations move up on their way to it, once it is stored
  ColumnGroups groups; ///< that are stored and installed: all others multiply nothing
  std::string tap, key;
};

/// One sweep of activations through an installed tile.
struct Pass {
  size_t tile = 0;
  unsigned k0 = 0, k1 = 0;
  Box box;                 ///< elements of the flow whose tap lies inside
  bool full = false;       ///< all of them, or padded to all
  int64_t group = 0;       ///< with heads: whose rows of a these are
  unsigned g0 = 0, g1 = 0; ///< column groups that multiply
  unsigned half = 0;       ///< of a split K
};

/// Neighbouring columns of a tile that go on in even steps: which elements of the weights are in
/// which lanes.
struct WeightRun {
  int64_t first, columns;                ///< columns [first, first + columns)
  int64_t lane, lanes;                   ///< of the first column
  int64_t element, step;                 ///< in its first lane, and from lane to lane
  int64_t laneStep = 0, elementStep = 0; ///< from column to column
};

class ContractionPlan {
public:
  ContractionPlan(Context &c, const Kernel &kernel, size_t kernelIndex, const Work &work,
                  const Share &share, const Worker &worker, uint32_t provenance);

  /// Finds tiles and passes, of one `half` of a split K alone or all of them. `trimmed`: for this
  /// share alone; first and last pass sweep every row, and passes of taps that lie outside
  /// altogether are gone.
  Status make(std::optional<unsigned> half = std::nullopt, bool trimmed = true);
  /// The tile's weights in the worker's hemisphere, stored if they are not yet; its shift is known
  /// then.
  Expected<WeightTile> store(Tile &tile);

  bool isConstant(const Tile &tile) const {
    return c.tensor(kernel.terms[tile.term].w.tensor).role == forms::TensorRole::Constant;
  }
  ElementType typeOf(const Tile &tile) const {
    return c.tensor(kernel.terms[tile.term].a.tensor).type;
  }
  unsigned columnGroups() const {
    return unsigned((domain.lanes + m.mxm.columnsPerInstall - 1) / m.mxm.columnsPerInstall);
  }

  Context &c;
  const Machine &m;
  const Kernel &kernel;
  size_t kernelIndex;
  const Work &work;
  Share share;
  Worker worker;
  Domain domain;
  std::vector<Tile> tiles;
  std::vector<Pass> passes;

private:
  void planTiles();
  void cutTiles();
  unsigned tilesInRow(const Tile &cell) const;
  void addTiles(size_t term, const std::vector<int64_t> &loops, const std::string &tap);
  std::string keyOf(const Tile &tile) const;
  std::string contentOf(const Tile &tile) const;
  Status planPasses();
  void orderPasses();
  void splitPasses();
  void trimPasses();
  void sweepHeads();
  bool isAlwaysInside(const Tile &tile) const;
  template <class F> void forEachColumn(const Tile &tile, F f) const;
  ColumnGroups groupsOf(const Tile &tile, unsigned k0, unsigned k1) const;
  std::vector<WeightRun> runsOf(const Tile &tile) const;
  ConstantData::Writer writerOf(const Tile &tile) const;
};

} // namespace millrace::grid
