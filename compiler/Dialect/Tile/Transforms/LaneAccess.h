// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which loads and stores neighbouring lanes can do as one.
#pragma once

#include "compiler/Dialect/Tile/IR/Tile.h"

namespace millrace::tile {

/// Whether groups of `width` lanes, from lane 0 on, access neighbouring elements, at an offset that
/// is a multiple of `width` elements from where the tensor begins, with one mask for the group.
bool isTogether(LoadOp op, unsigned width);
bool isTogether(StoreOp op, unsigned width);

/// Whether a scalar is known to be a multiple of `divisor`.
bool isMultiple(mlir::Value scalar, int64_t divisor);

/// Lanes that one thread gets: as many as make every access to tiles whole, up to 16 bytes; else
/// as few as leave at most 256 threads.
unsigned chooseWidth(KernelOp kernel);

} // namespace millrace::tile
