// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A group of operations that work row by row as one kernel of the tile level.
#pragma once

#include "compiler/Codegen/Gpu/Kernels/BuildKernel.h"
#include "compiler/Codegen/Gpu/Kernels/RowGroup.h"

namespace millrace::gpu {

/// Builds a kernel named `name` at the end of a module. A program has a row, and lanes are its
/// elements, in a loop over parts of the row if it is longer than a tile; or a lane has a row, and
/// the program loops over columns: where rows are short, and where not columns but rows lie side by
/// side in memory. `stored`: memories of the group that are read after it, which alone are written.
/// Operands are the memories, each as one dimension. Sums of the first kind are in another order
/// than those of the operations, those of the second in the same.
BuiltKernel buildRows(const RowGroup &group, llvm::ArrayRef<mlir::Value> stored,
                      mlir::OpBuilder &builder, llvm::StringRef name);

} // namespace millrace::gpu
