// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A GPU through its driver: memory, kernels of PTX, launches and their times. All calls are on the
// driver's default stream, and those that copy or time wait for it.
#pragma once

#include "compiler/Codegen/Gpu/Driver/DriverApi.h"

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace millrace::gpu {

/// What a driver says of its GPU.
struct CudaFacts {
  std::string name;         ///< as the driver writes it
  int driverVersion = 0;    ///< 13000 is of CUDA 13.0
  int major = 0, minor = 0; ///< the chip's compute capability
  int processors = 0;
  size_t sharedBytes = 0; ///< that a CTA may have
  size_t l2Bytes = 0;
  std::string chip; ///< that PTX is made for, so that this GPU takes it: "sm_90a"
};

/// The chip among those of parseChip (ChipFeatures.h) whose PTX a GPU of this capability takes and
/// that has most of its instructions. Errors: below 8.0, which kernels need.
Expected<std::string> chipFor(int major, int minor);

/// A row-major matrix in the GPU's memory, or one for each point of some outer dimensions, and the
/// boxes in which TMA moves it.
struct CudaMatrix {
  driver::Address base = 0; ///< a multiple of 16
  int64_t rows = 0, columns = 0, rowBytes = 0;
  unsigned boxRows = 0, boxColumns = 0;
  unsigned elementBytes = 0; ///< 2 or 4
  bool isSwizzled = false;   ///< by 128 bytes
  /// Of each outer dimension its size, and the bytes from one matrix to the next; three at most.
  std::vector<std::pair<int64_t, int64_t>> outer = {};
};

/// What a kernel takes: an address, a tensor map, a number.
using CudaArgument = std::variant<driver::Address, driver::EncodedMap, int32_t, int64_t, float>;

/// CTAs along x and y.
struct CudaGrid {
  unsigned x = 1, y = 1;
};

/// Memory of the GPU, given back when it goes.
class CudaMemory;
/// A kernel that is loaded; its module goes with it.
class CudaKernel;

/// An open GPU; copies share it. From several threads, but not at once.
class CudaDevice {
public:
  /// The GPU of this number, of the driver in `library` (driver::open). Errors name what was looked
  /// for, and the remedy.
  static Expected<CudaDevice> open(const std::string &library, int ordinal = 0);

  const CudaFacts &facts() const;
  /// `bytes` > 0. Aligned to 256 bytes.
  Expected<CudaMemory> allocate(size_t bytes) const;
  /// Compiles PTX by the driver and finds a kernel in it. Errors hold the driver's log.
  Expected<CudaKernel> load(const std::string &ptx, const std::string &name,
                            size_t sharedBytes) const;
  /// A tensor map of the matrix; what lies outside of it reads as 0. Errors: what the driver
  /// refuses of it.
  Expected<driver::EncodedMap> encode(const CudaMatrix &matrix) const;
  Status synchronize(const std::string &doing) const;

  struct State;

private:
  explicit CudaDevice(std::shared_ptr<State> state);
  std::shared_ptr<State> state;
};

class CudaMemory {
public:
  driver::Address address() const { return at; }
  size_t bytes() const { return size; }
  /// Within the memory: from `offset` on. Waits for what was launched before.
  Status copyIn(size_t offset, const void *from, size_t bytes) const;
  Status copyOut(size_t offset, void *to, size_t bytes) const;
  Status fill(unsigned char value) const;

  CudaMemory(CudaMemory &&) noexcept;
  CudaMemory &operator=(CudaMemory &&) noexcept;
  ~CudaMemory();

private:
  friend class CudaDevice;
  CudaMemory(std::shared_ptr<CudaDevice::State> device, driver::Address at, size_t size)
      : device(std::move(device)), at(at), size(size) {}
  std::shared_ptr<CudaDevice::State> device; ///< null: moved away
  driver::Address at = 0;
  size_t size = 0;
};

class CudaKernel {
public:
  /// CTAs, threads of each, what it takes. Does not wait. Clusters are the kernel's own.
  Status launch(CudaGrid grid, unsigned threads, const std::vector<CudaArgument> &arguments);
  /// The same, `times` times, each with what `before` does before it outside of the time: seconds
  /// of each, by events of the driver.
  template <class Before>
  Expected<std::vector<double>> time(CudaGrid grid, unsigned threads,
                                     const std::vector<CudaArgument> &arguments, unsigned times,
                                     const Before &before) {
    std::vector<double> seconds;
    for (unsigned i = 0; i < times; ++i) {
      if (Status done = before(); !done)
        return done.takeError();
      Expected<double> one = timeOne(grid, threads, arguments);
      if (!one)
        return one.takeError();
      seconds.push_back(*one);
    }
    return seconds;
  }

  CudaKernel(CudaKernel &&) noexcept;
  CudaKernel &operator=(CudaKernel &&) noexcept;
  ~CudaKernel();

private:
  friend class CudaDevice;
  CudaKernel() = default;
  Expected<double> timeOne(CudaGrid grid, unsigned threads,
                           const std::vector<CudaArgument> &arguments);
  std::shared_ptr<CudaDevice::State> device; ///< null: moved away
  std::string name;
  driver::Module module = nullptr;
  driver::Function function = nullptr;
  size_t sharedBytes = 0;
};

} // namespace millrace::gpu
