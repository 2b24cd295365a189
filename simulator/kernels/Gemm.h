// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a plane of the MXM computes: rows of activations times installed weights.
//
// int8 is signed x signed, exact in int32 (modulo 2^32). fp16, bf16, e4m3 and e5m2: products exact,
// their sum rounded once to fp32, NaN canonical, an exact zero +0. The result therefore depends on
// neither the order of summation nor the CPU; semantics/ExactSum.h is its definition.

#ifndef MILLRACE_SIMULATOR_KERNELS_GEMM_H
#define MILLRACE_SIMULATOR_KERNELS_GEMM_H

#include "arch/spec/Types.h"
#include "simulator/kernels/FloatKernel.h"
#include "simulator/kernels/PlaneWeights.h"
#include <cstddef>
#include <cstdint>

namespace millrace {

/// A vector of the machine: one byte per lane. No alignment is needed.
using ByteRow = const uint8_t *;

/// True for the formats that gemm multiplies: int8, fp16, bf16, e4m3, e5m2.
bool isProductFormat(ElementType format);

/// out[i * low.columns() + n] for `rowCount` rows and all columns n: the sum over lanes
/// k0 <= k < k1 of row i times column n, as int32 or fp32 bits; lanes outside are not multiplied.
/// Columns outside the range's columns give zero.
///
/// 16-bit formats take the low bytes of weights and activations from `low` and `lowRows`, the high
/// bytes from `high` and `highRows`; other formats ignore the latter two, which may be null.
///
/// Threads may multiply by the same weights at the same time. `counters`, if given, is added to.
void gemm(const PlaneWeights &low, const PlaneWeights *high, ElementType format,
          const ByteRow *lowRows, const ByteRow *highRows, size_t rowCount,
          const ProductRange &range, uint32_t *out,
          semantics::CpuLevel level = semantics::cpuLevel(), ProofCounters *counters = nullptr);

/// The same over all columns.
void gemm(const PlaneWeights &low, const PlaneWeights *high, ElementType format,
          const ByteRow *lowRows, const ByteRow *highRows, size_t rowCount, unsigned k0,
          unsigned k1, uint32_t *out);

/// accumulators[i] += products[i] for `count` sums: int32 modulo 2^32 after int8 products, else one
/// rounded fp32 addition.
void accumulateRows(ElementType format, const uint32_t *products, uint32_t *accumulators,
                    size_t count);

} // namespace millrace

#endif // MILLRACE_SIMULATOR_KERNELS_GEMM_H
