// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/isa/semantics/RowKernels.h"
#include <algorithm>

namespace millrace::semantics {

const RowKernels &rowKernels(CpuLevel level) {
#if defined(__x86_64__)
  switch (std::min(level, cpuLevel())) {
  case CpuLevel::Portable:
    return rowKernelsPortable;
  case CpuLevel::Avx2:
    return rowKernelsAvx2;
  case CpuLevel::Avx512:
  case CpuLevel::Avx512Vnni:
    return rowKernelsAvx512;
  }
#else
  (void)level;
#endif
  return rowKernelsPortable;
}

} // namespace millrace::semantics
