// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each AluOp computes, for one lane and for rows of lanes.
//
// A lane is 32 bits; aluOpInfo(op) says how operands and result are read. Rules for all operations:
// - fp32 arithmetic is IEEE 754, each operation rounded once to nearest even; subnormals are kept.
// - An fp32 result that is NaN is the canonical NaN 0x7fc00000. Pass, the bitwise operations and
// the
//   choice made by a select copy bits and keep what NaN they find.
// - int32 arithmetic is modulo 2^32; conversions to integers saturate.
// - A comparison gives 1.0 or 0.0 (fp32), or 1 or 0 (int32).
// - Transcendentals are within 1 ulp, and nearly always the correctly rounded value.
// - Every CPU gives the same bits; row and scalar forms agree.

#ifndef MILLRACE_ARCH_ISA_SEMANTICS_ALU_H
#define MILLRACE_ARCH_ISA_SEMANTICS_ALU_H

#include "arch/operations/AluOp.h"
#include <cstddef>
#include <cstdint>

namespace millrace::semantics {

/// out[i] = op(a[i], b[i], c[i]) for `lanes` lanes. Operands that the operation does not have are
/// not read and may be null. `out` may be one of the operands; other overlap is not allowed.
void applyAlu(AluOp op, const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *out,
              size_t lanes);

/// One lane of the same.
uint32_t applyAlu(AluOp op, uint32_t a, uint32_t b = 0, uint32_t c = 0);

} // namespace millrace::semantics

#endif // MILLRACE_ARCH_ISA_SEMANTICS_ALU_H
