// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "compiler/Codegen/Grid/Shares.h"
#include "compiler/Placement/Fabric.h"

namespace millrace::grid {

/// Moves rows of a tensor from one PE to the copies on others: read, sent along the tree, passed
/// through the VXM, written.
Status moveRows(Context &c, const placement::Routes &routes, unsigned tensor,
                const Transfer &transfer, uint32_t provenance);

} // namespace millrace::grid
