// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The float kernel for AVX2 and FMA: 12 accumulators, 2 weight registers, 1 broadcast of 16.

#define MILLRACE_FLOAT_TABLE floatKernelAvx2
#define MILLRACE_FLOAT_WIDTH 4
#define MILLRACE_FLOAT_VECTORS 2
#define MILLRACE_FLOAT_ROWS 6
#define MILLRACE_FLOAT_F16C
#include "simulator/kernels/FloatKernel.inc"
