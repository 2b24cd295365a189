// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How maps quantise and dequantise.
#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <optional>
#include <vector>

namespace millrace::forms {

/// Scale and zero point of a quantising or dequantising map; per channel where `axisMap` is not
/// constant.
struct Scheme {
  std::vector<double> scale;
  int64_t zero = 0;
  mlir::AffineMap axisMap;
  bool isPerTensor() const { return scale.size() == 1; }
};

/// Constant parameters only; one zero point for all channels, or whatever zero points, `zeroAside`,
/// which are 0 in what is returned.
std::optional<Scheme> schemeOf(mlir::linalg::LinalgOp op, bool zeroAside = false);
/// Whether the map's integers are signed.
bool isSigned(mlir::linalg::LinalgOp op);

} // namespace millrace::forms
