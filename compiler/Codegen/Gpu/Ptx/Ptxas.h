// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What NVIDIA's assembler says of PTX: the gate that every kernel passes where ptxas is installed.
#pragma once

#include "arch/spec/Expected.h"

#include <optional>
#include <string>
#include <vector>

namespace millrace::gpu {

/// What ptxas says of one kernel.
struct KernelResources {
  std::string kernel;
  unsigned registers = 0;   ///< of a thread at launch
  unsigned stackBytes = 0;  ///< of a thread
  unsigned spillBytes = 0;  ///< stored and loaded
  unsigned barriers = 0;    ///< named barriers reserved
  unsigned sharedBytes = 0; ///< static; what the launch gives is not counted
};

struct PtxasReport {
  std::vector<KernelResources> kernels;
  /// Lines with C75xx: ptxas serialised wgmma, or put fences or waits of its own.
  std::vector<std::string> warnings;
};

/// Where ptxas is: in PATH, in CUDA_HOME, CUDA_PATH or /usr/local/cuda, or in the Python
/// environment of scripts/setup (the wheels nvidia-cuda-nvcc and nvidia-cuda-nvcc-cu12). Nothing if
/// nowhere.
std::optional<std::string> findPtxas();

/// Assembles PTX for a chip such as "sm_90a". An error if ptxas refuses it.
Expected<PtxasReport> runPtxas(const std::string &ptxas, const std::string &ptx,
                               const std::string &chip);

/// The gate: no spills, no stack, no C75xx. The error names the kernel and the number.
Status checkPtxasReport(const PtxasReport &report);

} // namespace millrace::gpu
