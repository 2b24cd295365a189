// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "simulator/kernels/FloatKernel.h"
#include "arch/isa/semantics/ExactSum.h"
#include <algorithm>
#include <bit>

namespace millrace {

using semantics::CpuLevel;

const FloatKernel &floatKernel(CpuLevel level) {
#if defined(__x86_64__)
  switch (std::min(level, semantics::cpuLevel())) {
  case CpuLevel::Portable:
    return floatKernelPortable;
  case CpuLevel::Avx2:
    return floatKernelAvx2;
  case CpuLevel::Avx512:
  case CpuLevel::Avx512Vnni:
    return floatKernelAvx512;
  }
#else
  (void)level;
#endif
  return floatKernelPortable;
}

uint32_t recomputeExactly(const double *row, const double *column, size_t stride, size_t depth) {
  semantics::ExactSum sum;
  for (size_t k = 0; k < depth; ++k)
    sum.addProduct(float(row[k]), float(column[k * stride]));
  return std::bit_cast<uint32_t>(sum.rounded());
}

} // namespace millrace
