// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The row functions behind Alu.h and Convert.h, one table for each instruction set. For those files
// and for tests that hold the tables against each other; everybody else uses Alu.h and Convert.h.

#ifndef MILLRACE_ARCH_ISA_SEMANTICS_ROWKERNELS_H
#define MILLRACE_ARCH_ISA_SEMANTICS_ROWKERNELS_H

#include "arch/isa/semantics/CpuLevel.h"
#include "arch/operations/AluOp.h"
#include <cstddef>
#include <cstdint>

namespace millrace::semantics {

using AluRow = void (*)(const uint32_t *a, const uint32_t *b, const uint32_t *c, uint32_t *out,
                        size_t lanes);

struct RowKernels {
  AluRow alu[aluOpCount];
  void (*fp16ToFp32)(const uint16_t *, uint32_t *, size_t);
  void (*bf16ToFp32)(const uint16_t *, uint32_t *, size_t);
  void (*e4m3ToFp32)(const uint8_t *, uint32_t *, size_t);
  void (*e5m2ToFp32)(const uint8_t *, uint32_t *, size_t);
  void (*fp32ToFp16)(const uint32_t *, uint16_t *, size_t);
  void (*fp32ToBf16)(const uint32_t *, uint16_t *, size_t);
  void (*fp32ToFp16Finite)(const uint32_t *, uint16_t *, size_t);
  void (*fp32ToBf16Finite)(const uint32_t *, uint16_t *, size_t);
  void (*fp32ToE4m3)(const uint32_t *, uint8_t *, size_t);
  void (*fp32ToE4m3Saturating)(const uint32_t *, uint8_t *, size_t);
  void (*fp32ToE5m2)(const uint32_t *, uint8_t *, size_t);
  void (*fp32ToE5m2Saturating)(const uint32_t *, uint8_t *, size_t);
  void (*fp32ToInt8)(const uint32_t *, uint8_t *, size_t);
  void (*fp32ToUint8)(const uint32_t *, uint8_t *, size_t);
  void (*fp32ToInt32)(const uint32_t *, uint32_t *, size_t);
  void (*int32ToFp32)(const uint32_t *, uint32_t *, size_t);
  void (*int32ToInt8)(const uint32_t *, uint8_t *, size_t);
  void (*int32ToUint8)(const uint32_t *, uint8_t *, size_t);
  void (*joinBytes)(const uint8_t *const *, unsigned, uint32_t *, size_t);
  void (*cutByte)(const uint32_t *, unsigned, uint8_t *, size_t);
};

extern const RowKernels rowKernelsPortable;
#if defined(__x86_64__)
extern const RowKernels rowKernelsAvx2;
extern const RowKernels rowKernelsAvx512;
#endif

/// The table for a level that this CPU has; a higher level than the CPU's gets the CPU's.
const RowKernels &rowKernels(CpuLevel level = cpuLevel());

} // namespace millrace::semantics

#endif // MILLRACE_ARCH_ISA_SEMANTICS_ROWKERNELS_H
