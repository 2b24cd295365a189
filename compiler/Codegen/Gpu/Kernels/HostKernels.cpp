// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"

#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Kernels/KernelLauncher.h"
#include "compiler/Codegen/Gpu/Kernels/KernelPlan.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/IR/Tile.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

namespace millrace::gpu {

using namespace mlir;

namespace {

/// Notes what became kernels, and what did not.
class Summarize : public PassWrapper<Summarize, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(Summarize)
  explicit Summarize(KernelSummary &summary) : summary(summary) {}
  void runOnOperation() final {
    getOperation().walk([&](Operation *op) {
      if (auto launch = dyn_cast<tile::LaunchOp>(op))
        summary.launches.push_back(launch.getKernel().str());
      else if (auto why = op->getAttrOfType<StringAttr>(kLeftAttribute))
        summary.left.push_back(op->getName().getStringRef().str() + " " + why.str());
    });
  }

private:
  KernelSummary &summary;
};

} // namespace

const char *nameOf(Device device) {
  return device == Device::Cpu ? "cpu" : device == Device::Emulated ? "emulate" : "cuda";
}

struct HostKernels::State {
  KernelSummary summary;
  std::unique_ptr<KernelLauncher> launcher; ///< none: kernels are loops
  std::optional<Reference> function;
  std::string refused; ///< by a GPU's driver; empty: nothing
};

HostKernels::HostKernels(std::unique_ptr<State> state) : state(std::move(state)) {}
HostKernels::HostKernels(HostKernels &&) noexcept = default;
HostKernels &HostKernels::operator=(HostKernels &&) noexcept = default;
HostKernels::~HostKernels() = default;
const KernelSummary &HostKernels::summary() const { return state->summary; }

Expected<HostKernels> HostKernels::create(ModuleOp module, StringRef entry,
                                          const KernelOptions &kernels) {
  DialectRegistry registry;
  hopper::registerLoweringDialects(registry);
  registry.insert<tile::TileDialect>();
  module.getContext()->appendDialectRegistry(registry);
  auto state = std::make_unique<State>();
  if (kernels.device == Device::Emulated)
    state->launcher = makeEmulatorLauncher();
  if (kernels.device == Device::Cuda) {
    if (!kernels.cuda)
      return Error{"no GPU was opened for kernels that are to run on one"};
    state->launcher = makeCudaLauncher(*kernels.cuda, kernels.timedRuns);
  }
  const bool hasWarpgroups =
      kernels.device != Device::Cuda || kernels.cuda->facts().chip == "sm_90a";
  const TuningTable tuning = hasWarpgroups ? *kernels.tuning : kernels.tuning->withoutWarpgroups();
  ReferenceOptions options;
  options.onTensors = [&](OpPassManager &passes) {
    addTensorForms(passes, kernels.multiplied, &state->summary.notes, tuning);
  };
  options.onBuffers = [&](OpPassManager &passes) {
    addBufferForms(passes);
    passes.addPass(std::make_unique<Summarize>(state->summary));
    if (!state->launcher)
      return passes.addPass(tile::createLowerToLoopsPass());
    passes.addPass(tile::createLowerToHopperPass(hasWarpgroups));
    passes.addPass(createCSEPass());
    passes.addPass(createCallLauncherPass(*state->launcher));
  };
  options.functions = {{kLaunchFunction, reinterpret_cast<void *>(&millraceLaunch)}};
  // Kernels of other functions are none of this one's.
  OwningOpRef<ModuleOp> own = withFunction(module, entry);
  Expected<Reference> function = Reference::create(*own, entry, options);
  if (!function)
    return function.takeError();
  state->function = std::move(*function);
  if (state->launcher)
    if (Status done = state->launcher->compileKernels(); !done) {
      if (kernels.device != Device::Cuda)
        return done.takeError();
      state->refused = done.error();
    }
  return HostKernels(std::move(state));
}

Expected<std::vector<HostTensor>> HostKernels::run(const std::vector<HostView> &inputs,
                                                   const Adversary &adversary) {
  if (!state->launcher)
    return state->function->run(inputs);
  if (!state->refused.empty())
    return Error{state->refused};
  state->launcher->begin(adversary);
  Expected<std::vector<HostTensor>> results = state->function->run(inputs);
  if (results && !state->launcher->error().empty())
    return Error{state->launcher->error()};
  return results;
}

const std::vector<LaunchTime> &HostKernels::times() const {
  static const std::vector<LaunchTime> kNone;
  return state->launcher ? state->launcher->times() : kNone;
}

} // namespace millrace::gpu
