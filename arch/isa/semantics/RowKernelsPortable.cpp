// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The row functions for any CPU.

#define MILLRACE_ROW_TABLE rowKernelsPortable
#include "arch/isa/semantics/RowKernels.inc"
