// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The row functions for AVX512, compiled with its flags; called only where cpuLevel() allows.

#define MILLRACE_ROW_TABLE rowKernelsAvx512
#include "arch/isa/semantics/RowKernels.inc"
