// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Grid and arguments of a matrix product's kernel.
#pragma once

#include "compiler/Codegen/Gpu/Emulator/Emulator.h"
#include "compiler/Codegen/Gpu/Gemm/Gemm.h"

namespace millrace::gpu {

/// Matrices in memory, row-major; distances of rows in bytes, multiples of 16. What stands between
/// the last column of C and the next multiple of 16 bytes of its row is overwritten: TMA writes no
/// less.
struct GemmOperands {
  int32_t m = 0, n = 0, k = 0;
  std::byte *a = nullptr, *b = nullptr, *c = nullptr;
  int64_t rowBytesA = 0, rowBytesB = 0, rowBytesC = 0;
  float *bias = nullptr; ///< of n, or null
};

struct GemmLaunch {
  TensorMap a, b, c;
  float *bias = nullptr;
  int32_t n = 0, k = 0;
  Grid grid;

  /// In the order of the kernel; valid while this stays where it is.
  std::vector<Argument> arguments() const;
};

/// The launch of a kernel of `buildGemm` for these operands. Errors: what TMA does not take of
/// them.
Expected<GemmLaunch> planLaunch(const GemmSchedule &schedule, const GemmOperands &operands);

} // namespace millrace::gpu
