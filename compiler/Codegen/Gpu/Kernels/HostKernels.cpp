// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"

#include "compiler/Codegen/Gpu/Kernels/FormKernels.h"
#include "compiler/Codegen/Gpu/Kernels/KernelPlan.h"
#include "compiler/Codegen/Gpu/Kernels/LaunchCalls.h"
#include "compiler/Dialect/Hopper/IR/Hopper.h"
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

/// Launches on the emulator.
class EmulatorLauncher : public Launcher {
public:
  void takeKernels(ModuleOp module) final {
    for (auto kernel : llvm::make_early_inc_range(module.getOps<hopper::KernelOp>())) {
      auto own = ModuleOp::create(kernel.getLoc());
      kernel->remove();
      own.push_back(kernel);
      taken.emplace_back(own);
    }
  }
  /// Of what was taken; not while passes run.
  Status compileKernels() {
    for (OwningOpRef<ModuleOp> &module : taken) {
      hopper::KernelOp kernel = *module->getOps<hopper::KernelOp>().begin();
      Expected<EmulatedKernel> compiled =
          EmulatedKernel::create(*module, kernel.getSymName().str());
      if (!compiled)
        return compiled.takeError();
      const auto programs = kernel->getAttrOfType<IntegerAttr>(tile::kProgramsAttribute).getInt();
      kernels.emplace(kernel.getSymName().str(),
                      Kernel{std::move(*compiled), static_cast<unsigned>(programs)});
    }
    return Success{};
  }
  void launch(const LaunchSite &site, void *const *arguments) final {
    if (!error.empty())
      return;
    std::vector<Argument> memory;
    for (size_t i = 0; i < site.bytes.size(); ++i)
      memory.push_back(GlobalMemory{arguments[i], site.bytes[i]});
    Kernel &kernel = kernels.at(site.kernel);
    if (Status done = kernel.code.run({kernel.programs, 1}, memory, adversary); !done)
      error = done.error();
  }

  Adversary adversary;
  std::string error; ///< the first of a run

private:
  struct Kernel {
    EmulatedKernel code;
    unsigned programs = 0;
  };
  std::vector<OwningOpRef<ModuleOp>> taken;
  std::map<std::string, Kernel> kernels;
};

} // namespace

struct HostKernels::State {
  KernelSummary summary;
  EmulatorLauncher launcher;
  std::optional<Reference> function;
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
  ReferenceOptions options;
  options.onTensors = [&](OpPassManager &passes) {
    addTensorForms(passes, kernels.multiplied, &state->summary.notes);
  };
  options.onBuffers = [&](OpPassManager &passes) {
    passes.addPass(createFormProductsPass());
    passes.addPass(createFormRowsPass());
    passes.addPass(createFormKernelsPass());
    passes.addPass(std::make_unique<Summarize>(state->summary));
    if (kernels.device == Device::Cpu)
      return passes.addPass(tile::createLowerToLoopsPass());
    passes.addPass(tile::createLowerToHopperPass());
    passes.addPass(createCSEPass());
    passes.addPass(createCallLauncherPass(state->launcher));
  };
  options.functions = {{kLaunchFunction, reinterpret_cast<void *>(&millraceLaunch)}};
  // Kernels of other functions are none of this one's.
  OwningOpRef<ModuleOp> own = withFunction(module, entry);
  Expected<Reference> function = Reference::create(*own, entry, options);
  if (!function)
    return function.takeError();
  state->function = std::move(*function);
  if (Status done = state->launcher.compileKernels(); !done)
    return done.takeError();
  return HostKernels(std::move(state));
}

Expected<std::vector<HostTensor>> HostKernels::run(const std::vector<HostView> &inputs,
                                                   const Adversary &adversary) {
  state->launcher.adversary = adversary;
  state->launcher.error.clear();
  Expected<std::vector<HostTensor>> results = state->function->run(inputs);
  if (results && !state->launcher.error.empty())
    return Error{state->launcher.error};
  return results;
}

} // namespace millrace::gpu
