// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One operation of linalg as one kernel of the tile level.
#pragma once

#include "arch/spec/Expected.h"
#include "compiler/Dialect/Tile/IR/Tile.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace millrace::gpu {

/// A kernel, and what its launch passes.
struct BuiltKernel {
  tile::KernelOp kernel;
  llvm::SmallVector<mlir::Value> operands;
};

/// Builds a kernel named `name` at the builder's place: a lane computes one element of the results,
/// in loops over what is summed, in their order. Of a gather (FindGather.h) with rows of at least a
/// warp's lanes a program has a row, or a part of one. The operation works on buffers of static
/// shape and has results. Errors name what a kernel cannot have: an operation in its body that is
/// not elementwise, a number from outside that is no constant, an index that is no sum of
/// multiples.
Expected<BuiltKernel> buildKernel(mlir::linalg::LinalgOp op, mlir::OpBuilder &builder,
                                  llvm::StringRef name);

} // namespace millrace::gpu
