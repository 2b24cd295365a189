// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "mlir/IR/Operation.h"

namespace millrace::tile {

/// Replaces operations of `math` that NVPTX has no instructions for by polynomials of those it has
/// (upstream's, of a few units in the last place in f32). An error names one that has none, such as
/// an exponential of f64.
mlir::LogicalResult expandMath(mlir::Operation *kernel);

} // namespace millrace::tile
