// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Gemm/GemmLaunch.h"

namespace millrace::gpu {

std::vector<Argument> GemmLaunch::arguments() const {
  std::vector<Argument> all = {&a, &b, &c};
  if (bias)
    all.push_back(GlobalMemory{bias, static_cast<size_t>(n) * sizeof(float)});
  all.push_back(n);
  all.push_back(k);
  return all;
}

Expected<GemmLaunch> planLaunch(const GemmSchedule &schedule, const GemmOperands &operands) {
  GemmLaunch launch;
  launch.a = {operands.a, operands.m, operands.k, operands.rowBytesA, schedule.tileM, 64, 2, 128};
  launch.b = {
      operands.b, operands.n, operands.k, operands.rowBytesB, schedule.tileN / schedule.cluster,
      64,         2,          128};
  launch.c = {operands.c, operands.m, operands.n, operands.rowBytesC, 64, 64, 2, 128};
  launch.bias = operands.bias;
  launch.n = operands.n;
  launch.k = operands.k;
  for (const TensorMap *map : {&launch.a, &launch.b, &launch.c})
    if (Status valid = verifyTensorMap(*map); !valid)
      return valid.takeError();
  const unsigned tilesM = (static_cast<unsigned>(operands.m) + schedule.tileM - 1) / schedule.tileM;
  // Whole clusters: tiles beyond the matrix load zeros and store nothing.
  launch.grid.x = (tilesM + schedule.cluster - 1) / schedule.cluster * schedule.cluster;
  launch.grid.y = (static_cast<unsigned>(operands.n) + schedule.tileN - 1) / schedule.tileN;
  return launch;
}

} // namespace millrace::gpu
