// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Tuning/Cost.h"

#include <algorithm>

namespace millrace::gpu {

double rooflineSeconds(const GpuLaunch &launch, const GpuChip &chip) {
  const double share = std::min(1.0, launch.programs / chip.processors);
  double work = launch.bytes / chip.bytesPerSecond;
  if (share > 0)
    work = std::max({work, launch.matrixFlops / (chip.matrixFlops * share),
                     launch.otherFlops / (chip.otherFlops * share)});
  return chip.launchSeconds + work;
}

LaunchEstimate estimate(const GpuLaunch &launch, const TuningTable &table) {
  const GpuChip &chip = table.estimatedChip();
  const double seconds = rooflineSeconds(launch, chip);
  const TuningEntry *entry = table.find(launch.kind, chip.name, /*hasSchedule=*/false);
  return entry ? LaunchEstimate{seconds / entry->rooflineShare, entry->isMeasured}
               : LaunchEstimate{seconds, false};
}

std::string opOf(const std::string &kernel) {
  const size_t end = kernel.find_last_not_of("0123456789");
  return end != kernel.npos && end > 0 && kernel[end] == '_' && end + 1 < kernel.size()
             ? kernel.substr(0, end)
             : kernel;
}

} // namespace millrace::gpu
