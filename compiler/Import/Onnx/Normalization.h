// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Normalisations as the primitives max, sum, subtract, exp, divide: used by several operations.
#pragma once

#include "compiler/Import/Onnx/NodeImporter.h"

namespace millrace::onnx_import {

/// exp(x - max) / sum over `axis`; with `takeLog` its logarithm x - max - log(sum).
mlir::Value softmax(TensorBuilder &t, mlir::Value input, int64_t axis, bool takeLog = false);

/// A layer normalisation and the statistics it went through (without the reduced axes).
struct LayerNorm {
  mlir::Value result, mean, inverseDeviation;
};
/// (x - mean) / sqrt(variance + epsilon) * scale + bias over the last dimensions from `axis` on.
/// `scale` and `bias` (may be null) have the shape of those dimensions or broadcast to it.
LayerNorm layerNorm(TensorBuilder &t, mlir::Value input, int64_t axis, double epsilon,
                    mlir::Value scale, mlir::Value bias);
/// The same without mean and bias: x / sqrt(mean of squares + epsilon) * scale.
LayerNorm rmsNorm(TensorBuilder &t, mlir::Value input, int64_t axis, double epsilon,
                  mlir::Value scale);

} // namespace millrace::onnx_import
