// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The first k elements of rows as one program of the tile level.
#pragma once

#include "arch/spec/Expected.h"
#include "compiler/Dialect/Tile/IR/Tile.h"

namespace millrace::gpu {

/// Of each of `rows` rows of `columns` elements the k greatest (or least) in their order, and where
/// they stand. Of equal ones that of the lower index is first, or the other way. What is no number
/// is never chosen; where nothing is left to choose, the place is 0.
struct TopKProblem {
  int64_t rows = 1, columns = 1, k = 1;
  bool isLargest = true, lastWins = false;
  bool isUnsigned = false; ///< of integers
  mlir::Type element;
  mlir::Type place;                        ///< of places: an integer or f32
  bool hasValues = true, hasPlaces = true; ///< which of them are written
};

/// Most elements that are chosen of a row: each takes a pass over it and two reductions.
constexpr int64_t kMostChosen = 64;

/// Builds the kernel at the builder's place. A program has a row; its arguments are the rows, then
/// what is written, [rows, k] each. Errors: more than kMostChosen, or than there are; an element
/// type that no kernel compares.
Expected<tile::KernelOp> buildTopK(const TopKProblem &problem, mlir::OpBuilder &builder,
                                   llvm::StringRef name);

} // namespace millrace::gpu
