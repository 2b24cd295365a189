// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operands of a matrix product rounded to 16 bits in memory, so that TMA can load them.
#pragma once

#include "compiler/Codegen/Gpu/Products/FindProduct.h"

namespace millrace::gpu {

/// The product of 16-bit tensors that are widened where they are multiplied; replaces `product`.
mlir::linalg::LinalgOp narrowProduct(mlir::linalg::LinalgOp product, mlir::ValueRange inputs);

/// The product of 16-bit tensors, in place of one whose operands of fp32 a kernel would round each
/// time that it reads them; null, and nothing has changed, where that does not pay: the operands
/// are such tensors or computed of others, TMA could not load them, or moving them takes longer
/// than it saves. Constants are rounded here and not when it runs.
mlir::linalg::LinalgOp storeOperands(const FoundProduct &found);

} // namespace millrace::gpu
