// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the hopper level becomes: NVVM for a GPU, calls of the functional emulator for a CPU.
#pragma once

#include <memory>

namespace mlir {
class DialectRegistry;
class Operation;
class OpPassManager;
class Pass;
} // namespace mlir

namespace millrace::hopper {

/// `hopper-to-nvvm`: kernels become llvm.func with upstream's nvvm operations. Where those lack an
/// action (wgmma with A in registers, a wait that carries its accumulators) it is inline PTX.
std::unique_ptr<mlir::Pass> createLowerToNvvmPass();

/// `hopper-to-emulator`: kernels become llvm.func, each hopper operation a call of
/// `millrace_emulate_<operation>` (compiler/Codegen/Gpu/Emulator/Runtime.cpp). An accumulator is an
/// i64 that names what the emulator holds.
std::unique_ptr<mlir::Pass> createLowerToEmulatorPass();

/// What follows either: scf, cf and arith to the llvm dialect, and nvvm's inline PTX.
void addConversionToLLVM(mlir::OpPassManager &passes);

/// Whether every chip has an instruction for an operation of `math`; LLVM ends the process at others.
bool hasInstruction(mlir::Operation *op);

/// Dialects and interfaces that the passes above need beside the hopper dialect.
void registerLoweringDialects(mlir::DialectRegistry &registry);

/// Registers both passes and the pipeline `hopper-lower-to-llvm` (addConversionToLLVM) by name.
void registerPasses();

} // namespace millrace::hopper
