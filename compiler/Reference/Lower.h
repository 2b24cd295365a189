// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the tensor level to the LLVM dialect.
#pragma once

#include "compiler/Reference/Reference.h"

#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/SmallVector.h"

namespace millrace::reference {

/// Constants of one number become fills.
void fillSplats(mlir::ModuleOp module, llvm::StringRef entry);
/// Turns constants into arguments of `function`, so that machine code never holds weights; returns
/// their values in the order of the new arguments. Splats become fills.
llvm::SmallVector<mlir::ElementsAttr> hoistConstants(mlir::ModuleOp module, llvm::StringRef entry);

/// Removes arguments and results without elements, which have no address.
void dropEmptyPorts(mlir::ModuleOp module, llvm::StringRef entry);

/// Indices that are data read the nearest element if they lie outside of their tensor: bad input
/// must not crash.
void clampIndices(mlir::ModuleOp module);

/// Integers divided by 0 give 0, and the least one divided by -1 gives itself, as NumPy says it:
/// bad input must not crash.
void guardDivisions(mlir::ModuleOp module);

/// Chooses loop orders whose innermost loop is contiguous where the result allows it.
void orderLoops(mlir::ModuleOp module);

/// Moves every linalg operation on buffers to a function of its own; equal ones share it. One large
/// function would take LLVM minutes, and most layers of a model occur many times.
void outlineLoops(mlir::ModuleOp module);
/// Forbids LLVM to inline them again.
void keepOutlined(mlir::ModuleOp module);

/// All that happens on tensors, `onTensors` included, which sees constants as values; then those
/// are arguments, whose values it gives as `hoistConstants` does.
Expected<llvm::SmallVector<mlir::ElementsAttr>>
lowerTensors(mlir::ModuleOp module, llvm::StringRef entry,
             const std::function<void(mlir::OpPassManager &)> &onTensors);

/// Results that are whole allocations, also under views, are made in the memory of the caller:
/// their copies at the function's end vanish. Of a memory that is returned twice, one copy stays.
std::unique_ptr<mlir::Pass> createElideResultCopiesPass();

/// Passes from tensors to buffers: what is left are linalg operations, views, allocations, and
/// results as arguments behind the others.
void addBufferization(mlir::OpPassManager &passes);

/// Lowers what `lowerTensors` leaves. Each tensor argument and, after them, each tensor result
/// becomes a pointer.
Status lowerToLLVM(mlir::ModuleOp module, const ReferenceOptions &options);

} // namespace millrace::reference
