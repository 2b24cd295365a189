// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tools/HostRunner.h"

#include "compiler/Tools/Execute.h"

#include <cstdlib>

namespace millrace::driver {

/// The GPU of this computer; which driver is asked can be said in the environment.
static Expected<gpu::CudaDevice> openGpu() {
  const char *named = std::getenv(gpu::driver::kLibraryVariable);
  return gpu::CudaDevice::open(named && *named ? named : gpu::driver::kLibrary);
}

std::variant<KernelDevices, Failure> devicesNamed(const std::string &name,
                                                  std::optional<GpuUse> &use) {
  using gpu::Device;
  if (name.empty())
    return KernelDevices{std::nullopt, Device::Cpu};
  KernelDevices devices;
  if (name == "off")
    return devices;
  Device chosen = name == "cpu" ? Device::Cpu : Device::Emulated;
  if (name == "cuda" || name == "auto") {
    Expected<gpu::CudaDevice> opened = openGpu();
    if (!opened && name == "cuda")
      return Failure{Usage, "--gpu cuda: " + opened.error() + "; or give cpu or emulate"};
    chosen = opened ? Device::Cuda : Device::Cpu;
    use = GpuUse{name, gpu::nameOf(chosen), {}, {}, {}};
    if (opened) {
      use->name = opened->facts().name;
      use->chip = opened->facts().chip;
      devices.cuda = std::move(*opened);
    } else {
      use->why = opened.error();
      warn("--gpu auto: kernels run on this CPU, as with --gpu cpu: " + use->why);
    }
  }
  devices.host = devices.gpu = chosen;
  return devices;
}

} // namespace millrace::driver
