// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the CPU that runs this program offers; fast paths are chosen by it at run time.

#ifndef MILLRACE_ARCH_ISA_SEMANTICS_CPULEVEL_H
#define MILLRACE_ARCH_ISA_SEMANTICS_CPULEVEL_H

namespace millrace::semantics {

/// Each level includes the ones before it. Avx2 means AVX2 and F16C; Avx512 means F, BW, DQ and VL;
/// Avx512Vnni adds VNNI.
enum class CpuLevel { Portable, Avx2, Avx512, Avx512Vnni };

/// The highest level of this CPU. Portable on every other architecture than x86-64.
inline CpuLevel cpuLevel() {
#if defined(__x86_64__)
  static const CpuLevel level = [] {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c"))
      return CpuLevel::Portable;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
      return CpuLevel::Avx2;
    return __builtin_cpu_supports("avx512vnni") ? CpuLevel::Avx512Vnni : CpuLevel::Avx512;
  }();
  return level;
#else
  return CpuLevel::Portable;
#endif
}

} // namespace millrace::semantics

#endif // MILLRACE_ARCH_ISA_SEMANTICS_CPULEVEL_H
