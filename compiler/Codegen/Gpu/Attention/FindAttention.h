// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention at the tensor level: softmax(f(Q Kᵀ)) V, found by what flows between two products.
#pragma once

#include "compiler/Codegen/Gpu/Attention/Trace.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <memory>

namespace millrace::gpu {

/// An operand or the result: what it is a view of, and the loops that its dimensions step through.
struct AttentionTensor {
  mlir::Value base;
  Point point;
};

/// O[batch, row, v] = sum over keys of softmax(score)[batch, row, key] V[batch, key, v]. A score is
/// any function of the product of Q and K at its point, of tensors that broadcast to it, and of its
/// indices.
struct FoundAttention {
  mlir::linalg::LinalgOp scores, values; ///< the products, QKᵀ and that with V
  /// All that is computed between them, both included: in the order of the search.
  llvm::SmallVector<mlir::Operation *> operations;
  AttentionTensor q, k, v, o;
  /// Of Q and O alone; of all three or of K, V and O: the program's; then one each.
  llvm::SmallVector<unsigned> rows, batch;
  unsigned key = 0, depth = 0, valueDepth = 0;
  Term *score = nullptr;           ///< in `Kind::Product` terms it is the product
  llvm::SmallVector<Term *> sinks; ///< scores per row that take part in the sum alone
  bool emptyRowsAreZero = false;   ///< rows without an allowed key; else NaN
  std::shared_ptr<Trace> trace;    ///< has the terms and the loops
};

/// A product of weights that look like a softmax, and why it is none that a kernel computes.
struct LeftAttention {
  std::string node, why;
};

/// All in a function, each operation in one at most. `left`, if given, gets the others.
std::vector<FoundAttention> findAttention(mlir::func::FuncOp function,
                                          std::vector<LeftAttention> *left = nullptr);

} // namespace millrace::gpu
