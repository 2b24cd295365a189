// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The points of a kernel that one piece computes, and what of each tensor they touch.
#pragma once

#include "compiler/Codegen/Grid/Bursts.h"

#include <optional>

namespace millrace::grid {

/// Which points of a kernel a piece computes: all rows of a flow, one lane tile.
struct Domain {
  unsigned pe = 0;
  const Kernel *kernel = nullptr;
  const LoopRoles *roles = nullptr;
  std::vector<int64_t> loops; ///< value of every loop at element (0, 0); the lane (and group) loop
                              ///< at the tile's start
  std::optional<unsigned> loop0, loop1; ///< loops that i0 and i1 run
  Flow flow;
  int64_t lanes = 0;   ///< lanes of the tile
  bool linear = false; ///< i0 (i1 of a running reduction) runs through several loops at even steps,
                       ///< inside every dimension that they index; one that none of them indexes (a
                       ///< tap of a window) may lie outside
  bool keepsCopies = false; ///< constants lie apart from what the kernel reads
  uint32_t provenance = 0;
};

/// Loop values of lane `l` of the domain's tile.
std::vector<int64_t> loopsAtLane(const Domain &domain, int64_t l);
/// Rows of an access over the domain's flow.
RowPattern rowsOf(const TensorLayout &layout, const Access &access, const Domain &domain);

/// Elements [from0, from0 + n0) x [from1, from1 + n1) of a flow.
struct Box {
  int64_t from0 = 0, n0 = 0, from1 = 0, n1 = 0;
  bool empty() const { return n0 <= 0 || n1 <= 0; }
  bool covers(const Flow &flow) const {
    return from0 == 0 && from1 == 0 && n0 == flow.n0 && n1 == flow.n1;
  }
};
/// The elements of n0 x n1 at which an access lies inside its tensor; an error if that is not a
/// box.
Expected<Box> insideOf(const Context &c, const Access &access, const Domain &domain,
                       const Flow &flow);

/// A constant row that the piece can read beside what it reads already; where the domain keeps
/// copies, apart from all that the kernel reads and writes, as far as there are slices. `mayMeet`:
/// any row if there is none, to be read in another cycle.
Expected<ConstantRow> constantRowBeside(Context &c, Piece &piece, const Domain &domain,
                                        Hemisphere h, const std::vector<uint8_t> &bytes,
                                        unsigned width, bool mayMeet = false);

/// Streams an access past `position` at `arrive` + flow; where it leaves the tensor a constant row
/// of pads stands in.
Status readWindow(Context &c, Piece &piece, const Copy &copy, unsigned tile, const Access &access,
                  const Domain &domain, const Flow &flow, Piece::StreamVar stream,
                  unsigned position, Cycle arrive);

} // namespace millrace::grid
