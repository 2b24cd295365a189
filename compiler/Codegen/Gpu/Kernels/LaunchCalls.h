// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Launches as calls of this process, for kernels that run elsewhere than the function around them.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <memory>
#include <string>
#include <vector>

namespace mlir {
class Pass;
} // namespace mlir

namespace millrace::gpu {

/// One launch of a function.
struct LaunchSite {
  std::string kernel;
  std::vector<size_t> bytes; ///< from where each argument begins to its last element
};

/// Who performs launches.
class Launcher {
public:
  virtual ~Launcher() = default;
  /// Takes the kernels of a module whose launches it gets; they are gone from there afterwards.
  virtual void takeKernels(mlir::ModuleOp module) = 0;
  /// `arguments`: where the tensors of the kernel's arguments begin.
  virtual void launch(const LaunchSite &site, void *const *arguments) = 0;

  std::vector<LaunchSite> sites; ///< by number, as the code knows them
};

/// What the code calls, and its name there.
constexpr const char *kLaunchFunction = "millrace_launch";
extern "C" void millraceLaunch(Launcher *launcher, int64_t site, void *const *arguments);

/// Hands the kernels to `launcher` and makes every tile.launch a call of it. The launcher outlives
/// the code. Works in this process only, as the code holds the launcher's address.
std::unique_ptr<mlir::Pass> createCallLauncherPass(Launcher &launcher);

} // namespace millrace::gpu
