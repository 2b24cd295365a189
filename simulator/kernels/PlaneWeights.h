// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One weight buffer of one MXM plane: bytes as they were installed, and packed forms of them for
// the kernels, made when a product first needs them.

#ifndef MILLRACE_SIMULATOR_KERNELS_PLANEWEIGHTS_H
#define MILLRACE_SIMULATOR_KERNELS_PLANEWEIGHTS_H

#include "arch/isa/semantics/CpuLevel.h"
#include "arch/spec/Types.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace millrace {

class PackedWeights;

/// Lanes [k0, k1) multiply columns [firstColumn, firstColumn + columnCount); both column numbers
/// are multiples of 16.
struct ProductRange {
  unsigned k0, k1;
  unsigned firstColumn, columnCount;
  bool operator==(const ProductRange &) const = default;
};

class PlaneWeights {
public:
  static constexpr unsigned columnsPerGroup = 16;

  /// A buffer of zeros, `columns` columns of `lanes` bytes; `columns` is a multiple of 16.
  PlaneWeights(unsigned lanes, unsigned columns);
  PlaneWeights(PlaneWeights &&) noexcept;
  PlaneWeights &operator=(PlaneWeights &&) noexcept;
  ~PlaneWeights();

  unsigned lanes() const { return laneCount; }
  unsigned columns() const { return columnCount; }

  /// Installs `count` columns from `first` on. Column first + i is the `lanes()` bytes at
  /// columnBytes + i * stride: lane k holds weight k, or one byte of it (a 16-bit format keeps the
  /// low bytes in one plane and the high bytes in the next).
  void installColumns(unsigned first, unsigned count, const uint8_t *columnBytes, size_t stride);

  /// All weights zero.
  void clear();

  /// The lanes() bytes of a column; columns lie stride() bytes apart.
  const uint8_t *column(unsigned n) const { return bytes.get() + n * columnStride; }
  size_t stride() const { return columnStride; }

  /// The packed form for a range of these weights (with those of `high` as upper bytes, for 16-bit
  /// formats), packed now unless the last packing still holds. Threads may call this at the same
  /// time, but not while weights are installed.
  std::shared_ptr<const PackedWeights> packed(const PlaneWeights *high, ElementType format,
                                              const ProductRange &range,
                                              semantics::CpuLevel level) const;

private:
  struct Cache;
  struct Deleter {
    void operator()(uint8_t *pointer) const;
  };

  uint64_t stamp(const ProductRange &range) const;

  unsigned laneCount, columnCount;
  size_t columnStride;
  std::unique_ptr<uint8_t[], Deleter> bytes;
  std::vector<uint64_t> groupStamps; ///< per group of columns: grows with every install
  std::unique_ptr<Cache> cache;
};

} // namespace millrace

#endif // MILLRACE_SIMULATOR_KERNELS_PLANEWEIGHTS_H
