// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A matrix product at the tensor level with what is elementwise around it: conversions and scales
// before it, bias, activation and residual behind it, in whatever order of dimensions.
#pragma once

#include "compiler/Codegen/Gpu/Attention/Trace.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <memory>

namespace millrace::gpu {

/// result[outer, row, column] = f(first + sum over depth of left[outer, row, depth] x
/// right[outer, column, depth]). Loops are those of the trace; none of them is cut further.
struct FoundProduct {
  mlir::linalg::LinalgOp product;
  mlir::Operation *last = nullptr; ///< whose result is that of the kernel
  /// What is computed in the kernel, `last` among them: the operands' first, then what follows.
  llvm::SmallVector<mlir::Operation *> operations;
  Term *left = nullptr, *right = nullptr;          ///< factors: of the row, of the column
  Term *first = nullptr;                           ///< what sums begin with
  Term *result = nullptr;                          ///< f: in `Kind::Product` terms it is the sum
  Point o;                                         ///< of the result
  mlir::Type element;                              ///< that is multiplied, f16 or bf16
  llvm::SmallVector<unsigned> outer, rows, depths; ///< the last one fastest
  /// The last ones of what is summed, which lie side by side in the row's factor: steps as one.
  llvm::SmallVector<unsigned> steps;
  unsigned column = 0;
  std::shared_ptr<Trace> trace; ///< has the terms and the loops

  int64_t size(unsigned loop) const { return trace->loops.size(loop); }
  int64_t count(llvm::ArrayRef<unsigned> loops) const;
};

/// The product with as much behind it as one kernel computes. `type`: what is multiplied where the
/// operands are no 16-bit numbers of one type, but rounded to it. `follows`: what is computed of
/// its operands is a part of it, where a kernel can. Nothing, with the reason, if it is no product
/// for tensor cores.
std::optional<FoundProduct> findProduct(mlir::linalg::LinalgOp op, mlir::Type type,
                                        std::string &why, bool follows = true);

/// Whether an operation adds up products of two tensors, in any type.
bool isAnyProduct(mlir::linalg::LinalgOp op);

} // namespace millrace::gpu
