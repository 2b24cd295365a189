// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The float kernel for any CPU; on x86-64 two doubles a vector.

#define MILLRACE_FLOAT_TABLE floatKernelPortable
#define MILLRACE_FLOAT_WIDTH 2
#define MILLRACE_FLOAT_VECTORS 2
#define MILLRACE_FLOAT_ROWS 4
#include "simulator/kernels/FloatKernel.inc"
