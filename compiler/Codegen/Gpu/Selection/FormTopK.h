// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Top-k and positions of extremes of a model as launches of kernels.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <memory>
#include <string>
#include <vector>

namespace mlir {
class Pass;
} // namespace mlir

namespace millrace::gpu {

/// `top-k-to-tile`: what FindTopK.h finds at the tensor level becomes the launch of one kernel,
/// `top_k_N`. Nothing is rounded. What is left gets a remark that says why; `left`, which outlives
/// the pass, also gets its text.
std::unique_ptr<mlir::Pass> createFormTopKPass(std::vector<std::string> *left = nullptr);

} // namespace millrace::gpu
