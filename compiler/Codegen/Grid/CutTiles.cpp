// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Weight tiles of few lanes, which lie beside each other in memory.
#include "compiler/Codegen/Grid/ContractionPlan.h"

namespace millrace::grid {

/// How many tiles as wide as the cell a row of memory holds, none across what two passes multiply.
unsigned ContractionPlan::tilesInRow(const Tile &cell) const {
  const unsigned step = m.mxm.format(typeOf(cell))->lanesPerPass;
  return m.lanes() / step * (step / (cell.k1 - cell.k0));
}

/// Constant tiles of few lanes lie beside others in memory: 384 channels are a tile of 320 lanes
/// and one of 64, and four of 64 fill the rows of one. Shifters move activations to those lanes on
/// their way to the MXM, which multiplies no others; sums, and the order in which they are added,
/// stay as they are. Tiles are cut to what one pass multiplies where that takes fewer rows: of
/// groups of channels each part has columns of its own.
void ContractionPlan::cutTiles() {
  std::vector<Tile> cut;
  for (const Tile &tile : tiles) {
    const unsigned step = m.mxm.format(typeOf(tile))->lanesPerPass;
    std::vector<Tile> cells;
    double rows = 0; // in column groups
    for (unsigned k = tile.k0; k < tile.k1; k = cells.back().k1) {
      Tile cell = tile;
      cell.k0 = k;
      cell.k1 = std::min(tile.k1, (k / step + 1) * step);
      cell.inRow = tilesInRow(cell);
      cell.key = keyOf(cell);
      rows += double(groupsOf(cell, cell.k0, cell.k1).size()) / cell.inRow;
      cells.push_back(std::move(cell));
    }
    Tile whole = tile;
    whole.key = keyOf(whole);
    if (isConstant(tile) && rows < groupsOf(whole, whole.k0, whole.k1).size() &&
        m.sxm.shifters >= byteWidth(typeOf(tile)))
      cut.insert(cut.end(), cells.begin(), cells.end());
    else
      cut.push_back(tile);
  }
  tiles = std::move(cut);
}

} // namespace millrace::grid
