// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors as the memories that a kernel takes.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

namespace millrace::gpu {

/// The tensor as a kernel reads it: its elements converted to those of `memory` (a truth to an
/// integer, reals to another precision), its shape cut or joined to that of `memory`.
mlir::Value bufferOf(mlir::OpBuilder &b, mlir::Location place, mlir::Value tensor,
                     mlir::MemRefType memory);

/// The reverse, of what a kernel wrote and nothing else does.
mlir::Value tensorOf(mlir::OpBuilder &b, mlir::Location place, mlir::Value buffer,
                     llvm::ArrayRef<int64_t> shape);

} // namespace millrace::gpu
