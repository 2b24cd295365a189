// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef MILLRACE_SIMULATOR_KERNELS_ALIGNEDBUFFER_H
#define MILLRACE_SIMULATOR_KERNELS_ALIGNEDBUFFER_H

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace millrace {

/// Uninitialised memory that begins on a cache line, as the kernels' vector loads want it.
class AlignedBuffer {
public:
  static constexpr size_t alignment = 64;

  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes)
      : memory(static_cast<std::byte *>(
            ::operator new[](roundUp(bytes), std::align_val_t(alignment)))),
        bytes(bytes) {}
  /// `spare` where it is large enough: memory that a process touches first is slow.
  AlignedBuffer(size_t bytes, AlignedBuffer spare) {
    *this = spare.bytes >= bytes ? std::move(spare) : AlignedBuffer(bytes);
  }

  static constexpr size_t roundUp(size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
  }

  void *data() const { return memory.get(); }
  /// The address `offset` bytes in, as a T.
  template <class T> T *at(size_t offset = 0) const {
    return reinterpret_cast<T *>(memory.get() + offset);
  }

private:
  struct Deleter {
    void operator()(std::byte *pointer) const {
      ::operator delete[](pointer, std::align_val_t(alignment));
    }
  };
  std::unique_ptr<std::byte[], Deleter> memory;
  size_t bytes = 0;
};

} // namespace millrace

#endif // MILLRACE_SIMULATOR_KERNELS_ALIGNEDBUFFER_H
