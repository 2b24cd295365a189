// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parts of a model by what they compute, so that somebody can say where they run.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <span>
#include <string>
#include <vector>

namespace millrace::devices {

/// In the order in which an operation that fits several is claimed.
enum class Work : uint8_t { Attention, FeedForward, Embedding, Sampling, Norm, Product };
constexpr unsigned kWorks = 6;

struct WorkName {
  const char *name, *text;
};
/// Names and what they stand for, in the order of Work.
std::span<const WorkName> workNames();

/// One attention, one norm ...
struct FoundWork {
  Work work;
  llvm::SmallVector<mlir::Operation *> operations; ///< of linalg and tensor, without views
};

/// Every part of the function at the tensor level that is one of these; an operation is in one at
/// most. `left` gets what looks like attention and is none that is known, with the reason.
std::vector<FoundWork> findWork(mlir::func::FuncOp function,
                                std::vector<std::string> *left = nullptr);

} // namespace millrace::devices
