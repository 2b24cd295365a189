// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels a function of the tensor level becomes and what they have to do, without running it.
#pragma once

#include "arch/spec/Expected.h"
#include "compiler/Codegen/Gpu/Tuning/Cost.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::gpu {

/// One launch. Bytes: of its tensors, each moved once. Matrix operations: of `dot`, two for each
/// product, with those that pad tiles. Others: on floating-point elements, a function counting as
/// one. Where it is not whole, loops whose length is data count once.
using LaunchWork = GpuLaunch;

struct KernelPlan {
  std::vector<LaunchWork> launches; ///< in their order
  std::vector<std::string> left;    ///< what is computed without a kernel, and why
  std::vector<std::string> notes;   ///< what is no kernel for tensor cores, and why
};

/// The module without functions that are neither `entry` nor called.
mlir::OwningOpRef<mlir::ModuleOp> withFunction(mlir::ModuleOp module, llvm::StringRef entry);

/// Of the public function `entry`, as HostKernels would compile it with `multiplied` (there). The
/// module is not changed. Errors: a function that does not bufferize.
Expected<KernelPlan> planKernels(mlir::ModuleOp module, llvm::StringRef entry,
                                 const std::string &multiplied,
                                 const TuningTable &table = TuningTable::builtIn());

} // namespace millrace::gpu
