// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the tensor level to kernels of the tile level.
#pragma once

#include "compiler/Codegen/Gpu/Tuning/TuningTable.h"

#include <memory>
#include <string>
#include <vector>

namespace mlir {
class OpPassManager;
class Pass;
} // namespace mlir

namespace millrace::gpu {

/// What a left operation's attribute says.
constexpr const char *kLeftAttribute = "tile.left";

/// `fuse-elementwise`: an operation on tensors whose elements one other reads once each becomes a
/// part of it.
std::unique_ptr<mlir::Pass> createFuseElementwisePass();

/// `narrow-products`: a matrix product of what is widened to fp32 is one of the 16-bit tensors.
std::unique_ptr<mlir::Pass> createNarrowProductsPass();

/// `products-to-tile`: a matrix product on buffers of f16 or bf16 that adds up in fp32 is the
/// launch of a kernel that uses `tile.dot`, with batches and several loops of each kind.
std::unique_ptr<mlir::Pass> createFormProductsPass();

/// `rows-to-tile`: linalg operations on buffers that work row by row, reductions with what lies
/// between and around them, become the launch of one kernel.
std::unique_ptr<mlir::Pass> createFormRowsPass();

/// `linalg-to-tile`: each linalg operation on buffers becomes the launch of a tile.kernel; equal
/// ones share it. One that has none gets the attribute `tile.left`, which says why.
std::unique_ptr<mlir::Pass> createFormKernelsPass();

/// What works on tensors, in its order. `multiplied`: the type that tensor cores multiply, to which
/// operands of attention and of matrix products are rounded; empty: nothing is rounded. `left` gets
/// what is no such kernel, and why; `table`, which outlives the passes, chooses schedules.
void addTensorForms(mlir::OpPassManager &passes, const std::string &multiplied,
                    std::vector<std::string> *left,
                    const TuningTable &table = TuningTable::builtIn());

/// What works on buffers, in its order: afterwards all that has a kernel is launches.
void addBufferForms(mlir::OpPassManager &passes);

/// All of these in their order, with what lies between: from tensors to launches.
void addTensorToTile(mlir::OpPassManager &passes, const std::string &multiplied = {},
                     std::vector<std::string> *left = nullptr,
                     const TuningTable &table = TuningTable::builtIn());

/// Registers them by name, and the pipeline `tensor-to-tile` that leads from the tensor level to
/// them.
void registerKernelPasses();

} // namespace millrace::gpu
