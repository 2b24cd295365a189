// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// hopper.kernel: its text, and what a launch may take of a streaming multiprocessor.
#include "compiler/Dialect/Hopper/IR/Hopper.h"

#include "mlir/Dialect/LLVMIR/LLVMTypes.h"
#include "mlir/Interfaces/FunctionImplementation.h"

namespace millrace::hopper {

using namespace mlir;

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  const auto functionType = [](Builder &builder, ArrayRef<Type> arguments, ArrayRef<Type> results,
                               function_interface_impl::VariadicFlag, std::string &) -> Type {
    return builder.getFunctionType(arguments, results);
  };
  return function_interface_impl::parseFunctionOp(
      parser, result, /*allowVariadic=*/false, getFunctionTypeAttrName(result.name), functionType,
      getArgAttrsAttrName(result.name), getResAttrsAttrName(result.name));
}

void KernelOp::print(OpAsmPrinter &printer) {
  function_interface_impl::printFunctionOp(printer, *this, /*isVariadic=*/false,
                                           getFunctionTypeAttrName(), getArgAttrsAttrName(),
                                           getResAttrsAttrName());
}

namespace {

LogicalResult verifyArguments(KernelOp kernel) {
  if (!kernel.getResultTypes().empty())
    return kernel.emitOpError("has results; a kernel writes to global memory");
  for (auto [i, type] : llvm::enumerate(kernel.getArgumentTypes())) {
    const auto pointer = dyn_cast<LLVM::LLVMPointerType>(type);
    const bool isScalar = type.isInteger(32) || type.isInteger(64) || type.isF32();
    if (!isa<TensorMapType>(type) && !isScalar && !(pointer && pointer.getAddressSpace() == 1))
      return kernel.emitOpError() << "has argument " << i << " of type " << type
                                  << "; arguments are tensor maps, !llvm.ptr<1>, i32, i64 and f32";
  }
  return success();
}

LogicalResult verifyLimits(KernelOp kernel) {
  // Attributes of a text may be negative.
  const int64_t threads = static_cast<int32_t>(kernel.getThreads());
  const int64_t registers = static_cast<int32_t>(kernel.getRegisters());
  const int64_t shared = static_cast<int32_t>(kernel.getSharedMemory());
  const int64_t cluster = static_cast<int32_t>(kernel.getCluster());
  if (threads < 1 || threads > Limits::kThreads || threads % Limits::kWarp)
    return kernel.emitOpError() << "has " << threads
                                << " threads; a CTA has multiples of 32 up to 1024";
  if (registers < 24 || registers > 255 || (registers % 8 && registers != 255))
    return kernel.emitOpError()
           << "has " << registers
           << " registers per thread; use a multiple of 8 from 24 to 248, or 255";
  if (registers * threads > Limits::kRegisters)
    return kernel.emitOpError()
           << "takes " << registers << " x " << threads << " = " << registers * threads
           << " registers, and a multiprocessor has 65536; give each thread at most "
           << Limits::kRegisters / threads / 8 * 8;
  if (shared < 0 || shared > Limits::kSharedMemory)
    return kernel.emitOpError() << "takes " << shared
                                << " bytes of shared memory, and a CTA may use 232448 (227 KiB)";
  if (cluster < 1 || cluster > Limits::kCluster)
    return kernel.emitOpError() << "has clusters of " << cluster << " CTAs; 1 to 8 are supported";
  return success();
}

LogicalResult verifyBudget(KernelOp kernel, MutableArrayRef<SetMaxRegistersOp> changes) {
  if (changes.empty())
    return success();
  const int64_t warpgroups = kernel.getThreads() / Limits::kWarpgroup;
  int64_t covered = 0, registers = 0;
  for (SetMaxRegistersOp &change : changes) {
    covered += change.getWarpgroups();
    registers += int64_t(change.getWarpgroups()) * Limits::kWarpgroup * change.getRegisters();
  }
  if (covered != warpgroups || kernel.getThreads() % Limits::kWarpgroup)
    return changes.front().emitOpError()
           << "and the others of '" << kernel.getSymName() << "' are for " << covered
           << " warpgroups, and it has " << warpgroups
           << "; every warpgroup changes its registers once";
  const int64_t launched = int64_t(kernel.getRegisters()) * kernel.getThreads();
  if (registers > launched)
    return changes.front().emitOpError()
           << "and the others of '" << kernel.getSymName() << "' want " << registers
           << " registers, and the launch takes " << launched
           << "; it would wait for ever: lower a budget by "
           << (registers - launched + Limits::kWarpgroup - 1) / Limits::kWarpgroup
           << " registers of one warpgroup";
  return success();
}

} // namespace

LogicalResult KernelOp::verify() {
  if (isExternal())
    return emitOpError("has no body");
  return success(succeeded(verifyArguments(*this)) && succeeded(verifyLimits(*this)));
}

LogicalResult KernelOp::verifyRegions() {
  SmallVector<SetMaxRegistersOp> changes;
  walk([&](SetMaxRegistersOp change) { changes.push_back(change); });
  return verifyBudget(*this, changes);
}

} // namespace millrace::hopper
