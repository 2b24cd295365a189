// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Constants of the tensor level. Weights are `arith.constant` with either a dense attribute (small
// ones, splats) or a dense resource (the rest: the bytes are held once and not hashed). These
// functions hide the difference.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Value.h"

#include "llvm/ADT/ArrayRef.h"

#include <memory>
#include <optional>
#include <vector>

namespace millrace {

/// A constant's elements, row major; `i1` takes one byte per element.
/// The bytes live as long as the MLIR context (resources: as long as their attribute is used).
struct ConstantView {
  mlir::RankedTensorType type;
  llvm::ArrayRef<char> bytes; ///< one element if `splat`
  bool splat = false;
  std::shared_ptr<const std::vector<char>> unpacked; ///< the bytes of `i1`, which MLIR packs

  /// Element `index` of an integer constant, sign-extended.
  int64_t integer(int64_t index) const;
  /// Element `index` of a floating-point constant.
  double real(int64_t index) const;
  /// All elements that `bytes` holds, of integers or floating-point numbers, as fp32.
  std::vector<float> floats() const;
};

/// Views a dense or dense-resource attribute of a ranked tensor type; nothing for other attributes.
std::optional<ConstantView> viewConstant(mlir::Attribute attribute);

/// Views the constant that defines `value`; nothing if no `arith.constant` does.
std::optional<ConstantView> viewConstant(mlir::Value value);

/// The attribute for `bytes` (row major, `i1` one byte each): dense if small, else a resource
/// called `name`.
mlir::ElementsAttr makeConstant(mlir::RankedTensorType type, llvm::ArrayRef<char> bytes,
                                llvm::StringRef name);

/// Numbers as int8 numbers that add up to them: row by row, as many rows as the largest takes.
std::vector<std::vector<char>> int8Parts(std::vector<int16_t> numbers);

/// Bytes of one element of `type` in a ConstantView and in host memory.
unsigned elementBytes(mlir::Type type);

} // namespace millrace
