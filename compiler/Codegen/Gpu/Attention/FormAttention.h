// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention of a model as launches of kernels.
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

/// `attention-to-tile{type=}`: attention at the tensor level (FindAttention.h) becomes the launch
/// of one kernel. Operands of fp32 are rounded to `type`, f16 or bf16; those of 16 bits stay if all
/// three are alike. What is left as it is gets a remark that says why; `left`, which outlives the
/// pass, also gets its text. `table`, which does too, chooses schedules.
std::unique_ptr<mlir::Pass>
createFormAttentionPass(const std::string &type = "f16", std::vector<std::string> *left = nullptr,
                        const TuningTable &table = TuningTable::builtIn());

/// Registers it by name.
void registerFormAttentionPass();

} // namespace millrace::gpu
