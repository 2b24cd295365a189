// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels a function of the tensor level becomes and what they have to do, without running it.
#pragma once

#include "arch/spec/Expected.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::gpu {

/// One launch.
struct LaunchWork {
  std::string kernel;
  int64_t programs = 0;
  double bytes = 0;       ///< of its tensors, each moved once
  double matrixFlops = 0; ///< of `dot`: two for each product, with those that pad tiles
  double otherFlops = 0;  ///< floating-point operations on elements, a function counting as one
  bool isWhole = true;    ///< else loops whose length is data count once
};

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
                                 const std::string &multiplied);

} // namespace millrace::gpu
