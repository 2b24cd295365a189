// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operands whose row index is data.
#pragma once

#include "compiler/Codegen/Grid/Domain.h"

namespace millrace::grid {

/// Streams operand `operand` of the domain's kernel, which looks an index up, past position 0 at
/// `arrive` + flow: map vectors flow inward past the table's slices, whose Gathers send on what
/// they name. An error if no copy of the table begins at the domain's lanes.
Expected<Piece::StreamVar> readLookup(Context &c, Piece &piece, unsigned operand,
                                      const Domain &domain, const Flow &flow, Cycle arrive);

} // namespace millrace::grid
