// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel's scalar nodes as a mesh of chained ALUs, with the reads that feed it and the writes
// that it feeds. The same code serves contractions (one operand comes out of the MXM), maps,
// windows and running reductions.
#pragma once

#include "compiler/Codegen/Grid/Domain.h"

namespace millrace::grid {

/// The contraction's result: a group of four streams that reaches position 0 at `arrive` + flow.
struct AccumulatorStream {
  Piece::StreamVar stream = 0;
  Cycle arrive = 0;
};

/// Adds ALUs, operand reads and result writes to the piece. Two accumulators, the halves of a split
/// K, arrive at once and are added. Without any the mesh begins at cycle `start`. `side`: the
/// hemisphere that constants and, where there is a choice, operands come from; `which`: which of
/// several copies on it. Results leave `passes` passes later than they could: what to change when a
/// read and a write of the piece would leave one queue in one cycle.
Status addEpilogue(Context &c, Piece &piece, const Domain &domain,
                   const std::vector<AccumulatorStream> &accumulator, Cycle start, Hemisphere side,
                   unsigned which, unsigned passes);

} // namespace millrace::grid
