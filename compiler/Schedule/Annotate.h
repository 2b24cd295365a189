// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compresses "which element of which burst made this" into the few affine rectangles that an image
// stores.
#pragma once

#include "compiler/Schedule/Hazards.h"

#include <functional>
#include <vector>

namespace millrace::schedule {

/// Appends entries for operand `of`, byte `byte`, of a burst with n0 x n1 elements. `origins` holds
/// one entry per element, i0 fastest; an element whose origin is absent is `kNoOrigin` and left
/// out.
void annotate(std::vector<Producer> &out, ProducerOf of, uint8_t byte, unsigned pe, unsigned n0,
              unsigned n1, const std::vector<Origin> &origins);

} // namespace millrace::schedule
