// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gathers at the tensor level: results whose rows are made of rows of tables at indices that are
// data, known by which loops each index depends on.
#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <memory>
#include <optional>

namespace mlir {
class Pass;
} // namespace mlir

namespace millrace::gpu {

/// An attribute of what was found: the number of its loop along rows.
constexpr const char *kRowLoop = "tile.row_loop";

/// The loop along the rows of an elementwise operation that extracts elements at data: the last
/// dimension of all of its results, on which no index depends that is data, however it is computed
/// (from inputs, from other elements that were extracted, from loops). So all of a row is at one
/// index, and whatever else is computed of its elements may be. Nothing if there is no such loop,
/// or no index that is data.
std::optional<unsigned> findRowLoop(mlir::linalg::GenericOp op);

/// `find-gathers`: puts the attribute on all of them. Kernels of those (BuildKernel.h) have a row,
/// or a part of one, in a program: its indices are computed once, and its elements lie side by
/// side.
std::unique_ptr<mlir::Pass> createFindGathersPass();

} // namespace millrace::gpu
