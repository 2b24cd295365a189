// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Kernels/KernelLauncher.h"

#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"

#include <map>

namespace millrace::gpu {

namespace {

class EmulatorLauncher : public KernelLauncher {
  Status compile(mlir::ModuleOp module, const std::string &name) final {
    Expected<EmulatedKernel> compiled = EmulatedKernel::create(module, name);
    if (!compiled)
      return compiled.takeError();
    auto kernel = module.lookupSymbol<hopper::KernelOp>(name);
    const auto programs =
        kernel->getAttrOfType<mlir::IntegerAttr>(tile::kProgramsAttribute).getInt();
    kernels.emplace(name, Kernel{std::move(*compiled), static_cast<unsigned>(programs),
                                 tile::launchMapsOf(kernel)});
    return Success{};
  }
  Status perform(const LaunchSite &site, void *const *arguments) final {
    std::vector<Argument> memory;
    for (size_t i = 0; i < site.bytes.size(); ++i)
      memory.push_back(GlobalMemory{arguments[i], site.bytes[i]});
    Kernel &kernel = kernels.at(site.kernel);
    std::vector<TensorMap> maps;
    maps.reserve(kernel.maps.size());
    for (const tile::LaunchMap &map : kernel.maps)
      memory.push_back(&maps.emplace_back(mapOf(map, arguments[map.argument])));
    return kernel.code.run({kernel.programs, 1}, memory, adversary);
  }

  struct Kernel {
    EmulatedKernel code;
    unsigned programs = 0;
    llvm::SmallVector<tile::LaunchMap> maps;
  };
  std::map<std::string, Kernel> kernels;
};

} // namespace

TensorMap mapOf(const tile::LaunchMap &map, void *argument) {
  TensorMap made;
  made.base = static_cast<std::byte *>(argument) + map.offset;
  made.rows = map.rows;
  made.columns = map.columns;
  made.rowBytes = map.rowBytes;
  made.boxRows = map.boxRows;
  made.boxColumns = map.boxColumns;
  made.elementBytes = map.elementBytes;
  made.swizzle = 128;
  for (const auto &[size, bytes] : map.outer)
    made.outer.push_back({size, bytes});
  return made;
}

std::unique_ptr<KernelLauncher> makeEmulatorLauncher() {
  return std::make_unique<EmulatorLauncher>();
}

} // namespace millrace::gpu
