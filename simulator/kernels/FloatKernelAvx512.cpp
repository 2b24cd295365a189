// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The float kernel for AVX-512: 24 accumulators, 4 weight registers, 1 broadcast of 32.

#define MILLRACE_FLOAT_TABLE floatKernelAvx512
#define MILLRACE_FLOAT_WIDTH 8
#define MILLRACE_FLOAT_VECTORS 4
#define MILLRACE_FLOAT_ROWS 6
#define MILLRACE_FLOAT_F16C
#include "simulator/kernels/FloatKernel.inc"
