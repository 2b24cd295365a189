// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/isa/semantics/Alu.h"
#include "arch/isa/semantics/RowKernels.h"

namespace millrace::semantics {

void applyAlu(AluOp op, const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *out,
              size_t lanes) {
  static const RowKernels &kernels = rowKernels();
  kernels.alu[static_cast<size_t>(op)](a, b, c, out, lanes);
}

uint32_t applyAlu(AluOp op, uint32_t a, uint32_t b, uint32_t c) {
  uint32_t out;
  rowKernelsPortable.alu[static_cast<size_t>(op)](&a, &b, &c, &out, 1);
  return out;
}

} // namespace millrace::semantics
