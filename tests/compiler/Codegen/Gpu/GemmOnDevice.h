// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel of build-gemm on a GPU: operands copied there, tensor maps of the driver, C copied
// back.
#pragma once

#include "compiler/Codegen/Gpu/Driver/CudaDevice.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "tests/compiler/Codegen/Gpu/GemmCase.h"

#include <optional>

namespace millrace::gpu {

/// Loads the kernel @gemm of a module.
inline Expected<CudaKernel> loadGemm(const CudaDevice &device, mlir::ModuleOp module) {
  Expected<std::string> ptx = emitPtx(module, device.facts().chip);
  if (!ptx)
    return ptx.takeError();
  return device.load(*ptx, "gemm", module.lookupSymbol<hopper::KernelOp>("gemm").getSharedMemory());
}

/// Runs the product once, then `times` times for its seconds with a cold cache. `product.c` gets
/// the result; nobody has checked it.
inline Expected<std::vector<double>> runOnDevice(const CudaDevice &device, CudaKernel &kernel,
                                                 const GemmSchedule &schedule, GemmCase &product,
                                                 unsigned times) {
  std::fill(product.c.storage.begin(), product.c.storage.end(), uint16_t(0xFFFF));
  Expected<GemmLaunch> launch = product.launch(schedule);
  if (!launch)
    return launch.takeError();
  std::vector<CudaMemory> memories;
  std::vector<CudaArgument> arguments;
  const auto copied = [&](const void *data, size_t bytes) -> Status {
    Expected<CudaMemory> memory = device.allocate(bytes);
    if (!memory)
      return memory.takeError();
    memories.push_back(std::move(*memory));
    return memories.back().copyIn(0, data, bytes);
  };
  const std::pair<Matrix *, TensorMap *> operands[] = {
      {&product.a, &launch->a}, {&product.b, &launch->b}, {&product.c, &launch->c}};
  for (const auto &[matrix, map] : operands) {
    if (Status s = copied(matrix->bytes(), size_t(matrix->rows * matrix->stride) * 2); !s)
      return s.takeError();
    auto encoded =
        device.encode({memories.back().address(), map->rows, map->columns, map->rowBytes,
                       map->boxRows, map->boxColumns, map->elementBytes, map->swizzle == 128});
    if (!encoded)
      return encoded.takeError();
    arguments.push_back(*encoded);
  }
  if (launch->bias) {
    if (Status s = copied(launch->bias, size_t(launch->n) * sizeof(float)); !s)
      return s.takeError();
    arguments.push_back(memories.back().address());
  }
  arguments.insert(arguments.end(), {launch->n, launch->k});
  const CudaGrid grid = {launch->grid.x, launch->grid.y};
  if (Status s = kernel.launch(grid, schedule.threads(), arguments); !s)
    return s.takeError();
  if (Status s = device.synchronize("running kernel 'gemm'"); !s)
    return s.takeError();
  if (Status s =
          memories[2].copyOut(0, product.c.bytes(), size_t(product.c.rows * product.c.stride) * 2);
      !s)
    return s.takeError();
  if (!times)
    return std::vector<double>();
  Expected<CudaMemory> cold =
      device.allocate(std::max<size_t>(2 * device.facts().l2Bytes, 1 << 20));
  if (!cold)
    return cold.takeError();
  return kernel.time(grid, schedule.threads(), arguments, times, [&] { return cold->fill(0); });
}

} // namespace millrace::gpu
