// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Quantise and dequantise as maps that later stages recognise: the attribute `millrace.quant` says
// which of the two a linalg.generic is; its inputs are the tensor, the scale, and the zero point
// (absent where it is zero).
#pragma once

#include "compiler/Import/Onnx/NodeImporter.h"

namespace millrace::onnx_import {

/// How a tensor is quantised: real = (integer - zeroPoint) * scale.
struct Scheme {
  mlir::Value scale; ///< a scalar tensor, or one element per index of `axis`, or per block along it
  mlir::Value zeroPoint;          ///< null: zero
  HostType type = HostType::Int8; ///< of the integers
  int64_t axis = 1;
  int64_t block = 0; ///< elements per scale along `axis`; 0 where scales are not per block
};

/// Bytes with the top bit turned: what uint8 holds less 128, as int8, and back. Turned twice, they
/// are what they were: so uint8 between quantising operations is int8 with another zero point, and
/// only what others read is turned.
mlir::Value flipSign(TensorBuilder &t, mlir::Value bytes);

/// uint8 by the tensor's own range: the scale is (max - min) / 255, 1 where all is zero, the zero
/// point round(-min / scale); the range includes zero.
struct QuantizedByRange {
  mlir::Value bytes, scale, zeroPoint;
};
QuantizedByRange quantizeByRange(TensorBuilder &t, mlir::Value reals);

/// The value with what quantises and dequantises all elements alike done before the reshapes that lie
/// behind it: a reshape of the tensor as it was made. The value itself where there is none.
mlir::Value reshapedLast(TensorBuilder &t, mlir::Value value);

/// (x - zero point) * scale, in f32. int32 tensors (biases) have no zero point.
mlir::Value dequantize(TensorBuilder &t, mlir::Value integers, const Scheme &scheme);
/// saturate(round half to even(x / scale) + zero point)
mlir::Value quantize(TensorBuilder &t, mlir::Value reals, const Scheme &scheme);

} // namespace millrace::onnx_import
