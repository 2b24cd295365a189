// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of the hopper level that run elsewhere than the function around them: on the emulator, or
// on a GPU.
#pragma once

#include "compiler/Codegen/Gpu/Driver/CudaDevice.h"
#include "compiler/Codegen/Gpu/Emulator/Emulator.h"
#include "compiler/Codegen/Gpu/Kernels/LaunchCalls.h"
#include "compiler/Codegen/Gpu/Kernels/LaunchTime.h"
#include "compiler/Dialect/Tile/Transforms/LaunchMaps.h"

#include "mlir/IR/OwningOpRef.h"

#include <functional>

namespace millrace::gpu {

/// Performs launches until one fails; the others of that run are dropped.
class KernelLauncher : public Launcher {
public:
  void takeKernels(mlir::ModuleOp module) final;
  /// Of what was taken; not while passes run.
  Status compileKernels();
  /// A run begins: what the last one left is forgotten.
  void begin(const Adversary &chosen);
  void launch(const LaunchSite &site, void *const *arguments) final;

  const std::string &error() const { return failure; } ///< the first of a run
  const std::vector<LaunchTime> &times() const { return measured; }

protected:
  virtual Status compile(mlir::ModuleOp module, const std::string &kernel) = 0;
  virtual Status perform(const LaunchSite &site, void *const *arguments) = 0;

  Adversary adversary;
  std::vector<LaunchTime> measured;

private:
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> taken; ///< a kernel each
  std::string failure;
};

/// The emulator's map for a launch whose pointer `map.argument` is `argument`.
TensorMap mapOf(const tile::LaunchMap &map, void *argument);

std::unique_ptr<KernelLauncher> makeEmulatorLauncher();

/// On a GPU. For each launch the memory of its tensors is copied there, and what it wrote copied
/// back, as the function around it computes on the host. With `timedRuns`, each launch is then done
/// so often again for its time, each with a cold L2 cache.
std::unique_ptr<KernelLauncher> makeCudaLauncher(const CudaDevice &device, unsigned timedRuns = 0);

} // namespace millrace::gpu
