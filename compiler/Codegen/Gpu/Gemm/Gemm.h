// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel of a matrix product, at the hopper level.
#pragma once

#include "compiler/Codegen/Gpu/Gemm/GemmSchedule.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace millrace::gpu {

/// What is multiplied: C[M, N] = A[M, K] B[N, K]^T (+ bias[N]). Sums are fp32; C is of the
/// operands' type.
struct GemmProblem {
  enum class Type : uint8_t { BFloat16, Float16 };
  Type type = Type::BFloat16;
  bool hasBias = false; ///< fp32, one per column, added before C is rounded
};

/// Adds the kernel `name` to the end of the module. Its arguments: the tensor maps of A, B and C
/// (boxes of `planLaunch`), the bias as !llvm.ptr<1> if there is one, then N and K as i32. Errors:
/// those of `planGemm`.
Status buildGemm(mlir::ModuleOp module, const std::string &name, const GemmProblem &problem,
                 const GemmSchedule &schedule);

/// Registers the pass `build-gemm{name= type= bias= tile-m= ...}`, which does that.
void registerGemmPass();

} // namespace millrace::gpu
