// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "simulator/kernels/Int8Kernel.h"
#include <algorithm>

namespace millrace {

using semantics::CpuLevel;

const Int8Kernel &int8Kernel(CpuLevel level) {
#if defined(__x86_64__)
  switch (std::min(level, semantics::cpuLevel())) {
  case CpuLevel::Portable:
    return int8KernelPortable;
  case CpuLevel::Avx2:
  case CpuLevel::Avx512:
    return int8KernelAvx2;
  case CpuLevel::Avx512Vnni:
    return int8KernelVnni;
  }
#else
  (void)level;
#endif
  return int8KernelPortable;
}

} // namespace millrace
