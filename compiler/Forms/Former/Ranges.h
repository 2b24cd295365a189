// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which numbers the values of the tensor level can be: bounds, and whether infinities or NaN are
// among them. The inputs decide (a real one may hold anything), constants, and what every operation
// does to intervals. A claim that a value is finite holds for the machine, too: it stores what is
// finite as something finite.
#pragma once

#include "arch/spec/Types.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/DenseMap.h"

#include <limits>

namespace millrace::forms {

/// All that a number may be: low to high (infinite bounds: infinities too), and perhaps NaN.
struct Range {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double low = -kInfinity, high = kInfinity;
  bool nan = true;
  bool isWhole = false;      ///< no fractions
  bool fromIntegers = false; ///< arithmetic led here from what was cast from an integer type,
  bool fromOthers = true;    ///< and from run-time values that were not
  /// NaN, where there is any, fills the tensor's last dimension.
  bool fillsRows = false;

  bool isFinite() const;
  bool isBounded() const; ///< no infinities, but perhaps NaN
  double largest() const;
  bool contains(double value) const { return low <= value && value <= high; }
};

class Ranges {
public:
  /// `stored`: the 16-bit type in which real values lie in memory.
  /// `givesFinite`: if all that is given were finite.
  Ranges(mlir::func::FuncOp function, ElementType stored, bool givesFinite = false);
  /// What an element of the tensor may be.
  Range of(mlir::Value tensor) const;
  /// What an element may be that maps compute of the one at its place in `source`, a tensor of
  /// integers of 8 bits: for each of those by itself.
  Range ofEach(mlir::Value tensor, mlir::Value source) const;
  /// Whether 16 bits lose what counts: indices and angles that are too large for their last place.
  bool needsFp32(mlir::Value tensor) const;
  /// Whether 16 bits may round a positive number that is divided by to 0, and no product needs
  /// them.
  bool mayVanish(mlir::Value tensor) const;

private:
  using Known = llvm::DenseMap<mlir::Value, Range>;
  bool makesReals(mlir::linalg::LinalgOp op, const Range &result) const;
  void noteImages(mlir::Block &block);
  Range ofOperation(mlir::Operation *op) const;
  Range ofGeneric(mlir::linalg::LinalgOp op) const;
  bool fillsRows(mlir::linalg::LinalgOp op) const;
  Range with(mlir::Value tensor, Known &given) const;
  Range ofScalar(mlir::Value scalar, Known &known) const;
  Range ofScalarOperation(mlir::Operation *op, Known &known) const;
  /// As an operand of a contraction or of a body finds it in memory.
  Range inMemory(mlir::Value tensor) const;

  ElementType stored;
  Known tensors;
};

} // namespace millrace::forms
