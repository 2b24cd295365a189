// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Kernels/KernelLauncher.h"

#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Tile/Transforms/LaunchMaps.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"

#include <algorithm>
#include <map>
#include <optional>

namespace millrace::gpu {

namespace {

/// Host memory that a launch uses, as one range if arguments overlap, and where it is on the GPU.
struct Range {
  std::byte *begin = nullptr, *end = nullptr;
  bool isWritten = false;
  size_t buffer = 0, offset = 0; ///< of the GPU's memory
  size_t bytes() const { return size_t(end - begin); }
};

class CudaLauncher : public KernelLauncher {
public:
  CudaLauncher(const CudaDevice &device, unsigned timedRuns)
      : device(device), timedRuns(timedRuns) {}

private:
  struct Kernel {
    CudaKernel code;
    unsigned programs = 0, threads = 0;
    std::vector<bool> isWritten; ///< of each tensor
    llvm::SmallVector<tile::LaunchMap> maps;
  };

  Status compile(mlir::ModuleOp module, const std::string &name) final {
    auto op = module.lookupSymbol<hopper::KernelOp>(name);
    Expected<std::string> ptx = emitPtx(module, device.facts().chip);
    if (!ptx)
      return ptx.takeError();
    Expected<CudaKernel> code = device.load(*ptx, name, op.getSharedMemory());
    if (!code)
      return code.takeError();
    Kernel kernel{std::move(*code),
                  unsigned(op->getAttrOfType<mlir::IntegerAttr>(tile::kProgramsAttribute).getInt()),
                  op.getThreads(),
                  {},
                  tile::launchMapsOf(op)};
    kernel.isWritten.resize(op.getNumArguments() - kernel.maps.size());
    for (int32_t i :
         op->getAttrOfType<mlir::DenseI32ArrayAttr>(tile::kWrittenAttribute).asArrayRef())
      kernel.isWritten[size_t(i)] = true;
    kernels.emplace(name, std::move(kernel));
    return Success{};
  }

  /// Ranges of the launch's tensors, none of which overlaps another, by address.
  std::vector<Range> rangesOf(const LaunchSite &site, void *const *arguments,
                              const Kernel &kernel) const {
    std::vector<Range> all, merged;
    for (size_t i = 0; i < site.bytes.size(); ++i) {
      auto *begin = static_cast<std::byte *>(arguments[i]);
      all.push_back({begin, begin + site.bytes[i], kernel.isWritten[i]});
    }
    std::sort(all.begin(), all.end(), [](auto &x, auto &y) { return x.begin < y.begin; });
    for (const Range &range : all) {
      if (merged.empty() || range.begin >= merged.back().end) {
        merged.push_back(range);
        continue;
      }
      merged.back().end = std::max(merged.back().end, range.end);
      merged.back().isWritten |= range.isWritten;
    }
    return merged;
  }

  /// Gives each range memory of the GPU, where it lies as on the host with regard to vectors of 16
  /// bytes, the most that one instruction accesses, and else at the begin of an allocation: rows of
  /// 128 bytes that TMA loads, but which lie in two lines of the cache each, took 1.3 times as
  /// long.
  Status place(std::vector<Range> &ranges) {
    constexpr size_t kAlignment = 16;
    for (size_t i = 0; i < ranges.size(); ++i) {
      Range &range = ranges[i];
      range.buffer = i;
      range.offset = reinterpret_cast<uintptr_t>(range.begin) % kAlignment;
      const size_t bytes = range.offset + range.bytes();
      if (i < buffers.size() && buffers[i].bytes() >= bytes)
        continue;
      Expected<CudaMemory> memory = device.allocate(std::max<size_t>(bytes, 1));
      if (!memory)
        return memory.takeError();
      if (i < buffers.size())
        buffers[i] = std::move(*memory);
      else
        buffers.push_back(std::move(*memory));
    }
    return Success{};
  }

  Status perform(const LaunchSite &site, void *const *arguments) final {
    Kernel &kernel = kernels.at(site.kernel);
    std::vector<Range> ranges = rangesOf(site, arguments, kernel);
    if (Status done = place(ranges); !done)
      return done;
    // What is only written goes there too: a kernel need not write all of it.
    for (const Range &range : ranges)
      if (range.bytes())
        if (Status done = buffers[range.buffer].copyIn(range.offset, range.begin, range.bytes());
            !done)
          return done;
    std::vector<CudaArgument> addresses;
    for (size_t i = 0; i < site.bytes.size(); ++i) {
      auto *begin = static_cast<std::byte *>(arguments[i]);
      const auto range = std::prev(
          std::upper_bound(ranges.begin(), ranges.end(), begin,
                           [](const std::byte *at, const Range &r) { return at < r.begin; }));
      addresses.push_back(buffers[range->buffer].address() + range->offset +
                          size_t(begin - range->begin));
    }
    for (const tile::LaunchMap &map : kernel.maps) {
      Expected<driver::EncodedMap> encoded =
          device.encode(matrixOf(map, std::get<driver::Address>(addresses[map.argument])));
      if (!encoded)
        return encoded.takeError();
      addresses.emplace_back(*encoded);
    }
    if (Status done = kernel.code.launch({kernel.programs, 1}, kernel.threads, addresses); !done)
      return done;
    // A fault of the kernel is said here, and not at the next call of the driver.
    if (Status done = device.synchronize("running kernel '" + site.kernel + "'"); !done)
      return done;
    for (const Range &range : ranges)
      if (range.isWritten && range.bytes())
        if (Status done = buffers[range.buffer].copyOut(range.offset, range.begin, range.bytes());
            !done)
          return done;
    return timedRuns ? time(site, kernel, addresses) : Success{};
  }

  static CudaMatrix matrixOf(const tile::LaunchMap &map, driver::Address argument) {
    CudaMatrix matrix{argument + driver::Address(map.offset),
                      map.rows,
                      map.columns,
                      map.rowBytes,
                      map.boxRows,
                      map.boxColumns,
                      map.elementBytes,
                      /*isSwizzled=*/true,
                      {}};
    matrix.outer.assign(map.outer.begin(), map.outer.end());
    return matrix;
  }

  /// Behind the copies, as kernels that read what they write would change it.
  Status time(const LaunchSite &site, Kernel &kernel, const std::vector<CudaArgument> &addresses) {
    if (!cold) {
      // Twice the cache, so that nothing of before stays in it.
      Expected<CudaMemory> memory =
          device.allocate(std::max<size_t>(2 * device.facts().l2Bytes, 1 << 20));
      if (!memory)
        return memory.takeError();
      cold = std::move(*memory);
    }
    auto seconds = kernel.code.time({kernel.programs, 1}, kernel.threads, addresses, timedRuns,
                                    [&] { return cold->fill(0); });
    if (!seconds)
      return seconds.takeError();
    measured.push_back({site.kernel, std::move(*seconds)});
    return Success{};
  }

  CudaDevice device;
  unsigned timedRuns = 0;
  std::map<std::string, Kernel> kernels;
  std::vector<CudaMemory> buffers; ///< kept between launches; a launch uses the first of them
  std::optional<CudaMemory> cold;
};

} // namespace

std::unique_ptr<KernelLauncher> makeCudaLauncher(const CudaDevice &device, unsigned timedRuns) {
  return std::make_unique<CudaLauncher>(device, timedRuns);
}

} // namespace millrace::gpu
