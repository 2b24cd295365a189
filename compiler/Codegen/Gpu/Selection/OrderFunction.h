// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scalar functions that compare and choose and do nothing else: what they are is known from their
// values on every order of their arguments.
#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <functional>
#include <optional>

namespace millrace::gpu {

/// What an argument or a result is: a number, or a truth (0 or 1), or a constant by itself.
struct OrderValue {
  int number = 0;
  mlir::TypedAttr constant; ///< none: it is no constant

  bool operator==(const OrderValue &) const = default;
};

/// What the body of an operation gives for values of its block's arguments and of its indices.
/// Nothing if it does more than compare arguments (as ordered numbers) and choose.
std::optional<llvm::SmallVector<OrderValue>> evaluateOrder(mlir::linalg::LinalgOp op,
                                                           llvm::ArrayRef<int> arguments,
                                                           llvm::function_ref<int(unsigned)> index);

/// Whether the body gives `expected` for every order of its arguments, each of which is drawn from
/// 0 to `levels` - 1. `isTruth`: arguments that are 0 or 1.
bool isOrderFunction(
    mlir::linalg::LinalgOp op, int levels, llvm::function_ref<int(unsigned)> index,
    llvm::function_ref<bool(unsigned)> isTruth,
    llvm::function_ref<bool(llvm::ArrayRef<int>, llvm::ArrayRef<OrderValue>)> expected);

} // namespace millrace::gpu
