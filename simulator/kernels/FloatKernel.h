// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of small floats (fp16, bf16, fp8), each sum rounded once to fp32, as fast as fp64
// allows: one table per instruction set, all with the same results. For Gemm.cpp and for tests;
// everybody else uses Gemm.h.
//
// How a fp64 sum gives the exactly rounded result. Let u = 2^-53, K the depth, |a| and |b| the
// 2-norms of row and column, s the fp64 sum, v the exact one. Products of small floats are exact in
// fp64; only additions round.
// (1) Exact. If the exponents of the row's nonzero values span A and the column's span B, and a
//     significand has p bits, every partial sum is a multiple of one unit and at most
//     K 2^(A + B + 2p) units. While that is <= 2^53, s = v in any order of summation.
// (2) Unambiguous. |s - v| <= (K + 4) u |a| |b| = d (Cauchy and Schwarz; the 4 covers the rounding
//     of s +- d). If s - d and s + d round to the same fp32 bits, so does v.
// (3) Compensated. The errors of all additions, themselves summed, give v to within
//     (K + 2)^2 u^2 |a| |b|. If the last bits of row and column are worth more than that, the
//     result is v itself; else it is accepted where no rounding boundary of fp32 is that near.
// (4) Otherwise, for sums of very uneven terms that end on a boundary: again with ExactSum.
// Infinity and NaN come out right by themselves, since finite products cannot overflow fp64.

#ifndef MILLRACE_SIMULATOR_KERNELS_FLOATKERNEL_H
#define MILLRACE_SIMULATOR_KERNELS_FLOATKERNEL_H

#include "arch/isa/semantics/CpuLevel.h"
#include <cstddef>
#include <cstdint>

namespace millrace {

/// What the proof needs to know of a format.
struct FloatFormat {
  int digits;             ///< bits of a significand, the hidden one included
  uint32_t leastExponent; ///< exponent field, as fp32, of the least normal value
};

/// Packed weights; pointers to 64-byte aligned arrays that the owner provides.
struct FloatWeights {
  static constexpr size_t columnsTogether = 32; ///< packed at a time, but for fewer at the end

  FloatFormat format;
  size_t depth = 0;   ///< K
  size_t columns = 0; ///< a multiple of 16
  double *packed;     ///< depth * columns, in the kernel's own order
  double *norm;       ///< per column: an upper bound of its 2-norm
  double *spread;     ///< per column: span of the exponents of its nonzero values
  double *unit;       ///< per column: a power of two that divides every value
};

/// How outputs were proven, by the numbers above.
struct ProofCounters {
  uint64_t outputs = 0;
  uint64_t ambiguous = 0;  ///< neither (1) nor (2)
  uint64_t recomputed = 0; ///< of these, by (4)
};

struct FloatKernel {
  /// `values` holds columns [first, first + count) as fp32, depth values each, column after column;
  /// first is a multiple of columnsTogether.
  void (*pack)(const float *values, size_t first, size_t count, FloatWeights &weights);
  /// out[i][n] for `rowCount` rows of `depth` fp32 values, one after the other; rows of out lie
  /// `outStride` elements apart. `scratch`: 6 * depth doubles at a multiple of 64 bytes.
  void (*multiply)(const float *rows, size_t rowCount, const FloatWeights &weights, uint32_t *out,
                   size_t outStride, double *scratch, ProofCounters &counters);
  /// The values of `count` fp16 numbers whose low and high bytes these are; a NaN of whatever
  /// payload. Null where the CPU has no instruction for it.
  void (*fp16ToFp32)(const uint8_t *low, const uint8_t *high, size_t count, float *values);
};

extern const FloatKernel floatKernelPortable;
#if defined(__x86_64__)
extern const FloatKernel floatKernelAvx2;
extern const FloatKernel floatKernelAvx512;
#endif

/// The table for a level that this CPU has; a higher level than the CPU's gets the CPU's.
const FloatKernel &floatKernel(semantics::CpuLevel level = semantics::cpuLevel());

/// Step (4): fp32 bits of sum of row[k] * column[k * stride], all fp32 values.
uint32_t recomputeExactly(const double *row, const double *column, size_t stride, size_t depth);

} // namespace millrace

#endif // MILLRACE_SIMULATOR_KERNELS_FLOATKERNEL_H
