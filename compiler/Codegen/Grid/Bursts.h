// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows of tensors on and off streams: the Read and Write bursts that a piece needs, cut where a
// tensor's rows are cut.
#pragma once

#include "compiler/Codegen/Memory/Context.h"
#include "compiler/Schedule/Piece.h"

namespace millrace::grid {

using schedule::Piece;

/// The iteration of a piece: element (i1, i0) flows at i1 c1 + i0 c0.
struct Flow {
  unsigned n0 = 1, n1 = 1;
  Cycle c0 = 1, c1 = 1;
  Cycle last() const { return Cycle(n1 - 1) * c1 + Cycle(n0 - 1) * c0; }
  /// The elements of the last step, from lastStep() on: what a running reduction leaves.
  Flow ofLastStep() const { return {n0, 1, c0, 1}; }
  Cycle lastStep() const { return Cycle(n1 - 1) * c1; }
};
/// n0 x n1 vectors, one a cycle.
inline Flow dense(unsigned n0, unsigned n1) { return {n0, n1, 1, Cycle(n0)}; }

Instruction instruction(Opcode opcode, const Flow &flow);

/// How many elements of a flow have their rows in a row copy.
uint64_t elementsHeld(const Copy &copy, unsigned tile, const RowPattern &rows, const Flow &flow);

/// Rows row + i0 step0 + i1 step1 of lane tile `tile`, sampled at `position` at `arrive` + flow.
/// All bytes on the group, or byte `only` alone on its first stream.
void readRows(Context &c, Piece &piece, const Copy &copy, unsigned tile, const RowPattern &rows,
              const Flow &flow, Piece::StreamVar stream, unsigned position, Cycle arrive,
              uint32_t provenance, std::optional<unsigned> only = std::nullopt);

/// The same row of a constant for every element.
void readConstant(Context &c, Piece &piece, unsigned pe, Hemisphere h, const ConstantRow &row,
                  const Flow &flow, Piece::StreamVar stream, unsigned position, Cycle arrive,
                  uint32_t provenance);

/// Writes the group that passes position 0 outward at `leave` + flow into rows of a row or column
/// copy: all bytes, or the first stream as byte `only`. Elements whose rows a copy of a part of the
/// tensor does not hold go nowhere. `alternates`: columns one by one, as others of the piece go to
/// the same slices in between.
void writeRows(Context &c, Piece &piece, const TensorLayout &layout, const Copy &copy,
               unsigned tile, const RowPattern &rows, const Flow &flow, Piece::StreamVar stream,
               Cycle leave, uint32_t provenance, std::optional<unsigned> only = std::nullopt,
               bool alternates = false);

} // namespace millrace::grid
