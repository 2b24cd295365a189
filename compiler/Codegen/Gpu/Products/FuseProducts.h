// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of a model as launches of kernels that use tensor cores.
#pragma once

#include "compiler/Codegen/Gpu/Tuning/TuningTable.h"

#include "mlir/IR/BuiltinOps.h"

#include <memory>
#include <string>
#include <vector>

namespace mlir {
class Pass;
} // namespace mlir

namespace millrace::gpu {

/// `fused-products-to-tile{type=}`: each matrix product at the tensor level, with what is
/// elementwise around it, becomes the launch of one kernel `product_N` (FindProduct.h). Operands of
/// other types are rounded to `type`, f16 or bf16. What is left gets a remark that says why;
/// `left`, which outlives the pass, also gets its text; `table`, which does too, chooses schedules.
std::unique_ptr<mlir::Pass>
createFuseProductsPass(const std::string &type = "f16", std::vector<std::string> *left = nullptr,
                       const TuningTable &table = TuningTable::builtIn());

/// Registers it by name.
void registerFuseProductsPass();

} // namespace millrace::gpu
