// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A function of the tensor level, such as a host step's, as kernels of the tile level, executed on
// this CPU, on the emulator or on a GPU.
#pragma once

#include "compiler/Codegen/Gpu/Driver/CudaDevice.h"
#include "compiler/Codegen/Gpu/Emulator/Emulator.h"
#include "compiler/Codegen/Gpu/Kernels/LaunchTime.h"
#include "compiler/Codegen/Gpu/Tuning/TuningTable.h"
#include "compiler/Reference/Reference.h"

#include <optional>

namespace millrace::gpu {

/// Where generated kernels run.
enum class Device : uint8_t {
  Cpu,      ///< as loops, in machine code of this CPU
  Emulated, ///< as code of single GPU threads, in the functional emulator
  Cuda      ///< on a GPU, by its driver
};

/// As the command line and the report write it: cpu, emulate or cuda.
const char *nameOf(Device device);

/// What became of a function.
struct KernelSummary {
  std::vector<std::string> launches; ///< kernels, in the order in which they run
  std::vector<std::string> left;     ///< what is computed without a kernel, and why
  std::vector<std::string> notes;    ///< what is no kernel for tensor cores, and why
};

/// What kernels a function becomes.
struct KernelOptions {
  Device device = Device::Cpu;
  /// Attention as one kernel, and matrix products with what is elementwise around them, by tensor
  /// cores that multiply this type, "f16" or "bf16": what is fp32 is rounded to it. Empty: as other
  /// kernels, in the types of the function.
  std::string multiplied = {};
  std::optional<CudaDevice> cuda = {}; ///< of Device::Cuda
  /// On a GPU: how often each launch is done again, with what lies there then, to be timed.
  unsigned timedRuns = 0;
  const TuningTable *tuning = &TuningTable::builtIn(); ///< of schedules; outlives `create`
};

/// Runs as often as wanted; not from two threads at once.
class HostKernels {
public:
  /// Compiles the public function `entry`; the module's context outlives the result. Errors: what
  /// Reference refuses; arithmetic that no GPU has (all but Device::Cpu). What the
  /// driver of a GPU refuses is an error of `run`: such a function has kernels.
  static Expected<HostKernels> create(mlir::ModuleOp module, llvm::StringRef entry,
                                      const KernelOptions &options);
  static Expected<HostKernels> create(mlir::ModuleOp module, llvm::StringRef entry, Device device) {
    return create(module, entry, KernelOptions{.device = device});
  }

  /// As Reference::run. Errors also: the first violation that the emulator reports, or the first
  /// failure of a GPU's driver. The adversary is the emulator's.
  Expected<std::vector<HostTensor>> run(const std::vector<HostView> &inputs,
                                        const Adversary &adversary = {});
  const KernelSummary &summary() const;
  /// Of the last run's launches, if they were timed.
  const std::vector<LaunchTime> &times() const;

  HostKernels(HostKernels &&) noexcept;
  HostKernels &operator=(HostKernels &&) noexcept;
  ~HostKernels();

private:
  struct State;
  explicit HostKernels(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

} // namespace millrace::gpu
