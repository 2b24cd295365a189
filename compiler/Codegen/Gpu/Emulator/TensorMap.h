// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a launch tells TMA of one matrix in memory.
#pragma once

#include "arch/spec/Expected.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace millrace::gpu {

/// A row-major matrix for each point of some outer dimensions, and the boxes in which TMA moves it.
/// `rowBytes` is the distance of two rows; it may be more than the columns take, so that odd
/// numbers of columns fit.
struct TensorMap {
  /// One outer dimension.
  struct Outer {
    int64_t size = 1, bytes = 16; ///< and the distance of two matrices
    bool operator==(const Outer &) const = default;
  };

  std::byte *base = nullptr;
  int64_t rows = 0, columns = 0; ///< of a matrix
  int64_t rowBytes = 0;
  unsigned boxRows = 0, boxColumns = 0;
  unsigned elementBytes = 0;
  unsigned swizzle = 0;          ///< bytes: 128, or 0 for none
  std::vector<Outer> outer = {}; ///< at most three

  /// Bytes of a box in shared memory.
  unsigned boxBytes() const { return boxRows * boxColumns * elementBytes; }
};

/// Checks what the driver's cuTensorMapEncodeTiled would refuse: a base or row distance that is no
/// multiple of 16 bytes, an empty matrix, rows that overlap.
Status verifyTensorMap(const TensorMap &map);

} // namespace millrace::gpu
