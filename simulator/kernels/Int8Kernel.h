// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// int8 x int8 -> int32 matrix products, exact modulo 2^32: one table per instruction set, all with
// the same results. For Gemm.cpp and for tests; everybody else uses Gemm.h.

#ifndef MILLRACE_SIMULATOR_KERNELS_INT8KERNEL_H
#define MILLRACE_SIMULATOR_KERNELS_INT8KERNEL_H

#include "arch/isa/semantics/CpuLevel.h"
#include <cstddef>
#include <cstdint>

namespace millrace {

/// Columns come in multiples of 16. `depth` is the number of lanes that multiply; every row is
/// readable up to `depth` rounded up to a multiple of 4, whatever lies there.
struct Int8Kernel {
  /// Bytes of packed weights; their address is a multiple of 64.
  size_t (*packedBytes)(size_t depth, size_t columns);
  /// Packs `columns` columns of `depth` weights, `stride` bytes apart.
  void (*pack)(const uint8_t *weights, size_t stride, size_t depth, size_t columns, void *packed);
  /// out[i][n] = sum over k < depth of rows[i][k] * column n [k]. Rows of out lie `outStride`
  /// elements apart. `scratch` has scratchBytes(depth) bytes at a multiple of 64.
  void (*multiply)(const uint8_t *const *rows, size_t rowCount, size_t depth, const void *packed,
                   size_t columns, uint32_t *out, size_t outStride, void *scratch);
  size_t (*scratchBytes)(size_t depth);
};

extern const Int8Kernel int8KernelPortable;
#if defined(__x86_64__)
extern const Int8Kernel int8KernelAvx2;
extern const Int8Kernel int8KernelVnni;
#endif

/// The table for a level that this CPU has; a higher level than the CPU's gets the CPU's.
const Int8Kernel &int8Kernel(semantics::CpuLevel level = semantics::cpuLevel());

} // namespace millrace

#endif // MILLRACE_SIMULATOR_KERNELS_INT8KERNEL_H
