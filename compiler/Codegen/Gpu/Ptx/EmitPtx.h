// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the hopper level to PTX, in this process.
#pragma once

#include "arch/spec/Expected.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <string_view>

namespace millrace::gpu {

/// The PTX of every kernel of the module, for a chip such as "sm_90a". The module is of the hopper
/// level or of what `hopper-to-nvvm` leaves; it is not changed.
/// Functions that launch kernels are left out. Errors: operations that the chip
/// lacks (found before LLVM would end the process), and what the lowering refuses.
Expected<std::string> emitPtx(mlir::ModuleOp module, std::string_view chip);

} // namespace millrace::gpu
