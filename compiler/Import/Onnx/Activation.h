// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions of one number that recurrent operations name.
#pragma once

#include "compiler/Import/Onnx/Arithmetic.h"

#include <functional>
#include <optional>
#include <string_view>

namespace millrace::onnx_import {

/// The attributes alpha, beta, gamma.
struct Parameters {
  double alpha = 0, beta = 0, gamma = 0;
};

using UnaryBody = std::function<mlir::Value(Arithmetic &, mlir::Value, const Parameters &)>;

struct Activation {
  UnaryBody body;
  Parameters parameters; ///< ONNX's defaults
  unsigned taken = 0;    ///< how many of alpha and beta it reads
};

/// An entry of the attribute `activations`; nothing for names that ONNX does not list.
std::optional<Activation> activationNamed(std::string_view name);

} // namespace millrace::onnx_import
