// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Kernels/KernelLauncher.h"

#include "compiler/Dialect/Hopper/IR/Hopper.h"

namespace millrace::gpu {

using namespace mlir;

void KernelLauncher::takeKernels(ModuleOp module) {
  for (auto kernel : llvm::make_early_inc_range(module.getOps<hopper::KernelOp>())) {
    auto own = ModuleOp::create(kernel.getLoc());
    kernel->remove();
    own.push_back(kernel);
    taken.emplace_back(own);
  }
}

Status KernelLauncher::compileKernels() {
  for (OwningOpRef<ModuleOp> &module : taken) {
    hopper::KernelOp kernel = *module->getOps<hopper::KernelOp>().begin();
    if (Status done = compile(*module, kernel.getSymName().str()); !done)
      return done;
  }
  return Success{};
}

void KernelLauncher::begin(const Adversary &chosen) {
  adversary = chosen;
  failure.clear();
  measured.clear();
}

void KernelLauncher::launch(const LaunchSite &site, void *const *arguments) {
  if (!failure.empty())
    return;
  if (Status done = perform(site, arguments); !done)
    failure = done.error();
}

} // namespace millrace::gpu
