// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Maps that are affine per channel, as batch normalisations are.
#pragma once

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <optional>
#include <vector>

namespace millrace::forms {

/// scale * x + shift for every channel; `scale` 0 everywhere for constants.
struct Channels {
  std::vector<double> scale, shift;
  bool isConstant() const {
    return llvm::all_of(scale, [](double value) { return value == 0; });
  }
};

/// The map's parameters for each of the `count` channels along dimension `dim`, if it is affine and
/// its only operand that is no constant is `input`, element by element.
std::optional<Channels> channelMap(mlir::linalg::GenericOp map, mlir::Value input, unsigned dim,
                                   size_t count);

/// scale * x + shift for every channel along dimension `dim`, in fp32; x is of fp32, or of signed
/// integers.
mlir::linalg::GenericOp mapChannels(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value input,
                                    unsigned dim, const Channels &channels);

/// A constant of real numbers, or a dequantised one, element by element.
std::optional<std::vector<double>> constantReals(mlir::Value value);

} // namespace millrace::forms
