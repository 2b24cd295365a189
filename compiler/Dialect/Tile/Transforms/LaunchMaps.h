// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensor maps that a kernel takes behind its pointers: how a launch makes them of these.
#pragma once

#include "mlir/IR/Builders.h"

#include <cstdint>

namespace millrace::tile {

/// The attribute of a hopper.kernel that holds its maps.
constexpr const char *kMapsAttribute = "tile.maps";

/// A map of the tensor that one of the kernel's pointers names: matrices of `rows` x `columns`
/// elements, `rowBytes` from row to row, one for each point of the outer dimensions.
struct LaunchMap {
  unsigned argument = 0; ///< number of the pointer
  int64_t offset = 0;    ///< bytes from there to the first element
  unsigned elementBytes = 2;
  int64_t rows = 0, columns = 0, rowBytes = 0;
  unsigned boxRows = 0, boxColumns = 0; ///< in shared memory with a swizzle of 128 bytes
  llvm::SmallVector<std::pair<int64_t, int64_t>> outer; ///< size, bytes from one to the next

  bool operator==(const LaunchMap &) const = default;
};

mlir::ArrayAttr attributeOf(mlir::Builder &builder, llvm::ArrayRef<LaunchMap> maps);
/// Of a kernel; none if it has none.
llvm::SmallVector<LaunchMap> launchMapsOf(mlir::Operation *kernel);

} // namespace millrace::tile
