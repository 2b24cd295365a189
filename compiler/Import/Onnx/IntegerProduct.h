// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of (a - za) * (w - zw) over bytes, exact in int32. Where w and zw are constants the bytes of
// a are multiplied as they are: the sums of w, known then, times za are taken off the products.
#pragma once

#include "compiler/Import/Onnx/NodeImporter.h"
#include "compiler/Support/Constants.h"

namespace millrace::onnx_import {

/// Bytes as int8, and their zero point, less 128 where they are uint8.
struct SignedBytes {
  mlir::Value bytes;
  mlir::Value zero; ///< int8; null: 0
};
/// Of input `i`, whose zero point is input `zeroAt` (may be absent).
SignedBytes signedBytes(NodeImporter &node, size_t i, size_t zeroAt);

/// A constant input less its zero point, of which there is one, or one per index of `axis`.
class CentredConstant {
public:
  /// Nothing where one of both is no constant, or they do not fit.
  static std::optional<CentredConstant> of(NodeImporter &node, size_t i, size_t zeroAt,
                                           size_t axis);
  llvm::ArrayRef<int64_t> shape() const { return bytes.type.getShape(); }
  int64_t operator[](int64_t element) const;
  /// int8 constants that add up to it: one, or up to three where it does not fit 8 bits.
  llvm::SmallVector<mlir::Value> parts(TensorBuilder &t) const;

private:
  ConstantView bytes;
  std::optional<ConstantView> zero;
  bool isUnsigned = false;
  int64_t inner = 1, count = 1; ///< elements behind the axis, and along it
};

/// The sum of product(part) over the weights' parts, less a's zero point times `sums`, the sums of
/// the weights that each product takes: int32, of a shape that broadcasts to the result's.
mlir::Value integerProduct(TensorBuilder &t, mlir::Value zero, llvm::ArrayRef<mlir::Value> parts,
                           llvm::function_ref<mlir::Value(mlir::Value)> product, mlir::Value sums);

/// An int32 constant.
mlir::Value int32Constant(TensorBuilder &t, llvm::ArrayRef<int64_t> shape,
                          llvm::ArrayRef<int32_t> values);

} // namespace millrace::onnx_import
